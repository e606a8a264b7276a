//! Scenarios with real packets: the kernel's TCP or the real proxies, across the emulated link.

mod hosts;
mod join;
mod peers;
mod places;
mod players;
mod steps;
mod streams;
mod telemetry;
mod traffic;
mod tunnels;
mod view;
mod viewers;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::json;

use self::hosts::Hosts;
use self::join::Seen;
use self::places::{MOST_FLOWS, Places};
pub use self::players::Equipment;
use self::players::{Players, Room, Seat};
pub use self::streams::Streams;
use self::telemetry::{Headers, Told};
use self::traffic::{Flow, Gauge};
use self::tunnels::{Tunnels, Workshop};
use self::view::View;
pub use self::viewers::Theatre;
use crate::emulator::course::LONGEST;
use crate::emulator::{Access, Back, FlowPlan, Plan, Report, monotonic_ns};
use crate::host::{self, CpuShares, CpuTime};
use crate::interrupt;
use crate::measure::figures;
use crate::process::require;
use crate::proxies::Binaries;
use crate::run::{Run, require_root};
use crate::runner::{Driver, NotDone, Ran, Request};
use crate::scenario::{App, Scenario, Via};
use crate::simulate::course;
use crate::topology::{KernelCc, Topology};
use crate::traces::Traces;

/// What runs beside the proxies, and the Debian packages that have it.
const PROGRAMS: [(&str, &str); 3] =
    [("ip", "iproute2"), ("sysctl", "procps"), ("ethtool", "ethtool")];

/// The ends' account of what has crossed may differ from the link's by this part of it.
const AGREES_WITHIN: f64 = 0.02;

/// Runs scenarios in real time, one after the other.
#[derive(Debug)]
pub struct Emulation {
    traces: Traces,
    binaries: Binaries,
    access: Access,
    equipment: Equipment,
}

impl Emulation {
    /// With these recorded links and proxies; the emulator gets at the frames by `access`.
    ///
    /// # Errors
    /// Without root, or when a program is missing: which, and how to get it.
    pub fn new(traces: Traces, binaries: Binaries, access: Access) -> Result<Self> {
        require_root()?;
        require(&PROGRAMS)?;
        Ok(Self { traces, binaries, access, equipment: Equipment::default() })
    }

    /// With players, for flows that are watched.
    #[must_use]
    pub fn with(self, equipment: Equipment) -> Self {
        Self { equipment, ..self }
    }
}

impl Driver for Emulation {
    const NAME: &'static str = "emu";

    fn before_another_attempt(&self) -> Result<()> {
        host::wait_until_quiet()
    }

    fn run(&self, request: &Request<'_>) -> Result<Result<Ran, NotDone>> {
        let scenario = request.scenario;
        let possible = can_be_emulated(scenario).and_then(|()| self.equipment.can_show(scenario));
        if let Err(reason) = possible {
            return Ok(Err(NotDone::Skipped(reason)));
        }
        let setup = match course(scenario, request.seed, &self.traces) {
            Ok(setup) => setup,
            Err(not_done) => return Ok(Err(not_done)),
        };
        let places = Places::of(scenario);
        let crossings = places.crossings.iter();
        let flows = crossings.map(|crossing| {
            let group = &scenario.groups[crossing.group];
            FlowPlan {
                host: Places::mark(crossing),
                upwards: group.upwards,
                extra_rtt: Duration::from_secs_f64(group.extra_rtt_ms / 1e3),
            }
        });
        let upwards = scenario.groups.iter().any(|group| group.upwards);
        let plan = Plan {
            flows: flows.collect(),
            loss_seed: None,
            back: if upwards { Back::Same } else { Back::Free },
            setup,
        };
        let logs = request.directory.join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        match self.emulate(request, &places, plan, &logs) {
            Ok(ran) => {
                if ran.invalid_because.is_empty() {
                    fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
                }
                Ok(Ok(ran))
            }
            Err(error) if error.is::<interrupt::Interrupted>() => Err(error),
            Err(error) => Ok(Err(NotDone::Failed(format!("{error:#}")))),
        }
    }

    /// Milliseconds.
    fn weight(&self, scenario: &Scenario) -> u64 {
        (scenario.duration_s * 1e3) as u64
    }
}

/// # Errors
/// What of it the emulator hasn't got.
fn can_be_emulated(scenario: &Scenario) -> Result<(), String> {
    let flows: u64 = scenario.groups.iter().map(|group| group.count).sum();
    if flows > MOST_FLOWS {
        return Err(format!("{flows} flows; the emulator takes {MOST_FLOWS}"));
    }
    if scenario.duration_s > LONGEST.as_secs_f64() {
        let most_s = LONGEST.as_secs();
        return Err(format!("{} s long; the emulator takes {most_s} s", scenario.duration_s));
    }
    for group in &scenario.groups {
        match group.app {
            App::Bulk => {}
            App::OnOff { .. } if !group.upwards => {}
            App::OnOff { .. } => return Err("segments go down only".to_owned()),
            App::Dash { .. } | App::Rtsp { .. } if !group.upwards => {}
            App::Dash { .. } | App::Rtsp { .. } => return Err("videos go down only".to_owned()),
        }
        if group.cc == crate::simulate::MCC && group.via != Via::Proxy {
            return Err("mcc selects in the tunnel only".to_owned());
        }
        if !group.change.is_empty() && group.via != Via::Proxy {
            return Err("only in the tunnel something can be asked of algorithms".to_owned());
        }
        if group.change.iter().any(|change| !change.parameters.is_empty()) {
            let problem = "an algorithm that takes over has its default parameters on the wire";
            return Err(problem.to_owned());
        }
    }
    Ok(())
}

/// What came of the time in which the flows ran.
struct Lived {
    host: CpuShares,
    told: Vec<Told>,
    payload: Vec<Vec<telemetry::Payload>>,
    views: Vec<Option<View>>,
}

impl Emulation {
    fn emulate(
        &self,
        request: &Request<'_>,
        places: &Places,
        plan: Plan,
        logs: &Path,
    ) -> Result<Ran> {
        let scenario = request.scenario;
        // In the order of their ends: proxies stop before the namespaces go.
        let run = Run::start()?;
        let topology = Topology::with_access(&run, KernelCc::Cubic, self.access)?;
        places.furnish(&topology)?;
        let hosts = Hosts::build(&run, scenario, places, &topology)?;
        let emulator = topology.start_link(plan)?;
        let workshop = Workshop { binaries: &self.binaries, scratch: run.scratch(), logs };
        let tunnels = Tunnels::start(scenario, places, &topology, workshop)?;
        let peers = peers::start(scenario, places, &topology, workshop)?;

        let room =
            Room { scratch: run.scratch(), directory: request.directory, logs, hosts: &hosts };
        let Players { seats, sites, rtsp } =
            self.equipment.open(scenario, places, &topology, room)?;

        let gauges: Vec<Gauge> = places.flows.iter().map(|_| Gauge::default()).collect();
        let stage =
            Stage { scenario, places, hosts: &hosts, topology: &topology, tunnels: &tunnels };
        let lived = stage.live(&gauges, seats, || emulator.begin())?;
        drop((tunnels, peers, sites, rtsp));
        let (report, course) = emulator.finish_run()?;
        let course = course.context("the link was stopped before the run's end")?;
        let seen = Seen {
            scenario,
            places,
            course: &course,
            told: lived.told,
            payload: lived.payload,
            views: lived.views,
            segments: gauges.iter().map(Gauge::segments).collect(),
        };
        let (outcome, record) = (seen.outcome(), seen.record(request.with_series));
        let in_use = seen.in_use();
        let disagreement = seen.disagreement();
        let mut figures = figures(scenario, &outcome, &record);
        let mut doubts = doubts(&report, &lived.host, &disagreement);
        let mut players = Vec::new();
        for (flow, view) in seen.views.iter().enumerate() {
            let Some(view) = view else { continue };
            view.add_to(&mut figures.flows[flow].figures);
            doubts.extend(view.doubts.iter().map(|doubt| format!("flow {flow}: {doubt}")));
            players.push(view.account.clone());
        }
        Ok(Ran {
            figures,
            rows: record.rows,
            in_use,
            invalid_because: doubts,
            account: Some(json!({
                "emulator": report,
                "host": lived.host,
                "telemetry_differs_by": disagreement,
                "players": players,
            })),
        })
    }
}

/// Why a run can't be trusted.
fn doubts(report: &Report, host: &CpuShares, disagreement: &[Option<f64>]) -> Vec<String> {
    let mut doubts = report.invalid.clone();
    doubts.extend(host.doubt());
    for (index, differs) in disagreement.iter().enumerate() {
        if let Some(differs) = differs.filter(|differs| differs.abs() > AGREES_WITHIN) {
            let percent = differs * 100.0;
            doubts.push(format!("the ends of flow {index} and the link differ by {percent:+.1} %"));
        }
    }
    doubts
}

/// Where flows run.
struct Stage<'a> {
    scenario: &'a Scenario,
    places: &'a Places,
    hosts: &'a Hosts,
    topology: &'a Topology,
    tunnels: &'a Tunnels,
}

impl Stage<'_> {
    /// Lets the flows run from the beginning to the end. Those that have a player are its.
    fn live(
        &self,
        gauges: &[Gauge],
        seats: Vec<Option<Seat>>,
        begin: impl FnOnce() -> Result<u64>,
    ) -> Result<Lived> {
        let Self { scenario, places, hosts, topology, tunnels } = *self;
        let over = AtomicBool::new(false);
        let flows: Vec<Flow<'_>> = places
            .flows
            .iter()
            .zip(gauges)
            .enumerate()
            .map(|(flow, (place, gauge))| {
                let group = &scenario.groups[place.group];
                Flow { group, place, origin: hosts.of(flow, topology), gauge, over: &over }
            })
            .collect();
        let listeners: Vec<_> = flows
            .iter()
            .map(|flow| (!flow.group.is_watched()).then(|| flow.listen()).transpose())
            .collect::<Result<_>>()?;
        let direct: Vec<bool> =
            places.flows.iter().map(|it| scenario.groups[it.group].via == Via::Direct).collect();
        let headers = Headers::from(scenario.ip);
        let before = CpuTime::now()?;
        let began_ns = begin()?;
        let began = Instant::now() - Duration::from_nanos(monotonic_ns()? - began_ns);
        let end = began + Duration::from_secs_f64(scenario.duration_s);
        std::thread::scope(|scope| {
            // Whatever happens, nobody waits for the others for ever.
            let ended = Ended(&over);
            for (flow, listener) in flows.iter().zip(&listeners) {
                if let Some(listener) = listener {
                    scope.spawn(move || flow.serve(listener));
                }
            }
            let players: Vec<_> = flows
                .iter()
                .zip(seats)
                .map(|(flow, seat)| {
                    let enter = topology.player.entrance()?;
                    Ok(scope.spawn(move || match seat {
                        Some(seat) => seat.watch(flow, topology, began),
                        None => enter.enter().and_then(|()| flow.play(began)).map(|()| None),
                    }))
                })
                .collect::<Result<_>>()?;
            let over = &over;
            let reader = scope.spawn(|| telemetry::read(gauges, &direct, headers, began, over));
            let mut askers = Vec::new();
            for (namespace, proxies) in [
                (&topology.server_edge, &tunnels.servers),
                (&topology.client_edge, &tunnels.clients),
            ] {
                let enter = namespace.entrance()?;
                askers.push(scope.spawn(move || {
                    enter.enter()?;
                    telemetry::ask(proxies, headers, began, over)
                }));
            }
            // A moment longer, for the last sample and the last reading.
            interrupt::wait_for(end - Instant::now() + Duration::from_millis(300), || {
                let now = Instant::now();
                let is_early = |(flow, player): (usize, &ScopedJoinHandle<'_, _>)| {
                    player.is_finished() && stop_of(scenario, places, flow, began) > now
                };
                Ok(players.iter().enumerate().any(is_early).then_some(()))
            })?;
            drop(ended);
            let host = CpuTime::now()?.since(before);
            let mut views = Vec::new();
            let mut wrong: Option<anyhow::Error> = None;
            for (index, player) in players.into_iter().enumerate() {
                let played = player.join().map_err(|_| anyhow!("a player panicked"))?;
                match played.with_context(|| format!("flow {index}")) {
                    Ok(view) => views.push(view),
                    // Why it ended, and not who was still there.
                    Err(error) if wrong.as_ref().is_none_or(|it| it.is::<view::EndedEarly>()) => {
                        wrong = Some(error);
                    }
                    Err(_) => {}
                }
            }
            wrong.map_or(Ok(()), Err)?;
            let read = reader.join().map_err(|_| anyhow!("the reading thread panicked"))?;
            let mut asked = Vec::new();
            for asker in askers {
                asked.push(asker.join().map_err(|_| anyhow!("an asking thread panicked"))??);
            }
            let told = told(scenario, places, &read, asked);
            let arrived = |((payload, _), view): ((Vec<_>, _), &Option<View>)| match view {
                Some(view) => view.arrivals.clone(),
                None => payload,
            };
            let payload = read.into_iter().zip(&views).map(arrived).collect();
            Ok(Lived { host, told, payload, views })
        })
    }
}

fn stop_of(scenario: &Scenario, places: &Places, flow: usize, began: Instant) -> Instant {
    let stop_s = scenario.groups[places.flows[flow].group].stop_s;
    began + Duration::from_secs_f64(stop_s)
}

/// By crossing: of a tunnel what the proxy at either end said, else what the kernel did.
fn told(
    scenario: &Scenario,
    places: &Places,
    read: &[(Vec<telemetry::Payload>, Told)],
    mut asked: Vec<HashMap<usize, Told>>,
) -> Vec<Told> {
    let of = |(index, crossing): (usize, &places::Crossing)| {
        if scenario.groups[crossing.group].via != Via::Proxy {
            return crossing.flows.first().map(|flow| read[*flow].1.clone()).unwrap_or_default();
        }
        let [server, client] = [0, 1]
            .map(|end| asked.get_mut(end).and_then(|told| told.remove(&index)).unwrap_or_default());
        match scenario.groups[crossing.group].upwards {
            false => Told { receiver: client.receiver, ..server },
            true => Told { receiver: server.receiver, ..client },
        }
    };
    places.crossings.iter().enumerate().map(of).collect()
}

/// Says that it is over when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
