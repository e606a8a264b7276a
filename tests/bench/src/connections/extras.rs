//! What would disturb the interval and follows it under the same load: counting system calls, and a paced flow that is
//! captured.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use millrace_lab::interrupt::Interrupted;

use super::record::{CounterReading, Extras};
use super::run_times::{CALLS_S, PACING_CAPTURE, PACING_WARMUP};
use super::system_calls;
use super::viewers::Viewers;
use crate::arena::Arena;
use crate::measure::pause;
use crate::origin::UNLIMITED_BYTES;
use crate::pacing::{self, Pacing};
use crate::sink::{self, Bulk};
use crate::tunnel_config::{PROBE_TUNNEL, probe_listener};
use crate::usage::RoleUse;
use crate::variant::{PROBE, Way};

/// Beside load many packets arrive as one message, and that is what the figure shows.
const LEAST_PACED_MESSAGES: usize = 20;

/// Measures it through `way`, with a paced flow of `pacing_mbps` unless that is 0.
///
/// # Errors
/// When a program has ended, or on Ctrl-C.
pub fn measure(arena: &Arena, pacing_mbps: f64, way: &Way, viewers: &Viewers) -> Result<Extras> {
    let calls_per_gb = calls_per_gb(arena, way, viewers)?;
    let pacing = match reason_without_pacing(pacing_mbps, way) {
        Some(reason) => Err(reason.to_owned()),
        None => match paced(arena, pacing_mbps) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            pacing => pacing.map_err(|error| format!("{error:#}")),
        },
    };
    let reading = |figure: fn(&Pacing) -> f64| match &pacing {
        Ok(pacing) => {
            CounterReading::new(figure(pacing), "kernel timestamps of a paced flow beside the load")
        }
        Err(reason) => CounterReading::missing(reason),
    };
    Ok(Extras {
        calls_per_gb,
        pacing_p99_us: reading(|it| it.gap_error_us.p99),
        pacing_rate_error: reading(|it| it.rate_error),
    })
}

/// System calls by role, over the bytes of the same time.
fn calls_per_gb(
    arena: &Arena,
    way: &Way,
    viewers: &Viewers,
) -> Result<BTreeMap<String, CounterReading>> {
    let mut pids = RoleUse::read(way)?.pids;
    pids.remove(PROBE);
    let received = || viewers.received().iter().sum::<u64>();
    let (started, before) = (Instant::now(), received());
    let mut calls = system_calls::per_second(&pids, CALLS_S, arena.run.scratch())?;
    let gigabytes = (received() - before) as f64 * 1e-9;
    let gigabytes_per_s = gigabytes / started.elapsed().as_secs_f64();
    for reading in calls.values_mut() {
        if gigabytes_per_s > 0.0 {
            reading.value = reading.value.map(|per_s| per_s / gigabytes_per_s);
        } else {
            *reading = CounterReading::missing("no byte arrived while calls were counted");
        }
    }
    Ok(calls)
}

fn reason_without_pacing(rate_mbps: f64, way: &Way) -> Option<&'static str> {
    if rate_mbps <= 0.0 {
        Some("--pacing-mbps 0")
    } else if way.parts.iter().all(|part| part.role != PROBE) {
        Some("only Millrace's rate can be set")
    } else {
        None
    }
}

fn paced(arena: &Arena, rate_mbps: f64) -> Result<Pacing> {
    let host = &arena.client;
    let flow = sink::open(host, probe_listener().into(), UNLIMITED_BYTES)?;
    let flow = Bulk::start(vec![flow])?;
    pause(PACING_WARMUP)?;
    let pacing =
        pacing::capture(host, PROBE_TUNNEL, rate_mbps, PACING_CAPTURE, LEAST_PACED_MESSAGES)?;
    flow.finish()?;
    Ok(pacing)
}
