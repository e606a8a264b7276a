//! A recorder in a player's path: it relays between server and player and records when each RTP packet arrived.
//! (openRTSP prints sums only.)

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};

use super::interleaved::Parser;
use super::rtp::RtpPacket;
use crate::interrupt::is_pause;

/// How long a call on a socket blocks before the thread checks whether it is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which the server must accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Per call.
const CHUNK_BYTES: usize = 1 << 18;

/// Bytes that a server may send after it has given up a stream: answers, and RTCP.
const MAX_AFTER_THE_END_BYTES: usize = 64 << 10;

/// Receives what a session brings.
pub trait Recorder {
    /// `bytes` arrived, `at_s` after the player's connection.
    fn bytes(&mut self, at_s: f64, bytes: usize);
    /// An RTP packet among them.
    ///
    /// # Errors
    /// When it is malformed.
    fn packet(&mut self, at_s: f64, packet: RtpPacket) -> Result<()>;
    /// The server has given up the stream inside a packet; no RTP follows.
    fn broken_off(&mut self, at_s: f64);
}

/// Waits for a player on loopback.
#[derive(Debug)]
pub struct RtspRelay {
    listener: TcpListener,
}

impl RtspRelay {
    /// Opens it in the network of the calling thread.
    ///
    /// # Errors
    /// When there is no port.
    pub fn open() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(1)?;
        // Bounds accept() too.
        socket.set_read_timeout(Some(CHECK_INTERVAL))?;
        Ok(Self { listener: socket.into() })
    }

    /// The address that the player connects to.
    ///
    /// # Errors
    /// None in practice.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Waits for the player and relays between it and `server` until one of them ends, or `is_over` answers true;
    /// it is polled. Answers when the player connected. The calling thread is in the player's network.
    ///
    /// # Errors
    /// When the player does not come before it is over, the first error of `recorder` or `is_over`, or
    /// when the server sends anything but RTSP.
    pub fn carry(
        &self,
        server: SocketAddr,
        recorder: &mut impl Recorder,
        mut is_over: impl FnMut() -> Result<bool>,
    ) -> Result<Instant> {
        let player = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if is_pause(&error) && !is_over()? => {}
                Err(error) => return Err(error).context("the player did not connect"),
            }
        };
        let began = Instant::now();
        let server = connect(server)?;
        for stream in [&player, &server] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(CHECK_INTERVAL))?;
            // A player that reads no more must not delay the end.
            stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(&player, &server));
            let carried = record(&server, &player, began, recorder, is_over);
            for stream in [&player, &server] {
                stream.shutdown(Shutdown::Both).ok();
            }
            carried
        })?;
        Ok(began)
    }
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.connect_timeout(&server.into(), CONNECT_TIMEOUT).with_context(|| server.to_string())?;
    Ok(socket.into())
}

/// Relays from the player until it ends or is shut down.
fn pass_on(mut player: &TcpStream, mut server: &TcpStream) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match player.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) if server.write_all(&buffer[..read]).is_ok() => {}
            Err(error) if is_pause(&error) => {}
            Ok(_) | Err(_) => break,
        }
    }
    server.shutdown(Shutdown::Write).ok();
}

fn record(
    mut server: &TcpStream,
    mut player: &TcpStream,
    began: Instant,
    recorder: &mut impl Recorder,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut parser = Parser::default();
    let mut after_the_end = AfterTheEnd::default();
    let mut has_media = false;
    let mut buffer = vec![0; CHUNK_BYTES];
    while !is_over()? {
        let read = match server.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if is_pause(&error) => continue,
            // Seen by the player as well; what it saw until then is the result.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("receiving"),
        };
        let at_s = began.elapsed().as_secs_f64();
        recorder.bytes(at_s, read);
        let mut first_wrong = Ok(());
        if !after_the_end.take(read)? {
            let taken = parser.take(&buffer[..read], |packet| {
                has_media = true;
                if first_wrong.is_ok() {
                    first_wrong = recorder.packet(at_s, packet);
                }
            });
            match taken {
                Ok(()) => {}
                Err(error) if has_media => {
                    recorder.broken_off(at_s);
                    after_the_end = AfterTheEnd { because: Some(error), bytes: 0 };
                    after_the_end.take(parser.pending_bytes())?;
                }
                Err(error) => return Err(error),
            }
        }
        first_wrong?;
        match player.write_all(&buffer[..read]) {
            Ok(()) => {}
            // It has gone.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) if is_pause(&error) => bail!("the player takes nothing any more"),
            Err(error) => return Err(error).context("passing on to the player"),
        }
    }
    Ok(())
}

/// live555 gives up a stream when its connection takes no data for 500 ms, also in the middle of a packet, and
/// goes on using the connection for everything else. A player sees a stream that has stopped. Media that go on
/// mean that bytes were changed on the path.
#[derive(Default)]
struct AfterTheEnd {
    because: Option<anyhow::Error>,
    bytes: usize,
}

impl AfterTheEnd {
    /// Whether these `bytes` come after the end.
    fn take(&mut self, bytes: usize) -> Result<bool> {
        if self.because.is_none() {
            return Ok(false);
        }
        self.bytes += bytes;
        if self.bytes > MAX_AFTER_THE_END_BYTES
            && let Some(error) = self.because.take()
        {
            return Err(error.context("the stream goes on after malformed data"));
        }
        Ok(true)
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Seen {
        bytes: usize,
        packets: Vec<(f64, u16)>,
        is_broken: bool,
    }

    impl Recorder for Seen {
        fn bytes(&mut self, _at_s: f64, bytes: usize) {
            self.bytes += bytes;
        }

        fn packet(&mut self, at_s: f64, packet: RtpPacket) -> Result<()> {
            self.packets.push((at_s, packet.sequence));
            Ok(())
        }

        fn broken_off(&mut self, _at_s: f64) {
            self.is_broken = true;
        }
    }

    fn interleaved(sequence: u8) -> Vec<u8> {
        let mut packet = vec![b'$', 0, 0, 13, 0x80, 96, 0, sequence];
        packet.resize(4 + 13, 0);
        packet
    }

    #[test]
    fn both_directions_pass_and_packets_are_timed() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let relay = RtspRelay::open().unwrap();
        let listener = relay.address().unwrap();
        let mut seen = Seen::default();
        let (first_came, first_has_come) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                let mut asked = [0; 4];
                stream.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"PLAY");
                stream.write_all(&interleaved(1)).unwrap();
                // Its time is taken before the player has it, so the pause lies between the two times.
                first_has_come.recv().unwrap();
                std::thread::sleep(Duration::from_millis(50));
                stream.write_all(&interleaved(2)).unwrap();
            });
            let player = scope.spawn(move || {
                let mut stream = TcpStream::connect(listener).unwrap();
                stream.write_all(b"PLAY").unwrap();
                let mut all = vec![0; interleaved(1).len()];
                stream.read_exact(&mut all).unwrap();
                first_came.send(()).unwrap();
                stream.read_to_end(&mut all).unwrap();
                all
            });
            relay.carry(address, &mut seen, || Ok(false)).unwrap();
            assert_eq!(player.join().unwrap(), [interleaved(1), interleaved(2)].concat());
        });
        assert_eq!(seen.bytes, 34);
        let [(first_s, 1), (second_s, 2)] = seen.packets[..] else { panic!("{:?}", seen.packets) };
        assert!(second_s - first_s >= 0.05, "{first_s} {second_s}");
    }

    /// Relays what a server sends to a player that reads all of it.
    fn said(said: Vec<u8>) -> (Result<Instant>, Seen) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let relay = RtspRelay::open().unwrap();
        let listener = relay.address().unwrap();
        let mut seen = Seen::default();
        let carried = std::thread::scope(|scope| {
            scope.spawn(move || _ = server.accept().unwrap().0.write_all(&said));
            scope.spawn(move || {
                let mut player = TcpStream::connect(listener).unwrap();
                _ = std::io::copy(&mut player, &mut std::io::sink());
            });
            relay.carry(address, &mut seen, || Ok(false))
        });
        (carried, seen)
    }

    #[test]
    fn a_stream_that_the_server_gives_up_inside_a_packet_has_stopped() {
        let cut = &interleaved(2)[..9];
        let answer = b"RTSP/1.0 200 OK\r\nSession: 388\r\n\r\n";
        let (carried, seen) = said([&interleaved(1), cut, answer].concat());
        carried.unwrap();
        // The answer has completed the packet.
        assert_eq!((seen.packets.len(), seen.is_broken), (2, true));
    }

    #[test]
    fn bytes_that_were_changed_are_an_error() {
        let media = interleaved(1).repeat(MAX_AFTER_THE_END_BYTES / 10);
        let (carried, _) = said([&interleaved(1), &b"\x38"[..], &media].concat());
        assert!(carried.unwrap_err().to_string().contains("goes on"));
        let (carried, seen) = said(b"\x38".to_vec());
        assert!(carried.is_err() && !seen.is_broken);
    }

    #[test]
    fn it_ends_when_it_is_over_even_without_a_player() {
        let over = AtomicBool::new(false);
        let relay = RtspRelay::open().unwrap();
        let server = relay.address().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                over.store(true, Ordering::Relaxed);
            });
            let mut seen = Seen::default();
            let ended = relay.carry(server, &mut seen, || Ok(over.load(Ordering::Relaxed)));
            assert!(ended.unwrap_err().to_string().contains("did not connect"));
        });
    }
}
