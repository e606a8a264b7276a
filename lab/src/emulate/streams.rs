//! Players of streams: the flows with `app = "rtsp"`.
//!
//! Each has a live555MediaServer at an origin of its own. The player is openRTSP. A recorder, in its path in the
//! player's namespace or at its UDP port, records what arrives, from which the frames on the screen follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;

use super::session::{SessionGuard, SessionResult};
use super::telemetry::Payload;
use super::traffic::EmulatedFlow;
use crate::netns::Namespace;
use crate::player::BuiltPlayer;
use crate::process::{Running, require, tail};
use crate::results::series::Screen;
use crate::rtsp::capture::{Capture, Captured};
use crate::rtsp::frames::Assembly;
use crate::rtsp::live555::Live555;
use crate::rtsp::relay::{Recorder, RtspRelay};
use crate::rtsp::rtp::{self, RtpPacket};
use crate::rtsp::session::Session;
use crate::rtsp::stream::Stream;
use crate::scenario::{App, Scenario};
use crate::step::ProgressStep;
use crate::topology::{PLAYER_DEVICE, Topology};

/// Programs that players run beside live555, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 3] = [("ss", "iproute2"), ("node", "nodejs"), ("ffmpeg", "ffmpeg")];

/// Resolution of the record of the payload that has arrived.
const PAYLOAD_RESOLUTION_S: f64 = 0.05;

/// How long a player has for the TEARDOWN, without which the server would go on sending.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long before the end a later packet must have arrived for a missing one to count as lost.
const LOSS_CONFIRMATION_S: f64 = 1.0;

/// RTCP that comes so long after the last RTP is that of a stream that the server has given up: it reports every few
/// seconds, and a stream has a frame at least every 50 ms.
const GAVE_UP_AFTER_S: f64 = 2.0;

/// The encoded streams, and the server that serves them.
#[derive(Debug, Clone)]
pub struct StreamLibrary {
    live555: Live555,
    directory: PathBuf,
    by_mbps: BTreeMap<u64, Arc<Stream>>,
}

impl StreamLibrary {
    /// Finds live555 and encodes the streams of these rates into `directory`, unless they are there already.
    ///
    /// # Errors
    /// When a program or the player is missing, or a stream can't be encoded or served.
    pub fn prepare(
        live555: &Path,
        player: &Path,
        directory: &Path,
        source: Option<&Path>,
        rates: &BTreeSet<u64>,
    ) -> Result<Self> {
        require(&PROGRAMS)?;
        let live555 = Live555::locate(live555)?;
        let player = BuiltPlayer::locate(player)?;
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let directory = directory.canonicalize()?;
        let step = ProgressStep::begin("preparing the streams (kept for the next time)", None)?;
        let log = directory.with_extension("log");
        player.streams(&directory, source, rates, &log, |elapsed| {
            step.at(elapsed);
            Ok(())
        })?;
        let load = |mbps: &u64| Ok((*mbps, Arc::new(Stream::load(&directory, *mbps)?)));
        let by_mbps = rates.iter().map(load).collect::<Result<_>>()?;
        Ok(Self { live555, directory, by_mbps })
    }

    /// # Errors
    /// What of it can't be played.
    pub fn can_play(&self, scenario: &Scenario) -> Result<(), String> {
        for group in &scenario.groups {
            let App::Rtsp { media_mbps, .. } = group.app else { continue };
            let Some(stream) = self.by_mbps.get(&media_mbps) else {
                return Err(format!("the stream of {media_mbps} Mbit/s is not prepared"));
            };
            let (lasts_s, max_s) = (group.stop_s - group.start_s, stream.duration().as_secs_f64());
            if lasts_s > max_s {
                return Err(format!("a session of {lasts_s} s; the stream has {max_s} s"));
            }
        }
        Ok(())
    }

    /// Starts a server at this origin, and waits until it listens at `address`.
    ///
    /// # Errors
    /// When it does not; with its log.
    pub fn serve(&self, origin: &Namespace, address: SocketAddr, log: &Path) -> Result<Running> {
        self.live555.serve(origin, &self.directory, address, log)
    }

    /// A player that writes its session to `directory`.
    ///
    /// # Errors
    /// When the directory can't be made, or the stream is not prepared.
    pub fn player(
        &self,
        mbps: u64,
        buffer_s: f64,
        transport: RtpTransport,
        directory: &Path,
    ) -> Result<StreamPlayer> {
        let stream = self.by_mbps.get(&mbps).context("the stream is not prepared")?;
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let directory = directory.canonicalize()?;
        Ok(StreamPlayer {
            live555: self.live555.clone(),
            stream: Arc::clone(stream),
            buffer_s,
            transport,
            directory,
        })
    }
}

/// How RTP gets to a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RtpTransport {
    /// In its RTSP connection.
    Interleaved,
    /// To this UDP port of its host.
    Datagrams {
        /// An even one; RTCP has the next.
        port: u16,
    },
}

/// An RTSP player that has not begun.
#[derive(Debug)]
pub struct StreamPlayer {
    live555: Live555,
    stream: Arc<Stream>,
    buffer_s: f64,
    transport: RtpTransport,
    /// Output directory of the session.
    directory: PathBuf,
}

impl StreamPlayer {
    /// Plays its flow from the beginning to the end.
    ///
    /// # Errors
    /// When nothing could be measured, or a connection used another congestion control than configured.
    pub fn play(
        self,
        flow: &EmulatedFlow<'_>,
        topology: &Topology,
        began: Instant,
    ) -> Result<Option<SessionResult>> {
        let mut guard = SessionGuard::of(flow, began);
        let log = self.directory.join("openrtsp.log");
        // For the rest of this thread: the recorder's connections are in the player's network too.
        topology.player.handle()?.enter()?;
        let relay = RtspRelay::open()?;
        let capture = match self.transport {
            RtpTransport::Interleaved => None,
            RtpTransport::Datagrams { port } => Some((port, Capture::open(PLAYER_DEVICE, port)?)),
        };
        if !flow.sleep_until(guard.start) {
            return Ok(None);
        }
        let mut running = self.live555.fetch(
            &topology.player,
            relay.address()?,
            &self.stream.file,
            capture.as_ref().map(|(port, _)| *port),
            &self.directory,
            &log,
        )?;
        let teardown_timeout = if capture.is_some() { TEARDOWN_TIMEOUT } else { Duration::ZERO };
        let mut is_over = || {
            guard.check()?;
            let late = Instant::now().checked_duration_since(guard.stop);
            if late.is_some() {
                running.hang_up();
            }
            Ok(late.is_some_and(|late| late >= teardown_timeout) || running.ended()?.is_some())
        };
        let origin: SocketAddr = flow.addresses.entry;
        let (played, recorder) = match capture {
            None => {
                let mut recorder = StreamRecorder::of(Assembly::new(self.stream.fps()));
                (relay.carry(origin, &mut recorder, &mut is_over)?, recorder)
            }
            Some((_, capture)) => {
                let (played, captured) = captured(&relay, origin, capture, &mut is_over)?;
                (played, StreamRecorder::by_udp(&self.stream, captured, played, guard.stop)?)
            }
        };
        if recorder.assembly.packets == 0 && running.ended()?.is_some() {
            bail!("openRTSP ended before anything came\n{}", tail(&log));
        }
        drop(running);
        // A stream that broke off is a stall to the end.
        flow.sleep_until(guard.stop);
        let session_s = guard.stop.saturating_duration_since(played).as_secs_f64();
        let (stream, assembly) = (&self.stream, &recorder.assembly);
        let session = Session {
            broken_off_s: recorder.broken_off_s,
            ..Session::of(stream, assembly, self.buffer_s, session_s)
        };
        let session = match recorder.gave_up_s() {
            Some(at_s) => session.given_up(stream, assembly, self.buffer_s, at_s),
            None => session,
        };
        let path = self.directory.join("session.json");
        fs::write(&path, serde_json::to_string(&session)?)
            .with_context(|| path.display().to_string())?;
        let played_s = played.saturating_duration_since(began).as_secs_f64();
        Ok(Some(session_result(&session, &recorder, played_s)))
    }
}

/// Relays between the player and `origin` until it is over, and captures what comes by UDP meanwhile. Answers
/// when the player connected, too.
fn captured(
    relay: &RtspRelay,
    origin: SocketAddr,
    capture: Capture,
    is_over: impl FnMut() -> Result<bool>,
) -> Result<(Instant, Captured)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let capturing = scope.spawn(|| capture.record(&over));
        let carried = relay.carry(origin, &mut NoRtp, is_over);
        over.store(true, Ordering::Relaxed);
        let captured = capturing.join().map_err(|_| anyhow!("the capturing thread panicked"))?;
        Ok((carried?, captured?))
    })
}

/// The recorder of an RTSP connection that carries no RTP.
struct NoRtp;

impl Recorder for NoRtp {
    fn bytes(&mut self, _at_s: f64, _bytes: usize) {}

    fn packet(&mut self, _at_s: f64, _packet: RtpPacket) -> Result<()> {
        bail!("RTP in the RTSP connection; it was to come over UDP")
    }

    fn broken_off(&mut self, _at_s: f64) {}
}

/// Records a stream; times are since the player's connection.
struct StreamRecorder {
    assembly: Assembly,
    payload: Vec<Payload>,
    /// Packets that the capture missed.
    missed: u64,
    broken_off_s: Option<f64>,
    /// When the last RTP packet came.
    last_rtp_s: Option<f64>,
}

impl StreamRecorder {
    fn of(assembly: Assembly) -> Self {
        Self { assembly, payload: Vec::new(), missed: 0, broken_off_s: None, last_rtp_s: None }
    }

    /// When the last RTP packet came of a stream that the server gave up: inside a packet, or between two, and the
    /// connection went on without RTP.
    fn gave_up_s(&self) -> Option<f64> {
        let (last_rtp_s, last) = (self.last_rtp_s?, self.payload.last()?);
        let goes_on = last.at_s - last_rtp_s > GAVE_UP_AFTER_S;
        (goes_on || self.broken_off_s.is_some()).then_some(last_rtp_s)
    }

    /// The record of the UDP packets to a player that connected when it `played`, up to `stop`.
    fn by_udp(stream: &Stream, captured: Captured, played: Instant, stop: Instant) -> Result<Self> {
        let lasts_s = stop.saturating_duration_since(played).as_secs_f64();
        let assembly = Assembly::new(stream.fps()).counting_until(lasts_s - LOSS_CONFIRMATION_S);
        let mut recorder = Self { missed: captured.missed, ..Self::of(assembly) };
        let mut packets = Vec::new();
        for (at, packet) in captured.packets.into_iter().take_while(|(at, _)| *at <= stop) {
            let at_s = at.saturating_duration_since(played).as_secs_f64();
            recorder.bytes(at_s, packet.bytes);
            packets.push((at_s, packet));
        }
        for (at_s, packet) in rtp::in_order(packets) {
            recorder.packet(at_s, packet)?;
        }
        Ok(recorder)
    }
}

impl Recorder for StreamRecorder {
    fn bytes(&mut self, at_s: f64, bytes: usize) {
        let total = bytes as u64 + self.payload.last().map_or(0, |last| last.bytes);
        match self.payload.last_mut() {
            Some(last)
                if last.at_s.div_euclid(PAYLOAD_RESOLUTION_S)
                    == at_s.div_euclid(PAYLOAD_RESOLUTION_S) =>
            {
                *last = Payload { at_s, bytes: total };
            }
            _ => self.payload.push(Payload { at_s, bytes: total }),
        }
    }

    fn packet(&mut self, at_s: f64, packet: RtpPacket) -> Result<()> {
        self.last_rtp_s = Some(at_s);
        self.assembly.take(packet, at_s)
    }

    fn broken_off(&mut self, at_s: f64) {
        self.broken_off_s = Some(at_s);
    }
}

/// The result of a session that began at `start_s`.
fn session_result(session: &Session, recorder: &StreamRecorder, start_s: f64) -> SessionResult {
    let figures = [
        ("startup_s", session.startup_s),
        ("stalls", Some(session.stall_count() as f64)),
        ("rebuffer_ratio", Some(session.rebuffer_ratio)),
        ("gave_up", Some(f64::from(u8::from(session.gave_up_s.is_some())))),
        ("psnr_db", session.psnr_db),
        ("lost_frames", Some(session.lost_frames as f64)),
        ("rtp_loss", Some(session.rtp_loss)),
        ("watched_s", Some(session.session_s)),
    ];
    let seconds = session.seconds.iter().map(|second| Screen {
        shown_kbps: None,
        psnr_db: second.psnr_db,
        buffer_s: Some(second.buffer_s),
    });
    let arrivals =
        recorder.payload.iter().map(|it| Payload { at_s: start_s + it.at_s, bytes: it.bytes });
    let (truncated, missed) = (session.truncated_frames, recorder.missed);
    let invalid_reasons = [
        (truncated > 0).then(|| format!("the RTSP server cut off {truncated} frames")),
        (missed > 0).then(|| format!("the recorder missed {missed} packets")),
    ];
    SessionResult {
        figures: figures.to_vec(),
        seconds: seconds.collect(),
        arrivals: std::iter::once(Payload { at_s: start_s, bytes: 0 }).chain(arrivals).collect(),
        invalid_reasons: invalid_reasons.into_iter().flatten().collect(),
        account: json!({ "lost_frames": session.lost_frames, "rtp_loss": session.rtp_loss }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_payload_has_a_bounded_resolution() {
        let mut recorder = StreamRecorder::of(Assembly::new(24.0));
        for at_ms in [1.0, 20.0, 49.0, 51.0, 52.0, 120.0] {
            recorder.bytes(at_ms / 1e3, 10);
        }
        let pairs: Vec<(f64, u64)> =
            recorder.payload.iter().map(|it| (it.at_s, it.bytes)).collect();
        assert_eq!(pairs, [(0.049, 30), (0.052, 50), (0.12, 60)]);
    }

    #[test]
    fn a_connection_that_goes_on_without_rtp_is_of_a_stream_that_was_given_up() {
        let recorder = |rtp_s: f64, others_s: f64, broken_off_s| {
            let mut recorder = StreamRecorder::of(Assembly::new(24.0));
            let (marker, slice_bytes) = (true, 100);
            let packet = RtpPacket { sequence: 1, timestamp: 0, marker, bytes: 112, slice_bytes };
            recorder.bytes(rtp_s, 112);
            recorder.packet(rtp_s, packet).unwrap();
            recorder.bytes(others_s, 40);
            recorder.broken_off_s = broken_off_s;
            recorder.gave_up_s()
        };
        assert_eq!(recorder(5.0, 9.0, None), Some(5.0));
        assert_eq!(recorder(5.0, 5.5, None), None);
        assert_eq!(recorder(5.0, 5.5, Some(5.2)), Some(5.0));
        assert_eq!(StreamRecorder::of(Assembly::new(24.0)).gave_up_s(), None);
    }
}
