//! What flows that stand still cost an active one: its rate beside them, as a share of its rate alone.
//!
//!     target/release/examples/isolation --cells corners
//!     target/release/examples/isolation --cells all
//!
//! Results are added to `OUT/cells.jsonl`, one line a cell; a cell that is there already is not measured
//! again. Exit code 1 when a cell's share is below the least. Needs root: it makes network namespaces, and
//! removes them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod cell;
mod flows;
mod site;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use millrace_lab::interrupt;
use serde::{Deserialize, Serialize};

use cell::{Background, Cell};
use flows::{ActiveRate, Standing, active_rate};
use site::Site;

/// The least share of its rate alone that the active flow keeps.
const LEAST_SHARE: f64 = 0.9;
/// How long the flows may take to come to a standstill.
const STANDSTILL: Duration = Duration::from_secs(180);
/// Packets of keep-alives and probes go on while flows stand still.
const STILL_BYTES_PER_S: f64 = 150_000.0;
/// Of the memory at which the kernel begins to take it back from TCP connections.
const MAX_TCP_MEMORY_PERCENT: u64 = 85;
/// Periods without progress in a row that are a standstill: one may be a pause of the sender.
const STILL_PERIODS: u32 = 3;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cells {
    /// Four corners of the grid.
    Corners,
    /// The whole grid.
    All,
}

/// Measures what flows that stand still cost an active one.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which cells.
    #[arg(long, value_enum, default_value = "corners")]
    cells: Cells,
    /// Only cells whose description has this text.
    #[arg(long)]
    filter: Option<String>,
    /// Directory for results.
    #[arg(long, default_value = "target/isolation")]
    out: PathBuf,
    /// Measure cells again that have a result.
    #[arg(long)]
    again: bool,
    /// List the cells and end.
    #[arg(long)]
    list: bool,
}

/// What one cell has shown.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    cell: Cell,
    alone_mbps: f64,
    beside_mbps: f64,
    /// Flows that were still open at the end.
    open: usize,
    /// Resident memory of the client and the server while the flows stood still.
    rss_bytes: [u64; 2],
}

impl Measured {
    fn share(&self) -> f64 {
        self.beside_mbps / self.alone_mbps
    }

    fn holds(&self) -> bool {
        self.share() >= LEAST_SHARE && self.open == self.cell.flows
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("isolation: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all cells hold.
fn run(arguments: &Arguments) -> Result<bool> {
    let mut cells = match arguments.cells {
        Cells::Corners => Cell::corners(),
        Cells::All => Cell::all(),
    };
    if let Some(filter) = &arguments.filter {
        cells.retain(|cell| cell.to_string().contains(filter));
    }
    if arguments.list {
        cells.iter().for_each(|cell| println!("{cell}"));
        return Ok(true);
    }
    interrupt::install()?;
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("can't make {}", arguments.out.display()))?;
    let results = arguments.out.join("cells.jsonl");
    let known = if arguments.again { Vec::new() } else { read(&results)? };
    let mut failed = Vec::new();
    for cell in &cells {
        let measured = match known.iter().find(|measured| measured.cell == *cell) {
            Some(measured) => show(measured, "kept"),
            None => {
                let started = Instant::now();
                let measured = measure(cell).with_context(|| cell.to_string())?;
                append(&results, &measured)?;
                show(&measured, &format!("{} s", started.elapsed().as_secs()))
            }
        };
        if !measured {
            failed.push(cell);
        }
    }
    println!("isolation: {} of {} cells hold", cells.len() - failed.len(), cells.len());
    failed.iter().for_each(|cell| println!("isolation: FAILED: {cell}"));
    Ok(failed.is_empty() && !cells.is_empty())
}

fn show(measured: &Measured, note: &str) -> bool {
    let Measured { cell, alone_mbps, beside_mbps, open, rss_bytes } = measured;
    let [client, server] = rss_bytes.map(|bytes| bytes >> 20);
    println!(
        "{} {:.2}  {alone_mbps:.1} Mbit/s alone, {beside_mbps:.1} beside {cell}; {open} open, \
         client {client} MiB, server {server} MiB ({note})",
        if measured.holds() { "ok    " } else { "FAILED" },
        measured.share(),
    );
    measured.holds()
}

fn measure(cell: &Cell) -> Result<Measured> {
    interrupt::check()?;
    let site = Site::start(cell)?;
    // A short path's start-up is over at once. On a long one BBR interrupts it after ten seconds, to measure the
    // round trip, and leaves it some round trips later.
    let warm_up = Duration::from_secs(2) + 20 * cell.rtt();
    let length = Duration::from_secs(3) + 12 * cell.rtt();
    let alone_mbps = active_rate(&site, cell.is_upload(), warm_up, length)?.mbps;
    let standing = Standing::start(&site, cell.background, cell.flows)
        .inspect_err(|_| eprint!("{}", site.logs()))?;
    let deadline = Instant::now() + STANDSTILL;
    wait_for_standstill(&site, &standing, cell, deadline)?;
    let rss_bytes = site.rss_bytes();
    check_tcp_memory()?;
    let mut beside = active_rate(&site, cell.is_upload(), warm_up, length)?;
    while was_disturbed(&beside, alone_mbps) {
        eprintln!("{cell}: flows that stood still went on, {beside:?}; measured again");
        wait_for_standstill(&site, &standing, cell, deadline)?;
        beside = active_rate(&site, cell.is_upload(), warm_up, length)?;
    }
    let open = standing.end();
    let measured = Measured { cell: *cell, alone_mbps, beside_mbps: beside.mbps, open, rss_bytes };
    if !measured.holds() {
        eprint!("{}", site.logs());
    }
    Ok(measured)
}

/// Near the kernel's limit for the memory of TCP it closes the windows of all connections of the machine (tcp(7),
/// `tcp_mem`): those of the origin and the viewers, which are other machines elsewhere, and of cells that are measured
/// at the same time.
fn check_tcp_memory() -> Result<()> {
    let sockets = fs::read_to_string("/proc/net/sockstat")?;
    let tcp = sockets.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let used = tcp.split(' ').skip_while(|word| *word != "mem").nth(1);
    let used_pages: u64 = used.context("no memory of TCP in /proc/net/sockstat")?.parse()?;
    let limits = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem")?;
    let pressure = limits.split_whitespace().nth(1);
    let pressure_pages: u64 = pressure.context("/proc/sys/net/ipv4/tcp_mem")?.parse()?;
    if used_pages > pressure_pages / 100 * MAX_TCP_MEMORY_PERCENT {
        bail!(
            "TCP of this machine uses {used_pages} pages, near net.ipv4.tcp_mem's {pressure_pages}: \
             measure fewer cells at once, or raise it"
        );
    }
    Ok(())
}

/// Whether other flows had at least half of what the active one lacks: they had not come to a standstill. Connections
/// that have lost most of what they sent wait for several seconds before they send again (RFC 9002, Section 6.2.1).
fn was_disturbed(beside: &ActiveRate, alone_mbps: f64) -> bool {
    let lacks_mbps = LEAST_SHARE * alone_mbps - beside.mbps;
    lacks_mbps > 0.0 && beside.others_mbps > lacks_mbps / 2.0
}

/// Waits until the flows have moved nothing for some round trips.
fn wait_for_standstill(
    site: &Site,
    standing: &Standing,
    cell: &Cell,
    deadline: Instant,
) -> Result<()> {
    let period = (2 * cell.rtt()).max(Duration::from_millis(500));
    let slow_bytes_per_s = match cell.background {
        Background::SlowViewer => 1000.0 * cell.flows as f64,
        _ => 0.0,
    };
    let mut still_periods = 0;
    while Instant::now() < deadline {
        interrupt::check()?;
        let (start, moved, crossed) = (Instant::now(), standing.moved(), site.link_bytes()?);
        std::thread::sleep(period);
        let seconds = start.elapsed().as_secs_f64();
        let moved = (standing.moved() - moved) as f64 / seconds;
        let crossed = (site.link_bytes()? - crossed) as f64 / seconds;
        let is_still = standing.moved() > 0
            && moved <= 2.0 * slow_bytes_per_s
            && crossed <= STILL_BYTES_PER_S + 2.0 * slow_bytes_per_s;
        still_periods = if is_still { still_periods + 1 } else { 0 };
        if still_periods == STILL_PERIODS {
            return Ok(());
        }
    }
    bail!("the flows have not come to a standstill within {} s", STANDSTILL.as_secs())
}

fn read(results: &Path) -> Result<Vec<Measured>> {
    let text = match fs::read_to_string(results) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => bail!("can't read {}: {error}", results.display()),
    };
    text.lines()
        .enumerate()
        .map(|(line, text)| {
            serde_json::from_str(text)
                .with_context(|| format!("{}:{}", results.display(), line + 1))
        })
        .collect()
}

fn append(results: &Path, measured: &Measured) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(results)?;
    writeln!(file, "{}", serde_json::to_string(measured)?)?;
    Ok(())
}
