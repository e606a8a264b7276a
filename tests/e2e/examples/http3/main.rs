//! A browser that knows that its origin speaks HTTP/3, behind a gateway with Millrace: how long it takes to begin, and
//! whether all of its video crosses the tunnel.
//!
//!     target/release/examples/http3 --browser tests/scripts/http3-browser.mjs --origin target/interop/quic-go
//!     target/release/examples/http3 --show docs/research/results/http3/sessions.json
//!
//! Each session is a new browser that has the origin's announcement of HTTP/3 (Alt-Svc) from an earlier one. Exit code 1
//! when bytes bypass the tunnel, a session has another protocol than it should, or the fall-back to TCP takes too long.
//! Needs root, Chromium and Node.js: it makes network namespaces, and removes them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod browser;
mod site;
mod variant;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use millrace_lab::interrupt;
use serde::{Deserialize, Serialize};

use browser::{Browser, Session};
use site::{Carried, Site};
use variant::{Family, Variant};

/// What the fall-back from HTTP/3 may add to the start of a session over TCP, in milliseconds.
const MAX_FALLBACK_MS: f64 = 300.0;
const SEGMENTS: usize = 6;
const SEGMENT_BYTES: u64 = 1_000_000;

/// Measures sessions of a browser that knows HTTP/3 behind a gateway.
#[derive(Debug, Parser)]
struct Arguments {
    /// Results of an earlier run, to be shown as a table and judged; nothing is measured.
    #[arg(long)]
    show: Option<PathBuf>,
    /// The program that drives the browser.
    #[arg(long, default_value = "tests/scripts/http3-browser.mjs")]
    browser: PathBuf,
    /// The origin that speaks HTTP/3.
    #[arg(long, default_value = "target/interop/quic-go")]
    origin: PathBuf,
    /// Sessions of each variant.
    #[arg(long, default_value_t = 3)]
    sessions: usize,
    /// Also without Millrace, with HTTP/3 dropped instead of rejected, and over IPv6.
    #[arg(long)]
    full: bool,
    /// Directory for results.
    #[arg(long, default_value = "target/http3")]
    out: PathBuf,
}

/// The sessions of one variant.
#[derive(Debug, Deserialize, Serialize)]
struct Measured {
    variant: Variant,
    family: Family,
    sessions: Vec<Session>,
    carried: Carried,
}

impl Measured {
    /// The median of a figure of the sessions.
    fn median(&self, of: impl Fn(&Session) -> f64) -> f64 {
        let mut values: Vec<_> = self.sessions.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn first_byte_ms(&self) -> f64 {
        self.median(|it| it.first_byte_ms)
    }

    fn video_bytes(&self) -> u64 {
        self.sessions.iter().map(Session::video_bytes).sum()
    }

    /// What is wrong with it.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let wanted = self.variant.protocol();
        for session in &self.sessions {
            let got: Vec<_> = session.segment_protocols().collect();
            if got.iter().any(|it| *it != wanted) {
                problems.push(format!("segments came by {got:?} instead of {wanted}"));
            }
        }
        let expected = (self.sessions.len() * SEGMENTS) as u64 * SEGMENT_BYTES;
        if self.video_bytes() != expected {
            problems.push(format!("{} bytes of video instead of {expected}", self.video_bytes()));
        }
        let Carried { tunnel_bytes, bypassed_bytes, .. } = self.carried;
        let tunnelled = self.variant.is_tunnelled();
        if tunnelled && (tunnel_bytes < expected || bypassed_bytes > 0) {
            problems.push(format!(
                "{tunnel_bytes} bytes crossed the tunnel, {bypassed_bytes} bypassed it"
            ));
        }
        if !tunnelled && tunnel_bytes > 0 {
            problems.push(format!("{tunnel_bytes} bytes crossed the tunnel"));
        }
        let begins_with_http3 = matches!(self.variant, Variant::Rejected | Variant::Dropped);
        let attempts = self.carried.forwarded_http3;
        if begins_with_http3 && attempts < self.sessions.len() as u64 {
            problems.push(format!("only {attempts} datagrams of HTTP/3 in all sessions"));
        }
        problems
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let holds = match &arguments.show {
        Some(results) => show_results(results),
        None => run(&arguments),
    };
    match holds {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("http3: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn show_results(results: &Path) -> Result<bool> {
    let text = fs::read_to_string(results).with_context(|| results.display().to_string())?;
    let measured: Vec<Measured> =
        serde_json::from_str(&text).with_context(|| results.display().to_string())?;
    println!(
        "| IP | HTTP/3 at the gateway | protocol | first byte, ms | first segment, ms | {SEGMENTS} segments, ms | \
         video, MB | tunnel, MB | past it, MB | sessions |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    measured.iter().for_each(show_row);
    println!();
    Ok(judge(&measured))
}

fn show_row(measured: &Measured) {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "| {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {} |",
        measured.family,
        measured.variant,
        measured.variant.protocol(),
        measured.first_byte_ms(),
        measured.median(Session::first_segment_ms),
        measured.median(Session::all_segments_ms),
        mb(measured.video_bytes()),
        mb(measured.carried.tunnel_bytes),
        mb(measured.carried.bypassed_bytes),
        measured.sessions.len(),
    );
}

/// Whether all is as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.sessions > 0, "--sessions must be at least 1");
    interrupt::install()?;
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("can't make {}", arguments.out.display()))?;
    let site = Site::start(&arguments.origin)?;
    let families = if arguments.full { &[Family::V4, Family::V6][..] } else { &[Family::V4] };
    let mut measured = Vec::new();
    for family in families.iter().copied() {
        let browser = Browser::with_announcement(&site, &arguments.browser, family)?;
        for variant in Variant::all(arguments.full) {
            interrupt::check()?;
            site.set(variant)?;
            let before = site.carried()?;
            let sessions = (0..arguments.sessions).map(|_| browser.session(&site, variant));
            let sessions = sessions.collect::<Result<Vec<_>>>()?;
            let carried = site.carried()?.since(before);
            let result = Measured { variant, family, sessions, carried };
            show(&result);
            measured.push(result);
        }
    }
    let results = arguments.out.join("sessions.json");
    fs::write(&results, serde_json::to_string(&measured)?)
        .with_context(|| format!("can't write {}", results.display()))?;
    let holds = judge(&measured);
    if !holds {
        eprint!("{}", site.logs());
    }
    Ok(holds)
}

fn show(measured: &Measured) {
    let Measured { variant, family, sessions, carried } = measured;
    let first_segment_ms = measured.median(Session::first_segment_ms);
    let all_segments_ms = measured.median(Session::all_segments_ms);
    println!(
        "{family} {variant:<9} first byte {:6.0} ms, first segment {first_segment_ms:6.0} ms, all {SEGMENTS} \
         {all_segments_ms:6.0} ms (medians of {}); {} bytes of video, {} through the tunnel ({} datagrams), {} past it; \
         {} datagrams of HTTP/3 to forward",
        measured.first_byte_ms(),
        sessions.len(),
        measured.video_bytes(),
        carried.tunnel_bytes,
        carried.tunnel_datagrams,
        carried.bypassed_bytes,
        carried.forwarded_http3,
    );
}

fn judge(measured: &[Measured]) -> bool {
    let mut holds = true;
    for result in measured {
        for problem in result.problems() {
            println!("FAILED: {} {}: {problem}", result.family, result.variant);
            holds = false;
        }
    }
    let of = |family, variant| {
        let it = measured.iter().find(|it| (it.family, it.variant) == (family, variant));
        it.map(Measured::first_byte_ms)
    };
    for family in [Family::V4, Family::V6] {
        let Some(fallback) = of(family, Variant::Rejected).zip(of(family, Variant::TcpOnly)) else {
            continue;
        };
        let added_ms = fallback.0 - fallback.1;
        let fits = added_ms <= MAX_FALLBACK_MS;
        holds &= fits;
        let verdict = if fits { "ok" } else { "FAILED" };
        println!(
            "{verdict}: {family} the fall-back to TCP adds {added_ms:.0} ms (at most {MAX_FALLBACK_MS:.0} ms)"
        );
    }
    holds
}
