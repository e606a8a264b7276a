//! Bulk TCP from the origin to the player, straight over the link: what the kernel's own stack
//! makes of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use socket2::{Domain, Socket, Type};

use crate::interrupt;
use crate::topology::{KernelCc, ORIGIN, Topology};

/// What a bulk transfer reached.
#[derive(Debug, Clone, Serialize)]
pub struct BulkReport {
    /// Congestion control that the sending socket really used.
    pub congestion_control: String,
    /// Time over which was measured, in seconds.
    pub measured_s: f64,
    /// Payload received after the warm-up, in Mbit/s.
    pub goodput_mbps: f64,
    /// Smallest round trip that the sender's kernel saw, in milliseconds.
    pub rtt_min_ms: f64,
    /// Smoothed round trip at the end, in milliseconds.
    pub rtt_smoothed_ms: f64,
    /// Segments sent again.
    pub retransmitted_segments: u32,
}

/// How long the transfer runs and what of it counts.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Whole transfer.
    pub duration: Duration,
    /// Left out of the goodput.
    pub warmup: Duration,
}

/// Sends from the origin to the player as fast as `cc` allows.
///
/// # Errors
/// When the connection fails, or on Ctrl-C.
pub fn run(
    topology: &Topology,
    cc: KernelCc,
    times: Times,
    mut tick: impl FnMut(Duration) + Send,
) -> Result<BulkReport> {
    let listener = topology.origin.inside(|| {
        let address: SocketAddr = format!("{ORIGIN}:0").parse()?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&address.into())?;
        // Accepted sockets inherit it.
        socket
            .set_tcp_congestion(cc.name().as_bytes())
            .with_context(|| format!("congestion control {}", cc.name()))?;
        socket.listen(1)?;
        Ok(TcpListener::from(socket))
    })?;
    let address = listener.local_addr()?;
    let mut receiver = topology.player.inside(|| {
        TcpStream::connect_timeout(&address, Duration::from_secs(10)).context("connect to origin")
    })?;
    let (sender, _) = listener.accept()?;
    sender.set_write_timeout(Some(Duration::from_millis(200)))?;
    receiver.set_read_timeout(Some(Duration::from_millis(200)))?;
    let end = Instant::now() + times.duration;

    std::thread::scope(|scope| {
        let sending = scope.spawn(move || send(sender, end));
        let started = Instant::now();
        let (mut counted, mut buffer) = (0_usize, vec![0; 1 << 18]);
        let mut counted_from = started + times.warmup;
        let mut begun = false;
        while Instant::now() < end {
            interrupt::check()?;
            let read = match receiver.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error).context("receiving"),
            };
            let now = Instant::now();
            if begun {
                counted += read;
            } else if now >= counted_from {
                (begun, counted_from) = (true, now);
            }
            tick(now - started);
        }
        let measured_s = counted_from.elapsed().as_secs_f64();
        let (congestion_control, info) =
            sending.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))??;
        Ok(BulkReport {
            congestion_control,
            measured_s,
            goodput_mbps: counted as f64 * 8e-6 / measured_s,
            rtt_min_ms: f64::from(info.tcpi_min_rtt) / 1e3,
            rtt_smoothed_ms: f64::from(info.tcpi_rtt) / 1e3,
            retransmitted_segments: info.tcpi_total_retrans,
        })
    })
}

fn send(mut stream: TcpStream, end: Instant) -> Result<(String, libc::tcp_info)> {
    let data = vec![0x5a; 1 << 18];
    while Instant::now() < end && interrupt::check().is_ok() {
        match stream.write(&data) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("sending"),
        }
    }
    let used = socket2::SockRef::from(&stream).tcp_congestion()?;
    let used = String::from_utf8_lossy(&used).trim_end_matches('\0').to_owned();
    Ok((used, tcp_info(&stream)?))
}

fn tcp_info(stream: &TcpStream) -> Result<libc::tcp_info> {
    // SAFETY: all-zero is valid for these plain integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointers describe `info` and `len`, which outlive the call; the kernel writes at
    // most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error()).context("TCP_INFO");
    }
    Ok(info)
}
