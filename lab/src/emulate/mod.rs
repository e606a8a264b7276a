//! Scenarios with real packets: the kernel's TCP or the real proxies, across the emulated link.

mod address_plan;
mod browsers;
mod counter;
mod hosts;
mod join;
mod peers;
mod players;
mod run_paths;
mod session;
mod streams;
mod support;
mod telemetry;
mod traffic;
mod tunnels;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::json;

use self::address_plan::{AddressPlan, LinkConnection};
pub use self::browsers::MediaLibrary;
use self::hosts::Hosts;
use self::join::RunObservations;
pub use self::players::PlayerPool;
use self::players::{PlayerHandle, Players};
use self::run_paths::RunPaths;
use self::session::{EndedEarly, SessionResult};
pub use self::streams::StreamLibrary;
use self::support::can_be_emulated;
use self::telemetry::{ConnectionTelemetry, Headers};
use self::traffic::{EmulatedFlow, FlowProbe};
use self::tunnels::{ProxyLauncher, Tunnels};
use crate::emulator::{EmulatorReport, FlowPlan, FrameIo, LinkPlan, ReversePath, monotonic_ns};
use crate::host::{self, CpuShares, CpuTime};
use crate::interrupt;
use crate::measure::figures;
use crate::process::require;
use crate::proxies::Binaries;
use crate::run::{Run, require_root};
use crate::runner::{NotDone, RunRequest, RunResult, ScenarioDriver};
use crate::scenario::{Driver, Scenario, Via};
use crate::simulate::link_setup;
use crate::topology::{KernelCc, Topology};
use crate::traces::Traces;

/// Programs beside the proxies, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 3] =
    [("ip", "iproute2"), ("sysctl", "procps"), ("ethtool", "ethtool")];

/// Largest relative difference between the counts of the ends and of the link.
const MAX_COUNT_DIFFERENCE: f64 = 0.02;

/// Runs scenarios in real time, one after the other.
#[derive(Debug)]
pub struct Emulation {
    traces: Traces,
    binaries: Binaries,
    frame_io: FrameIo,
    player_pool: PlayerPool,
}

impl Emulation {
    /// With these recorded links and proxies.
    ///
    /// # Errors
    /// Without root, or when a program is missing: which, and how to get it.
    pub fn new(traces: Traces, binaries: Binaries, frame_io: FrameIo) -> Result<Self> {
        require_root()?;
        require(&PROGRAMS)?;
        Ok(Self { traces, binaries, frame_io, player_pool: PlayerPool::default() })
    }

    /// With players, for the flows that have one.
    #[must_use]
    pub fn with(self, player_pool: PlayerPool) -> Self {
        Self { player_pool, ..self }
    }
}

impl ScenarioDriver for Emulation {
    const NAME: &'static str = Driver::Emulator.name();

    fn before_another_attempt(&self) -> Result<()> {
        host::wait_until_quiet()
    }

    fn run(&self, request: &RunRequest<'_>) -> Result<Result<RunResult, NotDone>> {
        let scenario = request.scenario;
        let possible = can_be_emulated(scenario)
            .and_then(|()| self.player_pool.can_play(scenario))
            .and_then(|()| peers::are_known(scenario));
        if let Err(reason) = possible {
            return Ok(Err(NotDone::Skipped(reason)));
        }
        let setup = match link_setup(scenario, request.seed, &self.traces) {
            Ok(setup) => setup,
            Err(not_done) => return Ok(Err(not_done)),
        };
        let address_plan = AddressPlan::of(scenario);
        let connections = address_plan.connections.iter();
        let flows = connections.map(|connection| {
            let group = &scenario.groups[connection.group];
            FlowPlan {
                host: AddressPlan::host_id(connection),
                upwards: group.upwards,
                extra_rtt: Duration::from_secs_f64(group.path.extra_rtt_ms / 1e3),
            }
        });
        let upwards = scenario.groups.iter().any(|group| group.upwards);
        let plan = LinkPlan {
            flows: flows.collect(),
            loss_seed: None,
            reverse: if upwards { ReversePath::Same } else { ReversePath::Free },
            setup,
        };
        let logs = request.directory.join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        match self.emulate(request, &address_plan, plan, &logs) {
            Ok(result) => {
                if result.invalid_because.is_empty() {
                    fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
                }
                Ok(Ok(result))
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

/// What was observed while the flows ran.
struct RunOutcome {
    host: CpuShares,
    telemetry: Vec<ConnectionTelemetry>,
    payload: Vec<Vec<telemetry::Payload>>,
    sessions: Vec<Option<SessionResult>>,
}

impl Emulation {
    fn emulate(
        &self,
        request: &RunRequest<'_>,
        address_plan: &AddressPlan,
        plan: LinkPlan,
        logs: &Path,
    ) -> Result<RunResult> {
        let scenario = request.scenario;
        // In the order of their ends: proxies stop before the namespaces go.
        let run = Run::start()?;
        let topology = Topology::with_frame_io(&run, KernelCc::Cubic, self.frame_io)?;
        address_plan.configure(&topology)?;
        let hosts = Hosts::build(&run, scenario, address_plan, &topology)?;
        let emulator = topology.start_link(plan)?;
        let launcher = ProxyLauncher { binaries: &self.binaries, scratch: run.scratch(), logs };
        let tunnels = Tunnels::start(scenario, address_plan, &topology, launcher)?;
        let peers = peers::start(scenario, address_plan, &topology, launcher)?;

        let paths =
            RunPaths { scratch: run.scratch(), directory: request.directory, logs, hosts: &hosts };
        let Players { handles, sites, rtsp } =
            self.player_pool.open(scenario, address_plan, &topology, paths)?;

        let probes: Vec<FlowProbe> =
            address_plan.flows.iter().map(|_| FlowProbe::default()).collect();
        let context = RunContext {
            scenario,
            address_plan,
            hosts: &hosts,
            topology: &topology,
            tunnels: &tunnels,
        };
        let run_outcome = context.run_flows(&probes, handles, || emulator.begin())?;
        drop((tunnels, peers, sites, rtsp));
        let (report, trace) = emulator.finish_run()?;
        let trace = trace.context("the link was stopped before the run's end")?;
        let observations = RunObservations {
            scenario,
            address_plan,
            trace: &trace,
            telemetry: run_outcome.telemetry,
            payload: run_outcome.payload,
            sessions: run_outcome.sessions,
            segments: probes.iter().map(FlowProbe::segments).collect(),
        };
        let (outcome, record) = (observations.outcome(), observations.record(request.with_series));
        let in_use = observations.in_use();
        let disagreement = observations.disagreement();
        let mut figures = figures(scenario, &outcome, &record);
        let mut invalid_because = invalid_reasons(&report, &run_outcome.host, &disagreement);
        let mut players = Vec::new();
        for (flow, session) in observations.sessions.iter().enumerate() {
            let Some(session) = session else { continue };
            session.add_to(&mut figures.flows[flow].figures);
            let of_flow = |reason: &String| format!("flow {flow}: {reason}");
            invalid_because.extend(session.invalid_reasons.iter().map(of_flow));
            players.push(session.account.clone());
        }
        Ok(RunResult {
            figures,
            rows: record.rows,
            in_use,
            invalid_because,
            account: Some(json!({
                "emulator": report,
                "host": run_outcome.host,
                "telemetry_differs_by": disagreement,
                "players": players,
            })),
        })
    }
}

/// Why a run is invalid; empty for a valid run.
fn invalid_reasons(
    report: &EmulatorReport,
    host: &CpuShares,
    disagreement: &[Option<f64>],
) -> Vec<String> {
    let mut reasons = report.invalid.clone();
    reasons.extend(host.invalid_reason());
    for (index, differs) in disagreement.iter().enumerate() {
        if let Some(differs) = differs.filter(|differs| differs.abs() > MAX_COUNT_DIFFERENCE) {
            let percent = differs * 100.0;
            reasons
                .push(format!("the ends of flow {index} and the link differ by {percent:+.1} %"));
        }
    }
    reasons
}

/// What the flows of a run need.
struct RunContext<'a> {
    scenario: &'a Scenario,
    address_plan: &'a AddressPlan,
    hosts: &'a Hosts,
    topology: &'a Topology,
    tunnels: &'a Tunnels,
}

impl RunContext<'_> {
    /// Runs the flows from the beginning to the end. A flow with a player is driven by the player.
    fn run_flows(
        &self,
        probes: &[FlowProbe],
        handles: Vec<Option<PlayerHandle>>,
        begin: impl FnOnce() -> Result<u64>,
    ) -> Result<RunOutcome> {
        let Self { scenario, address_plan, hosts, topology, tunnels } = *self;
        let over = AtomicBool::new(false);
        let flows: Vec<EmulatedFlow<'_>> = address_plan
            .flows
            .iter()
            .zip(probes)
            .enumerate()
            .map(|(flow, (addresses, probe))| {
                let group = &scenario.groups[addresses.group];
                EmulatedFlow {
                    group,
                    addresses,
                    origin: hosts.of(flow, topology),
                    probe,
                    over: &over,
                }
            })
            .collect();
        let listeners: Vec<_> = flows
            .iter()
            .map(|flow| (!flow.group.is_watched()).then(|| flow.listen()).transpose())
            .collect::<Result<_>>()?;
        let direct: Vec<bool> = address_plan
            .flows
            .iter()
            .map(|it| scenario.groups[it.group].via == Via::Direct)
            .collect();
        let headers = Headers::from(scenario.ip);
        let before = CpuTime::now()?;
        let began_ns = begin()?;
        let began = Instant::now() - Duration::from_nanos(monotonic_ns()? - began_ns);
        let end = began + Duration::from_secs_f64(scenario.duration_s);
        std::thread::scope(|scope| {
            // Ends all threads on every way out of this scope.
            let end_signal = EndSignal(&over);
            for (flow, listener) in flows.iter().zip(&listeners) {
                if let Some(listener) = listener {
                    scope.spawn(move || flow.serve(listener));
                }
            }
            let players: Vec<_> = flows
                .iter()
                .zip(handles)
                .map(|(flow, handle)| {
                    let enter = topology.player.handle()?;
                    Ok(scope.spawn(move || match handle {
                        Some(handle) => handle.play(flow, topology, began),
                        None => enter.enter().and_then(|()| flow.play(began)).map(|()| None),
                    }))
                })
                .collect::<Result<_>>()?;
            let over = &over;
            let reader = scope.spawn(|| telemetry::read(probes, &direct, headers, began, over));
            let mut pollers = Vec::new();
            for (namespace, proxies) in [
                (&topology.server_edge, &tunnels.servers),
                (&topology.client_edge, &tunnels.clients),
            ] {
                let enter = namespace.handle()?;
                pollers.push(scope.spawn(move || {
                    enter.enter()?;
                    telemetry::poll(proxies, headers, began, over)
                }));
            }
            // A little longer, for the last sample and the last reading.
            interrupt::wait_for(end - Instant::now() + Duration::from_millis(300), || {
                let now = Instant::now();
                let is_early = |(flow, player): (usize, &ScopedJoinHandle<'_, _>)| {
                    player.is_finished() && stop_of(scenario, address_plan, flow, began) > now
                };
                Ok(players.iter().enumerate().any(is_early).then_some(()))
            })?;
            drop(end_signal);
            let host = CpuTime::now()?.since(before);
            let mut sessions = Vec::new();
            let mut wrong: Option<anyhow::Error> = None;
            for (index, player) in players.into_iter().enumerate() {
                let played = player.join().map_err(|_| anyhow!("a player panicked"))?;
                match played.with_context(|| format!("flow {index}")) {
                    Ok(session) => sessions.push(session),
                    // The cause, and not its consequence in other flows.
                    Err(error) if wrong.as_ref().is_none_or(|it| it.is::<EndedEarly>()) => {
                        wrong = Some(error);
                    }
                    Err(_) => {}
                }
            }
            wrong.map_or(Ok(()), Err)?;
            let read = reader.join().map_err(|_| anyhow!("the reading thread panicked"))?;
            let mut polled = Vec::new();
            for poller in pollers {
                polled.push(poller.join().map_err(|_| anyhow!("a polling thread panicked"))??);
            }
            let telemetry = telemetry_by_connection(scenario, address_plan, &read, polled);
            let arrived =
                |((payload, _), session): ((Vec<_>, _), &Option<SessionResult>)| match session {
                    Some(session) => session.arrivals.clone(),
                    None => payload,
                };
            let payload = read.into_iter().zip(&sessions).map(arrived).collect();
            Ok(RunOutcome { host, telemetry, payload, sessions })
        })
    }
}

fn stop_of(
    scenario: &Scenario,
    address_plan: &AddressPlan,
    flow: usize,
    began: Instant,
) -> Instant {
    let stop_s = scenario.groups[address_plan.flows[flow].group].stop_s;
    began + Duration::from_secs_f64(stop_s)
}

/// The readings of the proxies for a tunnel, of the kernel for any other connection.
fn telemetry_by_connection(
    scenario: &Scenario,
    address_plan: &AddressPlan,
    read: &[(Vec<telemetry::Payload>, ConnectionTelemetry)],
    mut polled: Vec<HashMap<usize, ConnectionTelemetry>>,
) -> Vec<ConnectionTelemetry> {
    let of = |(index, connection): (usize, &LinkConnection)| {
        if scenario.groups[connection.group].via != Via::Proxy {
            return connection.flows.first().map(|flow| read[*flow].1.clone()).unwrap_or_default();
        }
        let [server, client] = [0, 1].map(|end| {
            let telemetry = polled.get_mut(end).and_then(|of_end| of_end.remove(&index));
            telemetry.unwrap_or_default()
        });
        match scenario.groups[connection.group].upwards {
            false => ConnectionTelemetry { receiver: client.receiver, ..server },
            true => ConnectionTelemetry { receiver: server.receiver, ..client },
        }
    };
    address_plan.connections.iter().enumerate().map(of).collect()
}

/// Sets the flag when it is dropped.
struct EndSignal<'a>(&'a AtomicBool);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
