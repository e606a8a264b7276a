use super::*;

const CLOCK_HZ: u32 = 90_000;
const FRAME_INTERVAL: Duration = Duration::from_millis(40);
/// Frames of a group of pictures: one second.
const GROUP_FRAMES: u32 = 25;
const FRAME_PACKETS: u16 = 3;
const PAYLOAD_BYTES: usize = 500;
const MAX_QUEUE_TIME: Duration = Duration::from_secs(2);

fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
    [&[b'$', channel], &length[..], packet].concat()
}

fn rtp_packet(payload_type: u8, sequence: u16, timestamp: u32, payload: &[u8]) -> Vec<u8> {
    let header = [&[0x80, payload_type][..], &sequence.to_be_bytes(), &timestamp.to_be_bytes()];
    [&header.concat()[..], &[0, 0, 0, 1], payload].concat()
}

/// A camera with a key frame a second.
fn frame(number: u32) -> Vec<u8> {
    picture(number, number.is_multiple_of(GROUP_FRAMES))
}

/// A delimiter and two slices.
fn picture(number: u32, is_key: bool) -> Vec<u8> {
    let slice = if is_key { 0x65 } else { 0x41 };
    let payloads = [0x09, slice, slice].map(|unit| [&[unit][..], &[7; PAYLOAD_BYTES]].concat());
    let packets = payloads.iter().zip(0..FRAME_PACKETS).map(|(payload, at)| {
        let sequence = (number as u16).wrapping_mul(FRAME_PACKETS).wrapping_add(at);
        // Timestamps and sequence numbers wrap around early.
        let timestamp = (number * CLOCK_HZ / 25).wrapping_sub(CLOCK_HZ);
        interleaved(0, &rtp_packet(96, sequence.wrapping_sub(50), timestamp, payload))
    });
    packets.flatten().collect()
}

fn audio(number: u32) -> Vec<u8> {
    interleaved(2, &rtp_packet(0, number as u16, number * 320, &[1; 320]))
}

fn report() -> Vec<u8> {
    interleaved(1, &[0x80, 200, 0, 1, 0, 0, 0, 1])
}

fn described(media: &str) -> Vec<u8> {
    let description = format!("v=0\r\n{media}");
    let length = description.len();
    format!("RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: {length}\r\n\r\n{description}").into()
}

const CAMERA: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\nm=audio 0 RTP/AVP 0\r\n";

/// A queue with its origin and player.
struct Tunnel {
    queue: SendQueue,
    now: Instant,
    /// What the player got.
    output: Vec<u8>,
    most_held_bytes: u64,
}

/// A frame as the player got it.
#[derive(Debug, PartialEq)]
struct Got {
    number: u32,
    packets: u16,
}

impl Tunnel {
    fn new(media: &str) -> Self {
        let mut queue = SendQueue::new(MAX_QUEUE_TIME);
        let now = Instant::now();
        queue.push(&described(media), now);
        let mut tunnel = Self { queue, now, output: Vec::new(), most_held_bytes: 0 };
        tunnel.send(usize::MAX);
        tunnel
    }

    fn push(&mut self, bytes: &[u8]) {
        self.queue.push(bytes, self.now);
        self.most_held_bytes = self.most_held_bytes.max(self.queue.held_bytes());
    }

    /// The stream takes at most so many bytes.
    fn send(&mut self, most: usize) {
        let mut out = vec![0; most.min(self.queue.parts.bytes)];
        let length = self.queue.copy_to(&mut out);
        self.output.extend(&out[..length]);
        self.queue.advance(length, self.now);
    }

    /// Frames in real time; the stream takes `sent_bytes` after each.
    fn run(&mut self, numbers: std::ops::Range<u32>, sent_bytes: usize) {
        for number in numbers {
            assert_eq!(self.queue.room_bytes(0, self.now), self.room(), "frame {number}");
            self.push(&frame(number));
            self.send(sent_bytes);
            self.now += FRAME_INTERVAL;
        }
    }

    /// Before the first frame nothing is known of the media.
    fn room(&self) -> usize {
        if self.queue.media.is_empty() { 0 } else { usize::MAX }
    }

    fn packets(&self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        Splitter::default().take(&self.output, |part| {
            if let StreamPart::Packet(packet) = part {
                packets.push(packet);
            }
        });
        packets
    }

    /// The pictures that the player got; their sequence numbers must have no gap.
    fn pictures(&self) -> Vec<Got> {
        let mut pictures: Vec<Got> = Vec::new();
        let mut next = None;
        for packet in self.packets().iter().filter(|it| it[1] == 0) {
            let header = rtp::parse(&packet[4..]).unwrap();
            assert_eq!(header.sequence, next.unwrap_or(header.sequence), "{pictures:?}");
            next = Some(header.sequence.wrapping_add(1));
            let number = header.timestamp.wrapping_add(CLOCK_HZ) * 25 / CLOCK_HZ;
            match pictures.last_mut().filter(|it| it.number == number) {
                Some(picture) => picture.packets += 1,
                None => pictures.push(Got { number, packets: 1 }),
            }
        }
        pictures
    }

    fn dropped(&mut self) -> u64 {
        self.queue.take_report().dropped_video
    }
}

/// All are whole, and what is missing is missing up to a key frame.
#[track_caller]
fn assert_whole(pictures: &[Got]) {
    assert!(pictures.iter().all(|it| it.packets == FRAME_PACKETS), "{pictures:?}");
    for pair in pictures.windows(2) {
        let [before, after] = [pair[0].number, pair[1].number];
        let follows = after == before + 1 || after > before && after.is_multiple_of(GROUP_FRAMES);
        assert!(follows, "{after} after {before}");
    }
}

#[test]
fn a_stream_that_keeps_up_is_unchanged() {
    let mut tunnel = Tunnel::new(CAMERA);
    let mut expected = tunnel.output.clone();
    for number in 0..200 {
        let bytes = [frame(number), audio(number), report()].concat();
        // In pieces, as TCP brings them.
        for piece in bytes.chunks(700) {
            tunnel.push(piece);
            tunnel.send(usize::MAX);
        }
        expected.extend(bytes);
        tunnel.now += FRAME_INTERVAL;
    }
    assert!(tunnel.output == expected && tunnel.queue.parts.is_empty());
    assert_eq!(tunnel.queue.intake, Intake::RealTime);
    let report = tunnel.queue.take_report();
    assert_eq!((report.dropped_video, report.dropped_audio, report.waits.len()), (0, 0, 400));
}

#[test]
fn a_reader_that_pauses_misses_whole_frames_up_to_a_key_frame() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.run(0..100, usize::MAX);
    // The stream stops inside a frame, for ten seconds.
    tunnel.push(&frame(100));
    tunnel.send(PAYLOAD_BYTES);
    tunnel.now += FRAME_INTERVAL;
    tunnel.run(101..350, 0);
    let oldest = tunnel.queue.seen().unwrap().oldest.unwrap();
    assert!(tunnel.now - oldest <= MAX_QUEUE_TIME + FRAME_INTERVAL);
    tunnel.run(350..500, usize::MAX);
    let pictures = tunnel.pictures();
    assert_whole(&pictures);
    let missing = 500 - pictures.len() as u64;
    assert_eq!(tunnel.dropped(), missing);
    // What came in the last two seconds of the pause is there, and the frame that was begun.
    assert!((190..=225).contains(&missing), "{missing}");
    assert!(pictures.iter().any(|it| it.number == 100));
    assert!(tunnel.most_held_bytes < 200_000, "{}", tunnel.most_held_bytes);
}

#[test]
fn a_slow_path_shows_whole_groups_and_takes_all_that_comes() {
    let mut tunnel = Tunnel::new(CAMERA);
    let bytes = frame(1).len();
    tunnel.run(0..2000, bytes * 7 / 10);
    tunnel.send(usize::MAX);
    let pictures = tunnel.pictures();
    assert_whole(&pictures);
    assert!((1300..1500).contains(&pictures.len()), "{}", pictures.len());
    let waits = tunnel.queue.take_report().waits;
    assert!(
        waits.iter().all(|it| *it <= MAX_QUEUE_TIME + FRAME_INTERVAL),
        "{:?}",
        waits.iter().max()
    );
}

#[test]
fn messages_reports_and_audio_keep_their_order() {
    let mut tunnel = Tunnel::new(CAMERA);
    let described = tunnel.output.len();
    let mut others = Vec::new();
    for number in 0..400 {
        let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n\r\n").into_bytes();
        tunnel.push(&[frame(number), audio(number), report(), answer.clone()].concat());
        others.push([report(), answer].concat());
        tunnel.send(if (100..300).contains(&number) { 0 } else { usize::MAX });
        tunnel.now += FRAME_INTERVAL;
    }
    assert!(tunnel.dropped() > 100);
    let mut rest = Vec::new();
    let mut audio_packets = Vec::new();
    Splitter::default().take(&tunnel.output[described..], |part| match part {
        StreamPart::Packet(packet) if packet[1] == 0 => {}
        StreamPart::Packet(packet) if packet[1] == 2 => audio_packets.push(packet),
        StreamPart::Packet(bytes) | StreamPart::Other(bytes) => rest.extend(bytes),
    });
    assert!(rest == others.concat(), "messages and RTCP are never dropped");
    let sequence: Vec<u16> =
        audio_packets.iter().map(|it| rtp::parse(&it[4..]).unwrap().sequence).collect();
    assert!((200..300).contains(&sequence.len()), "{}", sequence.len());
    assert!(sequence.iter().zip(0..).all(|(sequence, at)| *sequence == at));
}

/// With a group that is longer than the queue holds.
#[test]
fn without_a_key_frame_in_the_queue_the_next_one_is_awaited() {
    let mut tunnel = Tunnel::new(CAMERA);
    for number in 0..800_u32 {
        tunnel.push(&picture(number, number.is_multiple_of(250)));
        tunnel.send(if (300..400).contains(&number) { 0 } else { usize::MAX });
        tunnel.now += FRAME_INTERVAL;
    }
    let numbers: Vec<u32> = tunnel.pictures().iter().map(|it| it.number).collect();
    let expected: Vec<u32> = (0..300).chain(500..800).collect();
    assert_eq!(numbers, expected);
    assert!(tunnel.pictures().iter().all(|it| it.packets == FRAME_PACKETS));
    assert_eq!(tunnel.dropped(), 200);
}

#[test]
fn what_was_decided_late_is_dropped_whole() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.run(0..100, usize::MAX);
    for number in 100..174 {
        tunnel.push(&picture(number, false));
        tunnel.now += FRAME_INTERVAL;
    }
    // The delimiter alone: the picture may be a key frame.
    let bytes = picture(174, false);
    tunnel.push(&bytes[..bytes.len() / 3]);
    tunnel.send(usize::MAX);
    assert_eq!(tunnel.pictures().len(), 100);
    tunnel.push(&bytes[bytes.len() / 3..]);
    tunnel.now += FRAME_INTERVAL;
    tunnel.run(175..200, usize::MAX);
    let pictures = tunnel.pictures();
    assert_whole(&pictures);
    assert_eq!(pictures[100].number, 175);
    // And where nothing more comes.
    for number in 200..260 {
        tunnel.push(&picture(number, false));
        tunnel.now += FRAME_INTERVAL;
    }
    tunnel.push(&picture(260, false)[..540]);
    tunnel.queue.end();
    tunnel.send(usize::MAX);
    assert_whole(&tunnel.pictures());
}

/// The origin pauses within the last packet of a key frame for longer than the queue holds anything.
#[test]
fn the_end_of_a_dropped_key_frame_is_no_key_frame() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.run(0..GROUP_FRAMES, usize::MAX);
    let key = frame(GROUP_FRAMES);
    let (begin, end) = key.split_at(key.len() - 10);
    tunnel.push(begin);
    tunnel.now += MAX_QUEUE_TIME * 2;
    tunnel.push(&end[..5]);
    tunnel.push(&end[5..]);
    tunnel.now += FRAME_INTERVAL;
    tunnel.run(GROUP_FRAMES + 1..3 * GROUP_FRAMES, usize::MAX);
    let numbers: Vec<u32> = tunnel.pictures().iter().map(|it| it.number).collect();
    let shown = (0..GROUP_FRAMES).chain(2 * GROUP_FRAMES..3 * GROUP_FRAMES);
    assert_eq!(numbers, shown.collect::<Vec<_>>());
}

#[test]
fn a_faster_source_keeps_back_pressure_and_loses_nothing() {
    let mut tunnel = Tunnel::new(CAMERA);
    let bytes = frame(1).len();
    let mut number = 0;
    // Ten times faster than real time where it is read; the stream takes twice real time.
    for _ in 0..5000 {
        for _ in 0..10 {
            if tunnel.queue.room_bytes(2 * bytes, tunnel.now) < bytes {
                break;
            }
            tunnel.push(&frame(number));
            number += 1;
        }
        tunnel.send(2 * bytes);
        tunnel.now += FRAME_INTERVAL;
    }
    tunnel.send(usize::MAX);
    assert_eq!(tunnel.dropped(), 0);
    assert_eq!(tunnel.pictures().len() as u32, number);
    assert!(number > 9000, "the stream was used: {number}");
    // Bursts that are taken for those of a source in real time, and not more.
    assert!(tunnel.most_held_bytes < 6 * u64::from(GROUP_FRAMES) * bytes as u64);
}

#[test]
fn a_burst_at_the_beginning_is_taken_and_the_stream_is_live_then() {
    let mut tunnel = Tunnel::new(CAMERA);
    // Three seconds at once, on a path that takes nothing at first.
    for number in 0..75 {
        tunnel.push(&frame(number));
        assert_eq!(tunnel.queue.room_bytes(0, tunnel.now), usize::MAX);
    }
    tunnel.run(75..100, 0);
    tunnel.run(100..300, 2 * frame(1).len());
    assert_eq!(tunnel.queue.intake, Intake::RealTime);
    assert_whole(&tunnel.pictures());
}

#[test]
fn a_source_that_was_faster_once_is_looked_at_again() {
    let mut tunnel = Tunnel::new(CAMERA);
    for number in 0..500 {
        tunnel.push(&frame(number));
        tunnel.now += Duration::from_millis(1);
    }
    assert!(matches!(tunnel.queue.intake, Intake::Limited(_)));
    assert!(tunnel.queue.take_report().was_limited);
    tunnel.send(usize::MAX);
    for number in 500..800 {
        tunnel.queue.room_bytes(0, tunnel.now);
        tunnel.push(&frame(number));
        tunnel.send(usize::MAX);
        tunnel.now += FRAME_INTERVAL;
    }
    assert_eq!(tunnel.queue.intake, Intake::RealTime);
    assert_eq!(tunnel.pictures().len(), 800);
}

/// On a path that takes nothing, the source has a break of a second and a half and catches up.
#[test]
fn a_break_of_a_live_source_does_not_limit_it() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.run(0..100, usize::MAX);
    tunnel.run(100..200, 0);
    tunnel.now += Duration::from_millis(1500);
    for number in 200..237 {
        tunnel.push(&frame(number));
    }
    assert_eq!(tunnel.queue.intake, Intake::Observed);
    tunnel.run(237..400, 0);
    assert_eq!(tunnel.queue.intake, Intake::RealTime);
    tunnel.run(400..500, usize::MAX);
    assert_whole(&tunnel.pictures());
}

#[test]
fn what_can_not_be_read_is_never_dropped() {
    let encrypted = "m=video 0 RTP/SAVP 96\r\na=rtpmap:96 H264/90000\r\n";
    for media in [encrypted, "m=video 0 RTP/AVP 33\r\n", ""] {
        let mut tunnel = Tunnel::new(media);
        for number in 0..200 {
            assert_eq!(
                tunnel.queue.room_bytes(1000, tunnel.now),
                1000_usize.saturating_sub(tunnel.queue.parts.bytes)
            );
            tunnel.push(&frame(number));
            tunnel.now += FRAME_INTERVAL;
        }
        tunnel.send(usize::MAX);
        assert_eq!(tunnel.pictures().len(), 200);
        assert_eq!(tunnel.queue.seen(), None);
    }
}

#[test]
fn the_queue_is_bounded_in_bytes() {
    let mut tunnel = Tunnel::new("m=video 0 RTP/AVP 26\r\n");
    tunnel.queue.max_time = Duration::from_secs(600);
    for number in 0..4000_u32 {
        let sequence = number as u16;
        let packet = rtp_packet(26, sequence, number * 3600, &[1; 20_000]);
        tunnel.push(&interleaved(0, &packet));
        tunnel.now += FRAME_INTERVAL;
    }
    assert!(
        tunnel.queue.parts.bytes <= MAX_HELD_BYTES && tunnel.queue.parts.bytes > MAX_HELD_BYTES / 2
    );
    assert!(tunnel.dropped() > 1000);
}

/// Of an origin that sends nothing else at line rate.
#[test]
fn empty_packets_take_no_more_than_the_bound() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.push(&frame(0));
    let before = tunnel.output.len() + frame(0).len();
    let packet = interleaved(5, &[]);
    let empty = packet.repeat(16 << 10);
    let mut pushed = 0;
    while tunnel.queue.room_bytes(0, tunnel.now) > 0 {
        tunnel.push(&empty);
        pushed += empty.len();
        assert!(pushed <= MAX_HELD_BYTES + empty.len());
    }
    assert!(pushed > MAX_HELD_BYTES / 2);
    assert!(tunnel.most_held_bytes <= (MAX_HELD_BYTES + 2 * empty.len()) as u64);
    let parts = tunnel.queue.parts.parts.len();
    assert!(parts <= pushed / parts::MAX_JOINED_BYTES + 10, "{parts}");
    tunnel.send(usize::MAX);
    assert_eq!(tunnel.output.len(), before + pushed);
    assert!(tunnel.output[before..].chunks(packet.len()).all(|it| it == packet));
}

#[test]
fn what_is_never_dropped_is_joined_while_it_is_sent() {
    let mut tunnel = Tunnel::new(CAMERA);
    let mut expected = tunnel.output.clone();
    for number in 0..5000_u32 {
        let packet = interleaved(1, &number.to_be_bytes());
        tunnel.push(&packet);
        expected.extend(packet);
        // Ends inside packets, and inside what was joined.
        tunnel.send(5);
    }
    // 40,000 bytes, of which 25,000 have been sent.
    assert_eq!(tunnel.queue.parts.parts.len(), 2);
    tunnel.send(usize::MAX);
    assert!(tunnel.output == expected);
    assert_eq!(tunnel.queue.held_bytes(), 0);
}

/// With 2,000 packets of one byte a frame.
#[test]
fn small_packets_count_with_what_they_take() {
    let mut tunnel = Tunnel::new("m=video 0 RTP/AVP 26\r\n");
    tunnel.queue.max_time = Duration::from_secs(600);
    for number in 0..400_u32 {
        let packets = (0..2000_u32).map(|at| {
            let sequence = (number * 2000 + at) as u16;
            interleaved(0, &rtp_packet(26, sequence, number * 3600, &[1]))
        });
        tunnel.push(&packets.flatten().collect::<Vec<u8>>());
        tunnel.now += FRAME_INTERVAL;
    }
    let cost = tunnel.queue.parts.cost_bytes();
    assert!(cost <= MAX_HELD_BYTES && cost > MAX_HELD_BYTES / 2, "{cost}");
    assert!(tunnel.queue.parts.bytes < MAX_HELD_BYTES / 4);
    assert!(tunnel.dropped() > 100);
}

/// The first frame in the queue has been begun, and all behind it are dropped.
#[test]
fn a_reader_that_stands_still_leaves_no_record_of_dropped_frames() {
    let jpeg = |number: u32| {
        interleaved(0, &rtp_packet(26, number as u16, number * 3600, &[1; PAYLOAD_BYTES]))
    };
    for (media, is_jpeg) in [(CAMERA, false), ("m=video 0 RTP/AVP 26\r\n", true)] {
        let mut tunnel = Tunnel::new(media);
        for number in 0..3000_u32 {
            tunnel.push(&if is_jpeg { jpeg(number) } else { frame(number) });
            tunnel.send(match number {
                0..100 => usize::MAX,
                100 => 200,
                _ => 0,
            });
            tunnel.now += FRAME_INTERVAL;
        }
        assert!(tunnel.dropped() > 2800, "{media}");
        // Those of the configured time and one group.
        let frames = tunnel.queue.media[0].frame_count();
        assert!((2..100).contains(&frames), "{media}: {frames}");
    }
}

/// With audio every millisecond, on a path that takes nothing.
#[test]
fn what_is_late_goes_in_few_sweeps() {
    let mut tunnel = Tunnel::new("m=audio 0 RTP/AVP 0\r\n");
    let mut sweeps = 0;
    for number in 0..10_000_u32 {
        tunnel.push(&interleaved(2, &rtp_packet(0, number as u16, number * 8, &[1; 8])));
        let report = tunnel.queue.take_report();
        sweeps += u32::from(report.dropped_audio > 0);
        let oldest = tunnel.queue.seen().unwrap().oldest.unwrap();
        assert!(tunnel.now - oldest <= MAX_QUEUE_TIME + DROP_INTERVAL);
        tunnel.now += Duration::from_millis(1);
    }
    // Those of eight seconds.
    assert!((300..=400).contains(&sweeps), "{sweeps}");
}

/// A path that takes nothing for a while: groups are dropped, and their memory is released while others come.
#[test]
fn memory_of_dropped_packets_is_released_while_others_come() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.run(0..100, usize::MAX);
    let mut most = 0;
    for numbers in (100..1000).map(|number| number..number + 1) {
        tunnel.run(numbers, 0);
        most = most.max(tunnel.queue.parts.discarded_bytes());
    }
    assert!(most > 0, "a group is not released at once");
    assert!(most < 40 * frame(1).len(), "{most}: more than a group");
    tunnel.run(1000..1100, usize::MAX);
    assert_eq!(tunnel.queue.parts.discarded_bytes(), 0);
}

#[test]
fn nothing_is_lost_of_a_connection_that_is_no_longer_followed() {
    let mut tunnel = Tunnel::new(CAMERA);
    tunnel.push(&frame(0));
    tunnel.push(b"RTSP/1.0 200");
    tunnel.send(100);
    let rest = tunnel.queue.drain();
    assert!(rest == [&frame(0)[100..], b"RTSP/1.0 200"].concat());
    assert!(tunnel.queue.is_empty() && tunnel.queue.held_bytes() == 0);
}

/// The next number of a sequence that is the same in each run (xorshift).
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Whatever the sizes of frames, pieces and writes are.
#[test]
fn random_streams_lose_whole_frames_only() {
    let mut dropped = 0;
    for seed in 1..=200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: u64| next_random(&mut state) % below;
        let mut tunnel = Tunnel::new(CAMERA);
        let described = tunnel.output.len();
        let (mut frames, mut others, mut sequence) = (Vec::new(), Vec::new(), 0_u16);
        let group = 1 + random(60) as u32;
        for number in 0..400_u32 {
            let mut bytes = Vec::new();
            let is_key = number.is_multiple_of(group);
            let mut payloads: Vec<Vec<u8>> = Vec::new();
            for index in 0..1 + random(4) {
                let unit = match (index, random(2)) {
                    (0, 0) => 0x09,
                    _ if is_key => 0x65,
                    _ => 0x41,
                };
                payloads.push([&[unit][..], &vec![number as u8; random(900) as usize]].concat());
            }
            // A delimiter alone is no picture.
            payloads.push(vec![if is_key { 0x65 } else { 0x41 }, number as u8]);
            for payload in &payloads {
                let packet = rtp_packet(96, sequence, number * 3600, payload);
                sequence = sequence.wrapping_add(1);
                bytes.extend(interleaved(0, &packet));
                if random(5) == 0 {
                    others.extend(report());
                    bytes.extend(report());
                }
            }
            frames.push((is_key, payloads));
            let most = 1 + random(4000) as usize;
            for piece in bytes.chunks(most) {
                tunnel.push(piece);
            }
            let is_blocked = number / 50 % 3 == 2;
            tunnel.send(if is_blocked { 0 } else { random(6000) as usize });
            tunnel.now += Duration::from_millis(30 + random(20));
        }
        tunnel.queue.end();
        tunnel.send(usize::MAX);
        dropped += tunnel.dropped();
        assert_only_whole_frames_are_missing(&tunnel.output[described..], &frames, &others);
    }
    assert!(dropped > 1000, "{dropped}");
}

#[track_caller]
fn assert_only_whole_frames_are_missing(
    output: &[u8],
    frames: &[(bool, Vec<Vec<u8>>)],
    others: &[u8],
) {
    let mut got: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
    let (mut rest, mut next) = (Vec::new(), 0_u16);
    Splitter::default().take(output, |part| match part {
        StreamPart::Packet(packet) if packet[1] == 0 => {
            let header = rtp::parse(&packet[4..]).unwrap();
            assert_eq!(header.sequence, next);
            next = next.wrapping_add(1);
            let number = header.timestamp as usize / 3600;
            let payload = packet[4..][header.payload].to_vec();
            match got.last_mut().filter(|it| it.0 == number) {
                Some(frame) => frame.1.push(payload),
                None => got.push((number, vec![payload])),
            }
        }
        StreamPart::Packet(bytes) | StreamPart::Other(bytes) => rest.extend(bytes),
    });
    assert!(rest == others);
    let mut before = None;
    for (number, payloads) in got {
        assert!(payloads == frames[number].1, "frame {number}");
        let follows = before.map_or(0, |before| before + 1) == number;
        assert!(follows || frames[number].0, "frame {number} after {before:?}");
        before = Some(number);
    }
}
