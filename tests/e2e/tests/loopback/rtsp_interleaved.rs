//! RTP in the RTSP connection of a player that reads slowly: a live origin is never blocked, and what is dropped are whole
//! frames up to a key frame; a transfer that is faster than real time keeps back-pressure and arrives whole.

use std::io::Read;
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::live_origin::{
    GROUP_FRAMES, LiveOrigin, LiveStream, ReceivedFrame, StreamEnd, received_frames,
};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::rtsp::{Player, field};
use serde_json::Value;
use socket2::Socket;

/// live555's (RTPInterface.cpp, `RTPINTERFACE_BLOCKING_WRITE_TIMEOUT_MS`).
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
const QUEUE_MS: u64 = 1000;
/// 14 Mbit/s: in a pause of some seconds all buffers between the two fill up.
const LIVE: LiveStream =
    LiveStream { speed: 1.0, frames: 325, frame_packets: 50, send_timeout: SEND_TIMEOUT };
/// Bytes of a second of it.
const LIVE_BYTES_PER_S: u64 = 25 * 50 * 1416;
/// How long the player reads before it pauses. Until the origin's pace is known nothing is dropped.
const READ_TIME: Duration = Duration::from_secs(3);
const PAUSE_TIME: Duration = Duration::from_secs(7);

fn pair(builder: PairBuilder) -> Pair {
    builder
        .both("tunnel.initial_window_bytes", 256 << 10)
        .both("tunnel.max_stream_window_bytes", 256 << 10)
        .start()
}

/// A player that has asked for the stream.
fn play(pair: &Pair, origin: &LiveOrigin) -> Socket {
    let mut player = Player::connect(pair.http(), origin.address());
    let description = player.ask("DESCRIBE", "live", "");
    let length = field(&description.head, "Content-Length").unwrap().parse().unwrap();
    player.read(length);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    assert_eq!(player.ask("SETUP", "live/trackID=1", transport).status, 200);
    assert_eq!(player.ask("PLAY", "live", "Session: 47\r\n").status, 200);
    player.into_stream()
}

/// Reads until `end`.
fn read_until(stream: &mut Socket, end: Instant, into: &mut Vec<u8>) {
    let mut buffer = vec![0; 64 << 10];
    while Instant::now() < end {
        let read = stream.read(&mut buffer).unwrap();
        into.extend(&buffer[..read]);
    }
}

/// The queue of the only flow, as the server shows it; null once the flow has ended.
fn queue(pair: &Pair) -> Value {
    admin::flows(pair.addresses.server_admin)["flows"][0]["queue"].clone()
}

/// What a player gets that reads, pauses and reads again; and the server's queue at the end of the pause.
fn read_with_a_pause(pair: &Pair, origin: &LiveOrigin) -> (Vec<u8>, Value) {
    let mut stream = play(pair, origin);
    let mut bytes = Vec::new();
    read_until(&mut stream, Instant::now() + READ_TIME, &mut bytes);
    std::thread::sleep(PAUSE_TIME);
    let queue = queue(pair);
    stream.read_to_end(&mut bytes).ok();
    (bytes, queue)
}

#[test]
fn a_live_origin_is_never_blocked_and_whole_frames_are_missing() {
    let origin = LiveOrigin::start(LIVE);
    let pair = pair(Pair::builder().server("rtsp.interleaved_queue_ms", QUEUE_MS));
    let (bytes, queue) = read_with_a_pause(&pair, &origin);
    let end = origin.end(Duration::from_secs(1));
    assert!(matches!(end, StreamEnd::Complete(_)), "{end:?}");

    let frames = received_frames(&bytes);
    assert!(frames.iter().all(|it| it.packets == LIVE.frame_packets), "a part of a frame");
    let gaps: Vec<[ReceivedFrame; 2]> = frames
        .windows(2)
        .map(|pair| [pair[0], pair[1]])
        .filter(|[before, after]| after.number != before.number + 1)
        .collect();
    assert!(!gaps.is_empty(), "all {} frames have found room somewhere", frames.len());
    for [before, after] in gaps {
        let (from, to) = (before.number, after.number);
        assert!(to > from && to.is_multiple_of(GROUP_FRAMES), "{to} after {from}");
    }
    assert_eq!(frames[0].number, 0);
    assert_eq!(frames.last().map(|it| it.number), Some(LIVE.frames - 1));

    let missing = LIVE.frames as usize - frames.len();
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    let dropped =
        metrics.sum("millrace_rtsp_frames_dropped_total", &[("medium", "video")]) as usize;
    assert_eq!(dropped, missing);
    assert_eq!(
        metrics.sum("millrace_rtsp_queue_wait_seconds_count", &[]) as usize,
        frames.len(),
        "each frame that was sent"
    );
    // At the end of the pause.
    let held_s = queue["held_s"].as_f64().unwrap();
    assert!(held_s > 0.0 && held_s <= QUEUE_MS as f64 / 1e3 + 0.2, "{queue}");
    let held_bytes = queue["held_bytes"].as_u64().unwrap();
    assert!(held_bytes <= LIVE_BYTES_PER_S * 5 / 4, "{queue}");
    assert!(queue["dropped_frames"].as_u64().unwrap() > 0, "{queue}");
}

/// Without a queue the same player has its origin blocked.
#[test]
fn without_a_queue_a_live_origin_gives_up() {
    let origin = LiveOrigin::start(LIVE);
    let pair = pair(Pair::builder().server("rtsp.interleaved_queue_ms", 0));
    let mut stream = play(&pair, &origin);
    read_until(&mut stream, Instant::now() + Duration::from_secs(1), &mut Vec::new());
    assert_eq!(queue(&pair), Value::Null);
    let end = origin.end(READ_TIME + PAUSE_TIME);
    assert!(matches!(end, StreamEnd::GaveUp(_)), "{end:?}");
}

#[test]
fn a_replay_keeps_back_pressure_and_arrives_whole() {
    const FRAMES: u32 = 500;
    const BYTES_PER_S: f64 = 25.0 * 15.0 * 1416.0;
    let replay = LiveStream {
        speed: 10.0,
        frames: FRAMES,
        frame_packets: 15,
        send_timeout: Duration::from_secs(20),
    };
    let origin = LiveOrigin::start(replay);
    let pair = pair(Pair::builder());
    let mut stream = play(&pair, &origin);
    let (begin, mut bytes) = (Instant::now(), Vec::new());
    let mut buffer = vec![0; 16 << 10];
    let mut most_held_bytes = 0;
    loop {
        // Twice real time.
        let due = Duration::from_secs_f64(bytes.len() as f64 / BYTES_PER_S / 2.0);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        let read = stream.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        bytes.extend(&buffer[..read]);
        let held_bytes = queue(&pair)["held_bytes"].as_u64().unwrap_or(0);
        most_held_bytes = most_held_bytes.max(held_bytes);
    }
    let StreamEnd::Complete(took) = origin.end(Duration::from_secs(1)) else {
        panic!("a write has waited for {:?}", replay.send_timeout)
    };
    assert!(took > Duration::from_secs(4), "the origin had to wait: {took:?}");
    let frames = received_frames(&bytes);
    assert_eq!(frames.len(), FRAMES as usize);
    assert!(frames.iter().all(|it| it.packets == replay.frame_packets));
    // As much as a burst of a source in real time may have.
    let most = 0.0..5.0 * BYTES_PER_S;
    assert!(most_held_bytes > 0 && most.contains(&(most_held_bytes as f64)), "{most_held_bytes}");
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    assert_eq!(metrics.sum("millrace_rtsp_frames_dropped_total", &[]), 0.0);
}
