//! How evenly the tunnel's packets leave: arrival times at the far end of the cable.

use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millrace_lab::netns::Namespace;
use nix::sys::socket::sockopt;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use crate::arena::{Arena, INTERFACE};
use crate::measure::pause;
use crate::origin::{Origin, UNLIMITED_BYTES};
use crate::settings::BenchSettings;
use crate::sink::{self, Bulk};
use crate::tunnel_config::TUNNEL;
use crate::variant::{BenchVariant, Way};

/// Packets closer than this left together: at 1 Gbit/s one full packet takes 12 microseconds.
const TOGETHER: Duration = Duration::from_micros(10);
/// The window in which bytes are counted.
const WINDOW: Duration = Duration::from_millis(1);
/// Fewer messages say nothing of a flow that is alone.
const LEAST_MESSAGES: usize = 100;
/// Ethernet, IPv4 without options, UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;

/// A run of `millrace-bench pace`.
#[derive(Debug, Clone, Serialize)]
pub struct PaceRun {
    /// From 1.
    pub round: usize,
    /// How even the flow was.
    #[serde(flatten)]
    pub pacing: Pacing,
    /// CPU seconds of the sending proxy for a second of sending.
    pub sender_cpu: f64,
}

/// How even a paced flow was.
#[derive(Debug, Clone, Serialize)]
pub struct Pacing {
    /// What was asked for, in Mbit/s of UDP payload.
    pub asked_mbps: f64,
    /// What came, in Mbit/s of UDP payload.
    pub came_mbps: f64,
    /// `came / asked - 1`.
    pub rate_error: f64,
    /// Bytes that arrived together, in microseconds of the rate asked for: median, 99th percentile
    /// (both over bytes) and largest.
    pub burst_us: Spread,
    /// Bytes in the millisecond that starts with a packet, over those that the rate has in it.
    pub per_ms: Spread,
    /// How far the time between two messages is from that which the rate gives the first of them, in microseconds.
    pub gap_error_us: Spread,
}

/// Of many values.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// One message as the interface delivered it; with segmentation offload several packets.
#[derive(Debug, Clone, Copy)]
struct ReceivedMessage {
    at: Duration,
    bytes: usize,
}

/// Sends one flow at `rate_mbps` for `duration` and captures what arrives.
///
/// # Errors
/// When the variant doesn't start, or hardly anything arrives.
pub fn measure(
    round: usize,
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
    rate_mbps: f64,
    [warmup, duration]: [Duration; 2],
) -> Result<PaceRun> {
    let settings = BenchSettings { rate_mbps: Some(rate_mbps), ..settings.clone() };
    let mut way = Way::start(BenchVariant::Millrace, arena, origin, &settings)?;
    let bulk = Bulk::start(vec![sink::open(&arena.client, way.listener, UNLIMITED_BYTES)?])?;
    pause(warmup)?;
    let server = way.parts.iter().find(|part| part.role == "server").context("no server")?;
    let pid = server.process.pid();
    let cpu_before = crate::cpu::group(pid)?;
    let pacing = capture(&arena.client, TUNNEL, rate_mbps, duration, LEAST_MESSAGES)?;
    let sender_cpu = crate::cpu::group(pid)?.since(cpu_before).total() / duration.as_secs_f64();
    way.must_run()?;
    bulk.finish()?;
    Ok(PaceRun { round, pacing, sender_cpu })
}

/// Captures for `duration` what arrives from `source`, where a flow sends at `rate_mbps`.
///
/// # Errors
/// When less than `least_messages` arrive.
pub fn capture(
    host: &Namespace,
    source: SocketAddrV4,
    rate_mbps: f64,
    duration: Duration,
    least_messages: usize,
) -> Result<Pacing> {
    let socket = open_capture(host, source.port())?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || read_all(&socket, source, &stopped));
    let paused = pause(duration);
    stop.store(true, Ordering::Relaxed);
    let arrivals = match thread.join() {
        Ok(arrivals) => arrivals?,
        Err(_) => bail!("the capturing thread panicked"),
    };
    paused?;
    evaluate(&arrivals, rate_mbps, least_messages)
}

fn evaluate(
    arrivals: &[ReceivedMessage],
    asked_mbps: f64,
    least_messages: usize,
) -> Result<Pacing> {
    ensure!(
        arrivals.len() >= least_messages,
        "only {} messages of the tunnel arrived",
        arrivals.len()
    );
    let bytes_per_s = asked_mbps * 1e6 / 8.0;
    let span = arrivals[arrivals.len() - 1].at - arrivals[0].at;
    // The first message marks the start of the time, its bytes came before.
    let bytes: usize = arrivals[1..].iter().map(|arrival| arrival.bytes).sum();
    let came_mbps = bytes as f64 * 8e-6 / span.as_secs_f64();
    let trains = trains(arrivals).into_iter();
    let burst_us = trains.map(|bytes| (bytes as f64 / bytes_per_s * 1e6, bytes)).collect();
    let rate_in_window = bytes_per_s * WINDOW.as_secs_f64();
    let windows = windows(arrivals).into_iter();
    let per_ms = windows.map(|bytes| (bytes as f64 / rate_in_window, 1)).collect();
    let gap_error_us = arrivals.windows(2).map(|pair| {
        let rate_s = pair[0].bytes as f64 / bytes_per_s;
        (((pair[1].at - pair[0].at).as_secs_f64() - rate_s).abs() * 1e6, 1)
    });
    Ok(Pacing {
        asked_mbps,
        came_mbps,
        rate_error: came_mbps / asked_mbps - 1.0,
        burst_us: spread(burst_us)?,
        per_ms: spread(per_ms)?,
        gap_error_us: spread(gap_error_us.collect())?,
    })
}

/// Bytes of messages with less than [`TOGETHER`] from one to the next.
fn trains(arrivals: &[ReceivedMessage]) -> Vec<usize> {
    let mut trains = Vec::new();
    let mut last: Option<Duration> = None;
    for arrival in arrivals {
        match (last, trains.last_mut()) {
            (Some(at), Some(train)) if arrival.at - at < TOGETHER => *train += arrival.bytes,
            _ => trains.push(arrival.bytes),
        }
        last = Some(arrival.at);
    }
    trains
}

/// Bytes in the window that starts with each arrival, as far as the capture goes on long enough.
fn windows(arrivals: &[ReceivedMessage]) -> Vec<usize> {
    let Some(end) = arrivals.last() else { return Vec::new() };
    let mut windows = Vec::new();
    let (mut next, mut bytes) = (0, 0);
    for first in arrivals {
        if first.at + WINDOW > end.at {
            break;
        }
        while arrivals[next].at < first.at + WINDOW {
            bytes += arrivals[next].bytes;
            next += 1;
        }
        windows.push(bytes);
        bytes -= first.bytes;
    }
    windows
}

/// Percentiles of values with weights.
fn spread(mut values: Vec<(f64, usize)>) -> Result<Spread> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: usize = values.iter().map(|(_, weight)| weight).sum();
    let at = |part: f64| {
        let mut seen = 0;
        values.iter().find_map(|(value, weight)| {
            seen += weight;
            (seen as f64 >= part * total as f64).then_some(*value)
        })
    };
    let max = values.last().context("nothing was captured")?.0;
    Ok(Spread { p50: at(0.5).unwrap_or(max), p99: at(0.99).unwrap_or(max), max })
}

/// A packet socket on the client's end of the cable, with kernel timestamps, that takes UDP from one port.
fn open_capture(host: &Namespace, source_port: u16) -> Result<Socket> {
    host.inside(|| {
        let ethertype = u16::try_from(libc::ETH_P_IP)?.to_be();
        let protocol = Protocol::from(i32::from(ethertype));
        let socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).context("packet socket")?;
        let index = nix::net::if_::if_nametoindex(INTERFACE)?;
        // SAFETY: all-zero is valid for these plain integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET)?;
        address.sll_protocol = ethertype;
        address.sll_ifindex = i32::try_from(index)?;
        // SAFETY: the pointer describes `address`, which outlives the call.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(std::io::Error::last_os_error()).context("bind packet socket");
        }
        attach_filter(&socket, source_port)?;
        nix::sys::socket::setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20))?;
        nix::sys::socket::setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(socket)
    })
}

/// Lets the kernel throw away everything but UDP from this port: the rest would cost a copy each.
fn attach_filter(socket: &Socket, source_port: u16) -> Result<()> {
    // Classic BPF (Documentation/networking/filter.rst): opcode, jumps, operand.
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_HALF, 0, 0, 12),
        step(JUMP_EQUAL, 0, 5, u32::try_from(libc::ETH_P_IP)?),
        step(LOAD_BYTE, 0, 0, 23),
        step(JUMP_EQUAL, 0, 3, u32::try_from(libc::IPPROTO_UDP)?),
        step(LOAD_HALF, 0, 0, 34),
        step(JUMP_EQUAL, 0, 1, u32::from(source_port)),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ];
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len())?, filter: program.as_mut_ptr() };
    // SAFETY: the pointer describes `filter`, whose program outlives the call; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error()).context("filter of the packet socket");
    }
    Ok(())
}

fn read_all(
    capture: &Socket,
    source: SocketAddrV4,
    stop: &AtomicBool,
) -> Result<Vec<ReceivedMessage>> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut arrivals: Vec<ReceivedMessage> = Vec::with_capacity(1 << 18);
    let mut head = [0_u8; HEADER_BYTES];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let opened = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        ensure!(opened.elapsed() < Duration::from_secs(700), "the capture was not stopped");
        let mut parts = [std::io::IoSliceMut::new(&mut head)];
        // With MSG_TRUNC the answer is the message's length, however little fits.
        let flags = MsgFlags::MSG_TRUNC;
        let message =
            match recvmsg::<()>(capture.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                Ok(message) => message,
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error).context("capture"),
            };
        let length = message.bytes;
        let mut at = None;
        for header in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(time) = header {
                at = Some(Duration::from(time));
            }
        }
        if is_from(source, &head) {
            let at = at.context("a packet without timestamp")?;
            arrivals.push(ReceivedMessage { at, bytes: length.saturating_sub(HEADER_BYTES) });
        }
    }
    // Packets that came in on different cores may be read out of the order of their times.
    arrivals.sort_by_key(|arrival| arrival.at);
    Ok(arrivals)
}

/// UDP from `expected`, in an IPv4 packet without options.
fn is_from(expected: SocketAddrV4, head: &[u8; HEADER_BYTES]) -> bool {
    let [version, protocol] = [head[14], head[23]];
    let source: [u8; 4] = [head[26], head[27], head[28], head[29]];
    let port = u16::from_be_bytes([head[34], head[35]]);
    version == 0x45
        && i32::from(protocol) == libc::IPPROTO_UDP
        && source == expected.ip().octets()
        && port == expected.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(gap_us: u64, bytes: usize, count: u64) -> Vec<ReceivedMessage> {
        (0..count)
            .map(|i| ReceivedMessage { at: Duration::from_micros(i * gap_us), bytes })
            .collect()
    }

    #[test]
    fn an_even_flow_has_bursts_of_one_packet() {
        // 1250 bytes every 100 microseconds are 100 Mbit/s.
        let pacing = evaluate(&every(100, 1250, 5000), 100.0, LEAST_MESSAGES).unwrap();
        assert!(pacing.rate_error.abs() < 1e-6, "{pacing:?}");
        assert!((pacing.burst_us.max - 100.0).abs() < 1e-6, "{pacing:?}");
        assert!((pacing.per_ms.max - 1.0).abs() < 1e-6, "{pacing:?}");
        assert!(pacing.gap_error_us.max < 1e-6, "{pacing:?}");
    }

    #[test]
    fn what_comes_together_is_one_burst() {
        // The same rate, twenty packets at a time.
        let arrivals: Vec<ReceivedMessage> = (0..5000_u64)
            .map(|i| {
                let at = Duration::from_micros(i / 20 * 2000 + i % 20);
                ReceivedMessage { at, bytes: 1250 }
            })
            .collect();
        let pacing = evaluate(&arrivals, 100.0, LEAST_MESSAGES).unwrap();
        assert!((pacing.burst_us.p50 - 2000.0).abs() < 1e-6, "{pacing:?}");
        assert!((pacing.per_ms.max - 2.0).abs() < 1e-6, "{pacing:?}");
        // Nineteen of twenty leave 99 us early, one 1881 us late.
        assert!((pacing.gap_error_us.p50 - 99.0).abs() < 1e-6, "{pacing:?}");
        assert!((pacing.gap_error_us.max - 1881.0).abs() < 1e-6, "{pacing:?}");
    }
}
