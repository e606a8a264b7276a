//! Memory that idle flows hold in each proxy.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::arena::Arena;
use crate::measure::pause;
use crate::origin::Origin;
use crate::settings::BenchSettings;
use crate::sink;
use crate::usage::RoleUse;
use crate::variant::{BenchVariant, Way};

/// How long the proxies get to settle before their memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// One segment of low-quality video, say.
const TRANSFER_BYTES: usize = 256 << 10;

/// Resident bytes by idle flow at each end.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PerFlow {
    /// In the client.
    pub client: f64,
    /// In the server.
    pub server: f64,
}

/// What idle flows hold.
#[derive(Debug, Clone, Serialize)]
pub struct Idle {
    /// Flows opened.
    pub flows: usize,
    /// One byte from the origin has come through each flow, nothing since.
    #[serde(flatten)]
    pub opened: PerFlow,
    /// 256 KiB have come through each flow, nothing since: a paused player.
    pub after_transfer: PerFlow,
}

/// Opens `flows` flows, and reads the resident set of both proxies before and after.
///
/// # Errors
/// When a flow can't be opened, or the descriptors that this takes are not allowed.
pub fn measure(
    flows: usize,
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
) -> Result<Idle> {
    let mut way = Way::start(BenchVariant::Millrace, arena, origin, settings)?;
    pause(SETTLE)?;
    let before = resident(&way)?;
    let mut streams = open(flows, arena, &way)?;
    pause(SETTLE)?;
    way.must_run()?;
    let opened = resident(&way)?;
    for (index, stream) in streams.iter_mut().enumerate() {
        millrace_lab::interrupt::check()?;
        std::io::Write::write_all(stream, &(TRANSFER_BYTES as u64).to_le_bytes())?;
        sink::read_exactly(stream, TRANSFER_BYTES)
            .with_context(|| format!("transfer on idle flow {index} of {flows}"))?;
    }
    pause(SETTLE)?;
    way.must_run()?;
    let transferred = resident(&way)?;
    let per_flow = |then: &PerFlow, now: &PerFlow| PerFlow {
        client: (now.client - then.client) / flows as f64,
        server: (now.server - then.server) / flows as f64,
    };
    Ok(Idle {
        flows,
        opened: per_flow(&before, &opened),
        after_transfer: per_flow(&before, &transferred),
    })
}

/// Opens `flows` flows; one byte from the origin has come through each.
///
/// # Errors
/// When one can't be opened, or on Ctrl-C.
pub fn open(flows: usize, arena: &Arena, way: &Way) -> Result<Vec<TcpStream>> {
    let one = |index| {
        millrace_lab::interrupt::check()?;
        sink::open(&arena.client, way.listener, 1)
            .and_then(|mut stream| sink::read_exactly(&mut stream, 1).map(|()| stream))
            .with_context(|| format!("idle flow {index} of {flows}"))
    };
    (0..flows).map(one).collect()
}

/// Resident bytes of both proxies.
///
/// # Errors
/// When one of them has ended.
pub fn resident(way: &Way) -> Result<PerFlow> {
    let all = RoleUse::read(way)?.resident_bytes;
    let of = |role: &str| all.get(role).copied().with_context(|| format!("no {role}"));
    Ok(PerFlow { client: of("client")?, server: of("server")? })
}
