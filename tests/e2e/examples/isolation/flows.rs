//! The active flow, and those that stand still beside it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_e2e::{tcp, wait};
use socket2::Socket;

use crate::cell::Background;
use crate::site::{Entry, Site};

/// First byte of a flow: the origin sends without end.
const DOWNLOAD: u8 = b'D';
/// The same from a small send buffer: the origin of a thousand flows that stand still is another host elsewhere, and here
/// its buffers would take most of the memory that the kernel has for TCP (tcp(7), `tcp_mem`).
const STANDING_DOWNLOAD: u8 = b'S';
/// That buffer; the kernel doubles it. Between origin and server there is no delay.
const STANDING_SEND_BUFFER_BYTES: usize = 128 << 10;
/// The origin reads what comes.
const UPLOAD: u8 = b'U';
/// The origin reads as many bytes as the next eight bytes say (big-endian), and then no more.
const PAUSED_UPLOAD: u8 = b'P';

/// What all flows together read before they stand still: enough that windows have grown.
const READ_BEFORE_PAUSE_TOTAL_BYTES: u64 = 16 << 20;
/// The most that one of them reads: a progressive player's first buffer.
const READ_BEFORE_PAUSE_BYTES: u64 = 4 << 20;
/// Flows that are so few begin one after the other, so that each has had the whole link and a window
/// that fits.
const MAX_OPENED_ONE_BY_ONE: usize = 4;
/// Bytes of one read or write.
const CHUNK_BYTES: usize = 64 << 10;
/// A slow viewer's bytes in each turn of [`TURN`]: 1 kB/s.
const SLOW_READ_BYTES: usize = 100;
const TURN: Duration = Duration::from_millis(100);

/// What the origin does with a flow.
pub fn serve(mut flow: Socket, received: &AtomicU64, stopped: &AtomicBool) {
    let mut chunk = vec![0x5a; CHUNK_BYTES];
    let mut kind = [0];
    let endless = flow.set_read_timeout(None).and_then(|()| flow.set_write_timeout(None));
    if endless.is_err() || flow.read_exact(&mut kind).is_err() {
        return;
    }
    match kind[0] {
        DOWNLOAD => while flow.write_all(&chunk).is_ok() {},
        STANDING_DOWNLOAD => {
            if flow.set_send_buffer_size(STANDING_SEND_BUFFER_BYTES).is_ok() {
                while flow.write_all(&chunk).is_ok() {}
            }
        }
        UPLOAD => {
            while let Ok(read @ 1..) = flow.read(&mut chunk) {
                received.fetch_add(read as u64, Ordering::Relaxed);
            }
        }
        _ => {
            let mut count = [0; 8];
            if flow.read_exact(&mut count).is_err() {
                return;
            }
            let mut left = u64::from_be_bytes(count);
            while left > 0 {
                let most = chunk.len().min(left as usize);
                match flow.read(&mut chunk[..most]) {
                    Ok(read @ 1..) => left -= read as u64,
                    _ => return,
                }
            }
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(TURN);
            }
        }
    }
}

/// Opens flows at once: over a long path each takes a round trip.
fn open_all(
    site: &Site,
    entry: Entry,
    destination: SocketAddr,
    numbers: Range<usize>,
) -> Result<Vec<Socket>> {
    let asked = numbers.map(|number| site.ask(entry, destination, number));
    let sockets = asked.collect::<Result<Vec<_>>>()?;
    for (number, socket) in sockets.iter().enumerate() {
        site.answered(socket, destination).with_context(|| format!("flow {number}"))?;
    }
    Ok(sockets)
}

fn begin(
    mut socket: &Socket,
    kind: u8,
    background: Background,
    most_read: u64,
) -> std::io::Result<()> {
    socket.write_all(&[kind])?;
    if kind == PAUSED_UPLOAD {
        socket.write_all(&most_read.to_be_bytes())?;
    }
    if background == Background::HalfClosed {
        socket.shutdown(Shutdown::Write)?;
    }
    socket.set_nonblocking(true)
}

/// Flows that stand still. They end when this is dropped.
pub struct Standing {
    stop: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
    thread: Option<JoinHandle<usize>>,
}

impl Standing {
    /// Opens `count` of them, and lets them do what `background` says.
    pub fn start(site: &Site, background: Background, count: usize) -> Result<Self> {
        let (entry, destination, kind) = match background {
            Background::Bypassed => (Entry::Bypass, site.origin(), DOWNLOAD),
            Background::NotConnected => (Entry::Tunnel, site.black_hole(), UPLOAD),
            Background::PausedOrigin => (Entry::Tunnel, site.origin(), PAUSED_UPLOAD),
            _ => (Entry::Tunnel, site.origin(), STANDING_DOWNLOAD),
        };
        let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (give, given) = mpsc::channel();
        let turns = Turns {
            most_read: READ_BEFORE_PAUSE_BYTES.min(READ_BEFORE_PAUSE_TOTAL_BYTES / count as u64),
            background,
            stop: stop.clone(),
            moved: moved.clone(),
        };
        let one_by_one = count <= MAX_OPENED_ONE_BY_ONE && background != Background::NotConnected;
        let most_read = turns.most_read;
        let thread = std::thread::spawn(move || turns.run(&given));
        let standing = Self { stop, moved, thread: Some(thread) };
        let batch = if one_by_one { 1 } else { count };
        for first in (0..count).step_by(batch) {
            let numbers = first..(first + batch).min(count);
            for socket in open_all(site, entry, destination, numbers.clone())? {
                begin(&socket, kind, background, most_read)?;
                give.send(socket).context("the flows' thread has ended")?;
            }
            if one_by_one {
                let wanted = most_read * numbers.end as u64;
                wait::for_true("the flow has moved its share", tcp::IO_TIMEOUT, || {
                    standing.moved() >= wanted
                });
            }
        }
        Ok(standing)
    }

    /// Bytes that all of them have moved.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Ends them; how many were still open.
    pub fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("the thread of the flows does not panic")
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by itself.
            let _ = thread.join();
        }
    }
}

struct Turns {
    most_read: u64,
    background: Background,
    stop: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
}

impl Turns {
    fn run(&self, opened: &mpsc::Receiver<Socket>) -> usize {
        let mut flows: Vec<(Socket, u64)> = Vec::new();
        let mut chunk = vec![0x5a; CHUNK_BYTES];
        while !self.stop.load(Ordering::Relaxed) {
            let turn = Instant::now();
            flows.extend(opened.try_iter().map(|socket| (socket, 0)));
            flows.retain_mut(|(socket, moved)| {
                let before = *moved;
                let open = self.turn(socket, moved, &mut chunk);
                self.moved.fetch_add(*moved - before, Ordering::Relaxed);
                open
            });
            std::thread::sleep(TURN.saturating_sub(turn.elapsed()));
        }
        flows.len()
    }

    /// Moves what one flow may now; whether it is still open.
    fn turn(&self, socket: &mut Socket, moved: &mut u64, chunk: &mut [u8]) -> bool {
        loop {
            let outcome = match self.background {
                Background::PausedOrigin | Background::NotConnected => socket.write(chunk),
                _ => {
                    let most = self.most_read.saturating_sub(*moved).min(chunk.len() as u64);
                    let slow = self.background == Background::SlowViewer;
                    match most as usize {
                        0 if slow => socket.read(&mut chunk[..SLOW_READ_BYTES]),
                        0 => return true,
                        most => socket.read(&mut chunk[..most]),
                    }
                }
            };
            match outcome {
                Ok(0) => return false,
                Ok(bytes) => {
                    *moved += bytes as u64;
                    if bytes <= SLOW_READ_BYTES {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Number of parts of the measured time. BBR measures the round trip every ten seconds, over 800 ms once or twice in
/// that time, which takes up to five parts.
const INTERVALS: u32 = 15;
/// The rate still grows while the last third of the parts has so many times the median of the first. BBR on a connection
/// that has shared the link finds the rest of it in steps of a quarter, eight round trips each.
const MAX_GROWTH: f64 = 1.05;
/// How often a rate that grows is measured again.
const MAX_MEASUREMENTS: u32 = 10;

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Bytes that a flow's own packets take on the link for each byte that it carries, at most: headers, acknowledgements in
/// the other direction, and what is sent again.
const LINK_BYTES_PER_BYTE: f64 = 1.3;

/// What a measurement of the active flow has shown.
#[derive(Clone, Copy, Debug)]
pub struct ActiveRate {
    /// The active flow's rate in Mbit/s.
    pub mbps: f64,
    /// What crossed the link meanwhile and can't have been the active flow's, in Mbit/s of both directions.
    pub others_mbps: f64,
}

/// The active flow's rate: opens it, lets it run for `warm_up`, and takes the median of the rates in the parts of
/// `measured`, once it grows no more.
pub fn active_rate(
    site: &Site,
    upload: bool,
    warm_up: Duration,
    measured: Duration,
) -> Result<ActiveRate> {
    let mut socket = site.ask(Entry::Tunnel, site.origin(), 0)?;
    site.answered(&socket, site.origin())?;
    let count = Arc::new(AtomicU64::new(0));
    let before_upload = site.received();
    let closer = socket.try_clone()?;
    let counted = count.clone();
    let mover = std::thread::spawn(move || {
        let mut chunk = vec![0x5a; CHUNK_BYTES];
        if socket.write_all(&[if upload { UPLOAD } else { DOWNLOAD }]).is_err() {
            return;
        }
        loop {
            let outcome = match upload {
                true => socket.write(&chunk),
                false => socket.read(&mut chunk),
            };
            match outcome {
                Ok(bytes @ 1..) if !upload => {
                    counted.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Ok(1..) => {}
                _ => return,
            }
        }
    });
    let read = || match upload {
        true => site.received() - before_upload,
        false => count.load(Ordering::Relaxed),
    };
    std::thread::sleep(warm_up);
    let mut rate = ActiveRate { mbps: 0.0, others_mbps: 0.0 };
    for _ in 0..MAX_MEASUREMENTS {
        let (start, first, crossed) = (Instant::now(), read(), site.link_bytes()?);
        let rates = (0..INTERVALS).map(|_| {
            let (start, before) = (Instant::now(), read());
            std::thread::sleep(measured / INTERVALS);
            (read() - before) as f64 * 8e-6 / start.elapsed().as_secs_f64()
        });
        let rates: Vec<f64> = rates.collect();
        let own = LINK_BYTES_PER_BYTE * (read() - first) as f64;
        let others = ((site.link_bytes()? - crossed) as f64 - own).max(0.0);
        rate = ActiveRate {
            mbps: median(&rates),
            others_mbps: others * 8e-6 / start.elapsed().as_secs_f64(),
        };
        let third = rates.len() / 3;
        if median(&rates[rates.len() - third..]) <= MAX_GROWTH * median(&rates[..third]) {
            break;
        }
    }
    // The thread ends at the end of its socket; an error says that it has ended already.
    let _ = closer.shutdown(Shutdown::Both);
    if mover.join().is_err() {
        bail!("the active flow's thread has panicked");
    }
    Ok(rate)
}
