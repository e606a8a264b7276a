//! What goes wrong on purpose, one thing at a time and never for long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use millrace_e2e::program::Program;
use millrace_e2e::wait;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::random::Random;
use crate::site::{CLIENT, Edge, SERVERS, Site};
use crate::tally::Tally;
use crate::windows::Harm;

/// Between two troubles, in milliseconds.
const QUIET_MS: std::ops::Range<u64> = 5_000..30_000;
/// Before the first.
const FIRST_AFTER: Duration = Duration::from_secs(8);
/// A drain of 4 s, on a busy machine.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The interface of an edge goes down and up again.
    Flap(Edge),
    /// `kill -9` of the first server; the second takes over.
    ServerKill,
    /// SIGTERM of the first server, which ends when its flows have or after 4 s.
    ServerDrain,
    /// The first server killed and the second stopped (SIGSTOP): flows go direct.
    Outage,
    /// The second server stopped for less than the idle time-out: its flows go on afterwards.
    Hang,
    /// SIGHUP to client and second server.
    Reload,
    /// `kill -9` of the client.
    ClientKill,
}

/// Schedule and state of the injected faults.
pub struct Trouble {
    random: Random,
    next: Instant,
    now: Option<(Kind, Instant)>,
    /// When the client is killed: it lives long enough in between for leaks to be seen.
    client_kills: Vec<Instant>,
    counts: BTreeMap<&'static str, u64>,
}

impl Trouble {
    pub fn new(seed: u64, begin: Instant, duration: Duration) -> Self {
        Self {
            random: Random::new(seed),
            next: begin + FIRST_AFTER.min(duration / 10),
            now: None,
            client_kills: vec![begin + duration / 2, begin + duration / 4],
            counts: BTreeMap::new(),
        }
    }

    /// Whether something is wrong on purpose right now.
    pub fn is_on(&self) -> bool {
        self.now.is_some()
    }

    /// Begins or ends something, when its time has come.
    pub fn step(&mut self, site: &mut Site, tally: &Tally) -> Result<()> {
        let now = Instant::now();
        match self.now {
            Some((Kind::ServerDrain, until)) => {
                let program = site.servers[0].as_mut();
                let ended = program.is_none_or(|program| !program.is_running());
                if !ended && now >= until {
                    tally.wrong(format!("a drain of 4 s took longer than {DRAIN_TIMEOUT:?}"));
                }
                if ended || now >= until {
                    self.mend(site, tally)?;
                }
            }
            Some((_, until)) if now >= until => self.mend(site, tally)?,
            None if now >= self.next => {
                let kind = self.draw(now);
                let lasts = self.begin(kind, site, tally)?;
                println!("     {kind:?} for {lasts:.1?}");
                self.now = Some((kind, Instant::now() + lasts));
            }
            _ => {}
        }
        Ok(())
    }

    fn draw(&mut self, now: Instant) -> Kind {
        if self.client_kills.last().is_some_and(|at| now >= *at) {
            self.client_kills.pop();
            return Kind::ClientKill;
        }
        match self.random.below(100) {
            0..=14 => Kind::Flap(Edge::Client),
            15..=29 => Kind::Flap(Edge::Server),
            30..=49 => Kind::ServerKill,
            50..=61 => Kind::ServerDrain,
            62..=75 => Kind::Outage,
            76..=87 => Kind::Hang,
            _ => Kind::Reload,
        }
    }

    fn begin(&mut self, kind: Kind, site: &mut Site, tally: &Tally) -> Result<Duration> {
        let random = &mut self.random;
        let (name, lasts, harm) = match kind {
            Kind::Flap(_) => ("link_flaps", random.ms(200..3000), Some(Harm::Delays)),
            Kind::ServerKill => ("server_kills", random.ms(200..6000), Some(Harm::Cuts)),
            Kind::ServerDrain => ("server_drains", DRAIN_TIMEOUT, Some(Harm::Cuts)),
            Kind::Outage => ("outages", random.ms(2500..7000), Some(Harm::Cuts)),
            Kind::Hang => ("server_hangs", random.ms(300..4000), Some(Harm::Delays)),
            Kind::Reload => ("reloads", Duration::ZERO, None),
            Kind::ClientKill => ("client_kills", random.ms(200..2000), Some(Harm::Cuts)),
        };
        *self.counts.entry(name).or_default() += 1;
        if let Some(harm) = harm {
            tally.windows.open(harm);
        }
        match kind {
            Kind::Flap(edge) => site.link_down(edge)?,
            Kind::ServerKill => kill_server(site, tally),
            Kind::ServerDrain => signal(&mut site.servers[0], Signal::SIGTERM),
            Kind::Outage => {
                kill_server(site, tally);
                signal(&mut site.servers[1], Signal::SIGSTOP);
            }
            Kind::Hang => signal(&mut site.servers[1], Signal::SIGSTOP),
            Kind::Reload => reload(site, tally),
            Kind::ClientKill => {
                if let Some(mut client) = site.client.take() {
                    client.kill();
                    site.keep_log(&client, CLIENT, tally);
                }
            }
        }
        Ok(lasts)
    }

    fn mend(&mut self, site: &mut Site, tally: &Tally) -> Result<()> {
        let Some((kind, _)) = self.now.take() else { return Ok(()) };
        match kind {
            Kind::Flap(edge) => site.link_up(edge)?,
            Kind::ServerKill => site.start_server(0),
            Kind::ServerDrain => {
                if let Some(mut program) = site.servers[0].take() {
                    site.keep_log(&program, SERVERS[0], tally);
                    expect_success(&mut program, tally);
                }
                site.start_server(0);
            }
            Kind::Outage => {
                signal(&mut site.servers[1], Signal::SIGCONT);
                site.start_server(0);
            }
            Kind::Hang => signal(&mut site.servers[1], Signal::SIGCONT),
            Kind::Reload => {}
            Kind::ClientKill => site.start_client(),
        }
        tally.windows.close();
        self.next = Instant::now() + self.random.ms(QUIET_MS);
        Ok(())
    }

    /// Everything is as it was at the beginning.
    pub fn end(&mut self, site: &mut Site, tally: &Tally) -> Result<()> {
        if let (Some((Kind::ServerDrain, _)), Some(server)) = (self.now, &mut site.servers[0]) {
            server.wait(DRAIN_TIMEOUT);
        }
        self.mend(site, tally)
    }

    /// How often what was.
    pub fn json(&self) -> Value {
        json!(self.counts)
    }
}

fn signal(program: &mut Option<Program>, signal: Signal) {
    if let Some(program) = program {
        program.signal(signal);
    }
}

fn kill_server(site: &mut Site, tally: &Tally) {
    if let Some(mut server) = site.servers[0].take() {
        server.kill();
        site.keep_log(&server, SERVERS[0], tally);
    }
}

/// Of a program that has been told to end; otherwise it is killed.
fn expect_success(program: &mut Program, tally: &Tally) {
    if program.is_running() {
        return program.kill();
    }
    let status = program.wait(DRAIN_TIMEOUT);
    if !status.success() {
        tally.wrong(format!("a drained server ended with {status}"));
    }
}

fn reload(site: &mut Site, tally: &Tally) {
    let count = |result: &str| {
        let of = |metrics: Option<millrace_e2e::admin::Metrics>| {
            metrics.map_or(0.0, |it| it.sum("millrace_reloads_total", &[("result", result)]))
        };
        of(site.client_metrics()) + of(site.server_metrics(1))
    };
    let before = count("done");
    for program in [&site.client, &site.servers[1]].into_iter().flatten() {
        program.signal(Signal::SIGHUP);
    }
    let done =
        wait::until(Duration::from_secs(20), || (count("done") >= before + 2.0).then_some(()));
    if done.is_none() {
        tally.wrong(format!("not reloaded; {} times refused", count("refused")));
    }
}
