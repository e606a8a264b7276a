//! From a scenario to a setup of the simulator.

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::careful_resume::{CarefulResumeConfig, SavedPath};
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{Bandwidth, ControllerConfig, Tuning};
use millrace_sim::{
    AckPolicy, BitrateLadder, BitrateStrategy, DataSource, EncoderSetup, FlowSetup, LinkChange,
    LinkRate, LinkSetup, Order, PlayerSetup, RandomLinkChange, Setup,
};
use serde_json::{Map, Value};

use super::external::ExternalControllers;
use super::mcc;
use crate::measure::SAMPLE_S;
use crate::runner::NotDone;
use crate::scenario::{
    self, Abr, App, FlowGroup, GroupConnections, SavedParameters, Scenario, Sim, Via,
};
use crate::traces::Traces;

/// The simulator's setup of one run of `scenario`.
///
/// # Errors
/// When something that it needs is missing, or only the emulator has it.
pub fn setup(
    scenario: &Scenario,
    seed: u64,
    traces: &Traces,
    externals: &ExternalControllers<'_>,
) -> Result<Setup, NotDone> {
    let mut flows = Vec::new();
    for group in &scenario.groups {
        flows.extend(flows_of(group, &scenario.sim, externals)?);
    }
    let setup = Setup { flows, ..link_setup(scenario, seed, traces)? };
    setup.validate().map_err(|error| NotDone::Failed(error.to_string()))?;
    Ok(setup)
}

/// The setup of one run of `scenario` without its flows.
///
/// # Errors
/// When something that it needs is missing, or a value is out of range.
pub fn link_setup(scenario: &Scenario, seed: u64, traces: &Traces) -> Result<Setup, NotDone> {
    let link = &scenario.link;
    let first = LinkSetup {
        rate: traces.link_rate(&link.rate)?,
        rtt: ms(link.rtt_ms),
        buffer_bytes: link.buffer_bytes,
        loss: link.loss,
        loss_reverse: link.loss_reverse,
        jitter: ms(link.jitter_ms),
        reorder: link.reorder,
    };
    let mut setup = Setup::new(first, Vec::new(), s(scenario.duration_s));
    setup.warmup = s(scenario.warmup_s);
    setup.seed = seed;
    setup.sample_every = s(SAMPLE_S);
    setup.changes = link.change.iter().map(change).collect();
    setup.random_change = link.random_change.as_ref().map(random_change);
    setup.validate_without_flows().map_err(|error| NotDone::Failed(error.to_string()))?;
    Ok(setup)
}

fn change(change: &scenario::TimedLinkChange) -> (Duration, LinkChange) {
    let to = LinkChange {
        rate: change.rate_mbps.map(|rate| LinkRate::Constant(Bandwidth::from_mbps(rate))),
        rtt: change.rtt_ms.map(ms),
        buffer_bytes: change.buffer_bytes,
        loss: change.loss,
        ..LinkChange::default()
    };
    (s(change.at_s), to)
}

fn random_change(change: &scenario::RandomChange) -> RandomLinkChange {
    let rate = |[low, high]: [f64; 2]| Bandwidth::from_mbps(low)..=Bandwidth::from_mbps(high);
    RandomLinkChange {
        every: s(change.every_s),
        rate: change.rate_mbps.map(rate),
        rtt: change.rtt_ms.map(|[low, high]| ms(low)..=ms(high)),
        loss: change.loss.map(|[low, high]| low..=high),
    }
}

fn flows_of(
    group: &FlowGroup,
    sim: &Sim,
    externals: &ExternalControllers<'_>,
) -> Result<Vec<FlowSetup>, NotDone> {
    let emulator_only = match group.via {
        Via::Proxy | Via::External => None,
        Via::Direct => Some("the kernel's TCP runs"),
        Via::Peer => Some("other programs run"),
    };
    if let Some(what) = emulator_only {
        return Err(NotDone::Skipped(format!("{}: {what} in the emulator only", group.cc)));
    }
    if group.connections == GroupConnections::Shared && group.count > 1 {
        let problem = "flows that share a connection run in the emulator only";
        return Err(NotDone::Skipped(problem.to_owned()));
    }
    if group.upwards {
        let problem = "the simulator's flows go in the direction of the data only";
        return Err(NotDone::Skipped(problem.to_owned()));
    }
    let algorithm = match group.via {
        Via::External => externals.settings(group)?,
        _ => controller(&group.cc, &group.parameters)?,
    };
    let algorithm = match group.path.saved {
        Some(SavedParameters { window_bytes, rtt_ms }) => {
            let saved = SavedPath { window_bytes, rtt: ms(rtt_ms) };
            Arc::new(CarefulResumeConfig::new(algorithm, saved))
        }
        None => algorithm,
    };
    let mut flow = FlowSetup::bulk(algorithm);
    flow.source = source(&group.app)?;
    flow.caps_player_rate = matches!(group.app, App::Dash { rate_cap: true, .. });
    flow.stop = Some(s(group.stop_s));
    flow.extra_rtt = ms(group.path.extra_rtt_ms);
    flow.packet_bytes = sim.packet_bytes;
    flow.initial_window_packets = sim.initial_window_packets;
    flow.ack = AckPolicy {
        // In range by the schema.
        every: u32::try_from(sim.ack_every).unwrap_or(u32::MAX),
        max_delay: ms(sim.ack_delay_ms),
        aggregation: ms(sim.ack_aggregation_ms),
    };
    for change in &group.change {
        let share = change.share.map(Tuning::Share);
        let above =
            change.yield_above_mbps.map(|rate| Tuning::YieldAbove(Bandwidth::from_mbps(rate)));
        let to = change.cc.as_ref().map(|cc| controller(cc, &change.parameters)).transpose()?;
        let orders = to.map(Order::Migrate).into_iter();
        let orders = orders.chain(share.into_iter().chain(above).map(Order::Tune));
        flow.orders.extend(orders.map(|order| (s(change.at_s), order)));
    }
    let with_start = |number| FlowSetup { start: s(group.start_of_s(number)), ..flow.clone() };
    Ok((0..group.count).map(with_start).collect())
}

fn source(app: &App) -> Result<DataSource, NotDone> {
    Ok(match *app {
        App::Bulk => DataSource::Bulk,
        App::OnOff { segment_bytes, every_s } => {
            DataSource::Segments { bytes: segment_bytes, period: s(every_s) }
        }
        App::Encoder(encoder) => DataSource::Encoder(EncoderSetup {
            frame_time: s(1.0 / encoder.frames_per_s),
            rate_share: encoder.rate_share,
            min_rate: Bandwidth::from_mbps(encoder.min_mbps),
            max_rate: Bandwidth::from_mbps(encoder.max_mbps),
            key_frame_every: encoder.key_frame_every,
            key_frame_ratio: encoder.key_frame_ratio,
        }),
        App::Dash { abr, buffer_s, fast_switch, .. } => DataSource::Player(Arc::new(PlayerSetup {
            ladder: Arc::new(BitrateLadder::recorded()),
            strategy: strategy(abr)?,
            buffer_target: s(buffer_s),
            fast_switch,
        })),
        App::Rtsp { .. } => {
            let problem = "players of streams run in the emulator only";
            return Err(NotDone::Skipped(problem.to_owned()));
        }
    })
}

fn strategy(abr: Abr) -> Result<BitrateStrategy, NotDone> {
    match abr {
        Abr::Throughput => Ok(BitrateStrategy::Throughput),
        Abr::Bola => Ok(BitrateStrategy::Bola),
        Abr::Dynamic => Ok(BitrateStrategy::Dynamic),
        Abr::L2a | Abr::Lolp => {
            let problem = format!("abr = \"{}\" runs in the emulator only", abr.name());
            Err(NotDone::Skipped(problem))
        }
    }
}

fn controller(
    name: &str,
    parameters: &Map<String, Value>,
) -> Result<Arc<dyn ControllerConfig>, NotDone> {
    if name == mcc::NAME {
        return mcc::initial(&mcc::config(parameters)?);
    }
    let spec = Spec { name: name.to_owned(), parameters: parameters.clone() };
    match registry::find(&spec) {
        Ok(Algorithm::Controller(algorithm)) => Ok(algorithm),
        Ok(Algorithm::Transport { name, .. }) => {
            let problem = format!("{name} is the QUIC stack's own and runs in the emulator only");
            Err(NotDone::Skipped(problem))
        }
        Err(error) => Err(NotDone::Failed(error.to_string())),
    }
}

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn ms(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}
