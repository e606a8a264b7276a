//! Calibration of the emulated link: UDP packets of known size and time, sent from origin to player and
//! measured by the receiving kernel's stamps.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::emulator::sched;
use crate::emulator::stats::{Durations, Quantiles};
use crate::emulator::{EmulatorReport, LinkConfig};
use crate::interrupt;
use crate::topology::{ORIGIN, PLAYER, Topology};

/// IPv4 and UDP headers, which the link counts and the socket does not.
const HEADER_BYTES: usize = 28;

/// A packet of 1500 bytes on the link.
const PAYLOAD_BYTES: usize = 1500 - HEADER_BYTES;

/// Bridges times in which the receiving thread falls behind the link.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

/// How far the emulator's two clocks may be read apart.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 2_000;

/// Measured and configured properties of the link.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// Rate asked for, in Mbit/s.
    pub rate_mbps: f64,
    /// Rate at which a link that was offered 1.3 times as much delivered, in Mbit/s.
    pub measured_mbps: f64,
    /// One-way delay of a lone packet, serialisation included, in microseconds.
    pub delay_us: f64,
    /// How far lone packets' delays were above `delay_us`.
    pub delay_error: Quantiles,
    /// Loss probability asked for.
    pub loss: f64,
    /// Packets offered to the random loss.
    pub offered: u64,
    /// Packets that it took, seen by the receiver.
    pub lost: u64,
    /// Distance from the expectation in standard deviations.
    pub loss_z: f64,
    /// Packets that an ideal queue, fed with the senders' stamps, refuses where more is offered than
    /// fits.
    pub ideal_drops: u64,
    /// Packets that were refused there.
    pub drops: u64,
    /// The emulator's reports of the three parts: delay, loss, rate.
    pub emulator: Vec<EmulatorReport>,
}

impl Calibration {
    /// What is outside the tolerances: rate 0.5 %, delay error p50 0.15 ms and p99 0.5 ms,
    /// loss within four standard deviations, drops within two packets, emulator valid.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let error = self.measured_mbps / self.rate_mbps - 1.0;
        if error.abs() > 0.005 {
            faults.push(format!("rate off by {:.2} %", error * 100.0));
        }
        if self.delay_error.p50_us > 150.0 || self.delay_error.p99_us > 500.0 {
            let (p50, p99) = (self.delay_error.p50_us, self.delay_error.p99_us);
            faults.push(format!("delay error p50 {p50:.0} us, p99 {p99:.0} us"));
        }
        if self.loss_z.abs() > 4.0 {
            faults.push(format!("loss off by {:.1} standard deviations", self.loss_z));
        }
        if self.drops.abs_diff(self.ideal_drops) > 2 {
            let (drops, ideal) = (self.drops, self.ideal_drops);
            faults.push(format!("{drops} packets dropped, an ideal queue drops {ideal}"));
        }
        for report in &self.emulator {
            faults.extend(report.invalid.iter().cloned());
        }
        faults
    }
}

/// Measures `link` on `topology`, about `duration` in all.
///
/// # Errors
/// When a socket fails, nothing arrives, or on Ctrl-C.
pub fn run(topology: &Topology, link: LinkConfig, duration: Duration) -> Result<Calibration> {
    let third = duration / 3;
    let probe = Probe::open(topology)?;
    let clean = |mut link: LinkConfig| {
        link.down.loss = 0.0;
        link
    };

    // Delay: packets far enough apart that none waits for another.
    let rate_bps = link.down.rate_bps;
    let packet_ns = 1500 * 8 * 1_000_000_000 / rate_bps;
    let gap = Duration::from_nanos(3 * packet_ns).max(Duration::from_millis(2));
    let emulator = topology.start_link(clean(link))?;
    let lone = probe.stream(third, gap, link)?;
    let mut emulated = vec![emulator.finish()?];
    let delay_ns = link.down.delay_ns + packet_ns;
    let mut delay_error = Durations::default();
    for packet in &lone.arrived {
        delay_error.record((packet.received_ns - packet.sent_ns).saturating_sub(delay_ns));
    }
    let early =
        |it: &&ProbeArrival| it.received_ns - it.sent_ns + MAX_CLOCK_DIFFERENCE_NS < delay_ns;
    if let Some(early) = lone.arrived.iter().find(early) {
        let by_us = (delay_ns + early.sent_ns - early.received_ns) as f64 / 1e3;
        bail!("packet {} arrived {by_us:.1} us before the link's delay had passed", early.number);
    }

    // Loss: half the rate needs no room in the buffer. A sender that was delayed by other programs catches up
    // in bursts, which may; the emulator counts those drops.
    let emulator = topology.start_link(link)?;
    let lossy = probe.stream(third, Duration::from_nanos(2 * packet_ns), link)?;
    emulated.push(emulator.finish()?);
    let dropped = emulated[1].down.counters.dropped_packets;
    let offered = lossy.sent_ns.len() as u64;
    let lost = (offered - lossy.arrived.len() as u64).saturating_sub(dropped);
    let expected = offered as f64 * link.down.loss;
    let deviation = (expected * (1.0 - link.down.loss)).sqrt();
    let loss_z = if deviation > 0.0 { (lost as f64 - expected) / deviation } else { lost as f64 };

    // Rate: more than fits.
    let emulator = topology.start_link(clean(link))?;
    let full = probe.stream(third, Duration::from_nanos(packet_ns * 10 / 13), link)?;
    emulated.push(emulator.finish()?);
    // Until the queue has grown, a sender that oversleeps leaves the line idle.
    let busy = &full.arrived[full.arrived.len() / 4..];
    let (Some(first), Some(last)) = (busy.first(), busy.last()) else {
        bail!("nothing crossed the link");
    };
    let bits = (busy.len() - 1) as f64 * 1500.0 * 8.0;
    let ideal_drops = ideal_drops(&full.sent_ns, packet_ns, link.down.buffer_bytes / 1500);
    Ok(Calibration {
        rate_mbps: rate_bps as f64 / 1e6,
        measured_mbps: bits * 1e3 / (last.received_ns - first.received_ns) as f64,
        delay_us: delay_ns as f64 / 1e3,
        delay_error: delay_error.summary(),
        loss: link.down.loss,
        offered,
        lost,
        loss_z,
        ideal_drops,
        drops: full.sent_ns.len() as u64 - full.arrived.len() as u64,
        emulator: emulated,
    })
}

/// How many of packets that arrive at these moments a queue refuses in which so many may wait, each
/// of which takes `packet_ns` on the line. Shares nothing with the emulator's own queue.
fn ideal_drops(arrivals_ns: &[u64], packet_ns: u64, most_waiting: u64) -> u64 {
    // When each packet that was let in is on the line.
    let mut starts_ns: VecDeque<u64> = VecDeque::new();
    let (mut free_ns, mut drops) = (0, 0);
    for at_ns in arrivals_ns {
        while starts_ns.front().is_some_and(|start_ns| start_ns <= at_ns) {
            starts_ns.pop_front();
        }
        if starts_ns.len() as u64 >= most_waiting && free_ns > *at_ns {
            drops += 1;
            continue;
        }
        let start_ns = free_ns.max(*at_ns);
        free_ns = start_ns + packet_ns;
        starts_ns.push_back(start_ns);
    }
    drops
}

struct ProbeArrival {
    number: u64,
    sent_ns: u64,
    received_ns: u64,
}

struct ProbeStream {
    /// When each was sent.
    sent_ns: Vec<u64>,
    arrived: Vec<ProbeArrival>,
}

struct Probe {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

impl Probe {
    fn open(topology: &Topology) -> Result<Self> {
        let receiver = topology.player.inside(|| Ok(UdpSocket::bind((PLAYER, 0))?))?;
        let sender = topology.origin.inside(|| Ok(UdpSocket::bind((ORIGIN, 0))?))?;
        let to = receiver.local_addr()?;
        receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
        // What its thread can't read in time isn't the link's loss.
        setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
        setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { sender, receiver, to })
    }

    /// Sends a packet every `gap` for `duration`, then waits for the last to arrive.
    fn stream(&self, duration: Duration, gap: Duration, link: LinkConfig) -> Result<ProbeStream> {
        self.resolve(link)?;
        let drain_ns = link.down.buffer_bytes * 8 * 1_000_000_000 / link.down.rate_bps;
        let settle =
            Duration::from_nanos(link.down.delay_ns + drain_ns) + Duration::from_millis(200);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(move || self.receive(duration + settle));
            let sending = scope.spawn(move || self.send(duration, gap));
            let sent_ns = sending.join().map_err(|_| anyhow::anyhow!("sender panicked"))??;
            let arrived = receiving.join().map_err(|_| anyhow::anyhow!("receiver panicked"))??;
            Ok(ProbeStream { sent_ns, arrived })
        })
    }

    /// Sends until one packet has crossed: the hosts' neighbour tables are then filled.
    fn resolve(&self, link: LinkConfig) -> Result<()> {
        let mut room = [0; 2048];
        let at_most = Duration::from_nanos(link.down.delay_ns) + Duration::from_secs(5);
        let crossed = interrupt::wait_for(at_most, || {
            self.sender.send_to(&[0; 1], self.to)?;
            match self.receiver.recv(&mut room) {
                Ok(_) => Ok(Some(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error.into()),
            }
        })?;
        crossed.context("no packet crossed the link")?;
        // The others on their way.
        let end = Instant::now() + Duration::from_nanos(link.down.delay_ns) * 2;
        while Instant::now() < end {
            self.receiver.recv(&mut room).ok();
        }
        Ok(())
    }

    fn send(&self, duration: Duration, gap: Duration) -> Result<Vec<u64>> {
        // Time between the stamp in a packet and its sending would count as the link's.
        sched::raise(true);
        let mut packet = [0; PAYLOAD_BYTES];
        let started = Instant::now();
        let mut all_sent_ns = Vec::new();
        loop {
            let number = all_sent_ns.len() as u64;
            let due = gap * u32::try_from(number)?;
            if due >= duration {
                return Ok(all_sent_ns);
            }
            if let Some(early) = due.checked_sub(started.elapsed()) {
                std::thread::sleep(early);
            }
            interrupt::check()?;
            packet[..8].copy_from_slice(&number.to_be_bytes());
            let sent_ns = now_ns()?;
            packet[8..16].copy_from_slice(&sent_ns.to_be_bytes());
            self.sender.send_to(&packet, self.to).context("probe")?;
            all_sent_ns.push(sent_ns);
        }
    }

    fn receive(&self, duration: Duration) -> Result<Vec<ProbeArrival>> {
        let mut arrived = Vec::new();
        let mut room = [0; 2048];
        let end = Instant::now() + duration;
        loop {
            let Some((length, received_ns)) = self.receive_one(&mut room)? else {
                if Instant::now() < end {
                    continue;
                }
                return Ok(arrived);
            };
            if length == PAYLOAD_BYTES {
                let word = |at: usize| {
                    let bytes = room[at..at + 8].try_into().expect("eight bytes are eight");
                    u64::from_be_bytes(bytes)
                };
                arrived.push(ProbeArrival { number: word(0), sent_ns: word(8), received_ns });
            }
        }
    }

    /// A packet's length and when the kernel received it; `None` when none came for a while.
    fn receive_one(&self, room: &mut [u8]) -> Result<Option<(usize, u64)>> {
        let mut vectors = [IoSliceMut::new(room)];
        let mut control = nix::cmsg_space!(TimeSpec);
        let fd = self.receiver.as_raw_fd();
        let flags = MsgFlags::empty();
        let message = match recvmsg::<()>(fd, &mut vectors, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error).context("probe"),
        };
        let mut messages = message.cmsgs().context("probe")?;
        let stamp = messages.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        });
        let stamp = stamp.context("the kernel stamps no packet")?;
        Ok(Some((message.bytes, nanoseconds(stamp))))
    }
}

/// The clock of the kernel's stamps.
fn now_ns() -> Result<u64> {
    Ok(nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME)?))
}

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ideal_queue_refuses_what_finds_no_place() {
        // One on the line, two waiting; the fourth and the fifth find no place.
        assert_eq!(ideal_drops(&[0, 0, 0, 0, 0], 10, 2), 2);
        // At 10 the second is on the line, and there is a place again.
        assert_eq!(ideal_drops(&[0, 0, 0, 9, 10, 10], 10, 2), 2);
        // Twice the rate: half of it, but for what waits at the end.
        let arrivals: Vec<u64> = (0..1000).map(|number| number * 5).collect();
        assert!((497..=500).contains(&ideal_drops(&arrivals, 10, 2)));
        assert_eq!(ideal_drops(&[0, 0, 20], 10, 0), 1);
    }
}
