//! A soak: many clients that open, pause, reset, half-close and transfer at random through both
//! programs, while links flap and servers are killed, drained, stopped and started again. Exit code
//! 1 when a byte was wrong, an end looked complete that was not, a flow hung or was cut without a
//! reason, or anything was left.
//!
//!     target/release/examples/soak --seconds 600 --clients 200 --seed 1
//!
//! Needs root: it makes network namespaces (and removes them). docs/research/soak.md says what is looked at.

#![allow(clippy::unwrap_used, reason = "a test")]

mod clients;
mod exchange;
mod faults;
mod health;
mod leftovers;
mod random;
mod site;
mod stuck;
mod tally;
mod trouble;
mod vanish;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use millrace_e2e::wait;
use millrace_lab::interrupt;
use serde_json::json;

use faults::FaultSchedule;
use health::Health;
use random::Random;
use site::Site;
use tally::Tally;
use trouble::Trouble;

const STEP: Duration = Duration::from_millis(50);
const TELL_EVERY: Duration = Duration::from_secs(60);
const CLIENT_STACK_BYTES: usize = 256 << 10;
/// The origin finds out that nothing comes any more.
const ORIGIN_END_TIMEOUT: Duration = Duration::from_secs(90);

/// Clients that do everything at random through both programs, while much goes wrong.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    seconds: u64,
    /// How many clients at a time.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=2000))]
    clients: u64,
    /// The same seed draws the same flows and troubles; printed and in the report.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where report.json and the programs' logs are written.
    #[arg(long, default_value = "target/soak")]
    out: PathBuf,
    /// The programs' log level.
    #[arg(long, default_value = "warn")]
    log: String,
    /// The origin sends a wrong byte now and then: the soak must fail.
    #[arg(long)]
    wrong_bytes: bool,
    /// Nothing is killed, stopped or taken down on purpose.
    #[arg(long)]
    no_trouble: bool,
    /// The paths to the servers corrupt, duplicate, delay and lose packets, their MTU and addresses change,
    /// and ends of flows pause for long or disappear.
    #[arg(long)]
    faults: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("soak: {wrong} things were wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<u64> {
    let Arguments { seconds, clients, seed, .. } = *arguments;
    println!("soak: {clients} clients for {seconds} s, seed {seed}");
    interrupt::install()?;
    site::clear_logs(&arguments.out)?;
    let rules = leftovers::own_rules();
    let tally = Arc::new(Tally::new());
    let mut site = Site::start(arguments, &tally)?;
    let run_id = site.run_id();
    stuck::watch(&site);
    let mut health = Health::start(&site);
    println!("soak: begun, mr-{run_id}");
    let begin = Instant::now();
    let mut faults = FaultSchedule::new(seed, std::mem::take(&mut site.relays));
    let duration = Duration::from_secs(seconds);
    let mut trouble = Trouble::new(seed, begin, duration);
    let stop = Arc::new(AtomicBool::new(false));
    let threads = start_clients(arguments, &site, &stop, &tally)?;

    let soaked = soak(arguments, begin, &mut site, &mut health, &mut trouble, &mut faults, &tally);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        if thread.join().is_err() {
            tally.wrong("a client's thread panicked".to_owned());
        }
    }
    let interrupted = interrupt::check();
    soaked?;
    interrupted?;
    let at_origin = || tally.at_origin.load(Ordering::Relaxed);
    if wait::until(ORIGIN_END_TIMEOUT, || (at_origin() == 0).then_some(())).is_none() {
        tally.wrong(format!("the origin still holds {} connections", at_origin()));
    }
    tally.forget(true);
    let tracked = leftovers::tracked(&site);
    leftovers::after_the_last_flow(&mut site, &health, &tally);
    site.stop_origins();
    drop(site);
    leftovers::after_the_end(&run_id, &rules, &tally);
    tally.judge_load(seconds, clients as usize);

    println!("soak: {tally}");
    println!("soak: troubles {}; {tracked} connections tracked at the end", trouble.json());
    println!("soak: faults {}; {} ends disappeared", faults.json(), vanish::count());
    println!("soak: largest memory (Pss): {}", health.largest());
    let report = json!({
        "seconds": seconds,
        "clients": clients,
        "seed": seed,
        "ran_s": begin.elapsed().as_secs(),
        "flows": tally.json(),
        "troubles": trouble.json(),
        "faults": faults.json(),
        "ends_vanished": vanish::count(),
        "health": health.json(),
        "tracked_connections_at_end": tracked,
    });
    let path = arguments.out.join("report.json");
    std::fs::write(&path, format!("{report:#}\n")).with_context(|| path.display().to_string())?;
    println!("soak: {}", path.display());
    tally.tell_wrongs();
    Ok(tally.wrongs())
}

fn start_clients(
    arguments: &Arguments,
    site: &Site,
    stop: &Arc<AtomicBool>,
    tally: &Arc<Tally>,
) -> Result<Vec<std::thread::JoinHandle<()>>> {
    let start = |number: u64| {
        let (stop, tally) = (stop.clone(), tally.clone());
        let player = site.topology.player.handle()?;
        let entry = Site::entry(number as usize);
        let faults = site.viewer_faults(arguments.faults);
        let random = Random::new(arguments.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let thread = std::thread::Builder::new().stack_size(CLIENT_STACK_BYTES);
        Ok(thread.spawn(move || {
            player.enter().expect("root may enter a namespace");
            clients::client(number as usize, &entry, random, &faults, &stop, &tally);
        })?)
    };
    (0..arguments.clients).map(start).collect()
}

/// Trouble and looks, until the time is over.
fn soak(
    arguments: &Arguments,
    begin: Instant,
    site: &mut Site,
    health: &mut Health,
    trouble: &mut Trouble,
    faults: &mut FaultSchedule,
    tally: &Tally,
) -> Result<()> {
    let duration = Duration::from_secs(arguments.seconds);
    let (mut tell_at, mut tenths) = (TELL_EVERY, 0);
    while begin.elapsed() < duration && interrupt::check().is_ok() {
        std::thread::sleep(STEP);
        if !arguments.no_trouble {
            trouble.step(site, tally)?;
        }
        if arguments.faults {
            faults.step();
        }
        must_run(site)?;
        if !trouble.is_on() {
            health.look(site, tally);
        }
        let elapsed = begin.elapsed();
        if elapsed >= duration * (tenths + 1) / 10 {
            tenths += 1;
            health.tenth(u64::from(tenths), tally);
            tally.forget(false);
        }
        if elapsed >= tell_at {
            tell_at += TELL_EVERY;
            println!("{:4} s: {tally}", elapsed.as_secs());
        }
    }
    faults.end();
    trouble.end(site, tally)
}

/// Nothing but us ends the programs.
fn must_run(site: &mut Site) -> Result<()> {
    let Site { client, servers, .. } = site;
    let [first, second] = servers;
    for (name, program) in [("client", client), ("second server", second)] {
        if let Some(program) = program
            && !program.is_running()
        {
            anyhow::bail!("the {name} has ended by itself\n{}", program.log_text());
        }
    }
    let _ = first;
    Ok(())
}
