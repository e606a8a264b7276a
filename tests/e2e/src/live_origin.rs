//! An RTSP origin that sends RTP in the RTSP connection (RFC 2326, Section 10.12) at its own pace, and stops the
//! stream when its connection takes nothing for too long, as live555 does after 500 ms.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::listeners::read_head;
use crate::origin::{Origin, listen};
use crate::rtsp::field;

/// RTP clock of video (RFC 6184, Section 8.2.1).
const CLOCK_HZ: u32 = 90_000;
/// Frames a second, of media time.
const FRAMES_PER_S: u32 = 25;
/// Frames of a group of pictures.
pub const GROUP_FRAMES: u32 = 25;
/// Of a packet, without its headers.
const PAYLOAD_BYTES: usize = 1400;
/// Send buffer of an origin's connection, about what live555 asks for.
const SEND_BUFFER_BYTES: usize = 64 << 10;

const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=live\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:trackID=1\r\n";

/// What an origin sends after PLAY.
#[derive(Clone, Copy, Debug)]
pub struct LiveStream {
    /// Media time over real time.
    pub speed: f64,
    /// Frames until it ends.
    pub frames: u32,
    /// Packets of each frame.
    pub frame_packets: u16,
    /// How long the connection may take nothing before the stream ends.
    pub send_timeout: Duration,
}

/// How a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// All was sent, in this time.
    Complete(Duration),
    /// The connection took nothing after so many frames.
    GaveUp(u32),
}

/// An origin with one stream.
#[derive(Debug)]
pub struct LiveOrigin {
    origin: Origin,
    ends: Receiver<StreamEnd>,
}

/// A frame as a player got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Its number in the stream.
    pub number: u32,
    /// Packets that came.
    pub packets: u16,
}

impl LiveOrigin {
    /// On a port of 127.0.0.1.
    #[must_use]
    pub fn start(stream: LiveStream) -> Self {
        let (tell, ends) = channel();
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 128);
        Self { origin: Origin::serve(listener, move |socket| serve(socket, stream, &tell)), ends }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.origin.address()
    }

    /// How the stream has ended.
    ///
    /// # Panics
    /// When it does not end within `at_most`.
    #[track_caller]
    #[must_use]
    pub fn end(&self, at_most: Duration) -> StreamEnd {
        self.ends.recv_timeout(at_most).expect("the stream ends")
    }
}

fn serve(mut socket: Socket, stream: LiveStream, tell: &Sender<StreamEnd>) {
    socket.set_send_buffer_size(SEND_BUFFER_BYTES).expect("a buffer can be smaller");
    while let Ok(head) = read_head(&mut socket) {
        let cseq = field(&head, "CSeq").unwrap_or_default();
        let method = head.split(' ').next().unwrap_or_default();
        let (fields, content) = match method {
            "DESCRIBE" => (format!("Content-Length: {}\r\n", DESCRIPTION.len()), DESCRIPTION),
            "SETUP" => {
                let transport = field(&head, "Transport").unwrap_or_default();
                (format!("Transport: {transport}\r\nSession: 47\r\n"), "")
            }
            _ => (String::new(), ""),
        };
        let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n{fields}\r\n{content}");
        if socket.write_all(answer.as_bytes()).is_err() {
            return;
        }
        if method == "PLAY" {
            tell.send(stream.send(&mut socket)).ok();
            socket.shutdown(std::net::Shutdown::Write).ok();
        }
    }
}

impl LiveStream {
    fn send(&self, socket: &mut Socket) -> StreamEnd {
        socket.set_write_timeout(Some(self.send_timeout)).expect("a time-out");
        let begin = Instant::now();
        for number in 0..self.frames {
            let media_s = f64::from(number) / f64::from(FRAMES_PER_S);
            let due = begin + Duration::from_secs_f64(media_s / self.speed);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.send_frame(socket, number).is_err() {
                return StreamEnd::GaveUp(number);
            }
        }
        StreamEnd::Complete(begin.elapsed())
    }

    fn send_frame(&self, socket: &mut Socket, number: u32) -> io::Result<()> {
        // NAL units of one slice each (RFC 6184, Section 5.6).
        let unit = if number.is_multiple_of(GROUP_FRAMES) { 0x65 } else { 0x41 };
        for packet in 0..self.frame_packets {
            let sequence = (number as u16).wrapping_mul(self.frame_packets).wrapping_add(packet);
            let timestamp = number.wrapping_mul(CLOCK_HZ / FRAMES_PER_S);
            let marker = if packet + 1 == self.frame_packets { 0x80 } else { 0 };
            let length = u16::try_from(12 + PAYLOAD_BYTES).expect("it is short").to_be_bytes();
            let mut bytes = vec![b'$', 0, length[0], length[1], 0x80, marker | 96];
            bytes.extend(sequence.to_be_bytes());
            bytes.extend(timestamp.to_be_bytes());
            bytes.extend([0, 0, 0, 1, unit]);
            bytes.resize(4 + 12 + PAYLOAD_BYTES, packet as u8);
            socket.write_all(&bytes)?;
        }
        Ok(())
    }
}

/// The frames in what a player got.
///
/// # Panics
/// When a packet is cut, has changed, or sequence numbers have a gap.
#[track_caller]
#[must_use]
pub fn received_frames(mut bytes: &[u8]) -> Vec<ReceivedFrame> {
    let mut frames: Vec<ReceivedFrame> = Vec::new();
    let mut next_sequence = None;
    while let [b'$', 0, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(rest.len() >= length, "the last packet is cut after {} frames", frames.len());
        let (packet, behind) = rest.split_at(length);
        bytes = behind;
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        assert_eq!(sequence, next_sequence.unwrap_or(sequence), "after {} frames", frames.len());
        next_sequence = Some(sequence.wrapping_add(1));
        let timestamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
        let number = timestamp / (CLOCK_HZ / FRAMES_PER_S);
        match frames.last_mut().filter(|it| it.number == number) {
            Some(frame) => frame.packets += 1,
            None => frames.push(ReceivedFrame { number, packets: 1 }),
        }
        let index = frames.last().map_or(0, |it| it.packets - 1);
        assert_eq!(packet.len(), 12 + PAYLOAD_BYTES);
        assert!(packet[13..].iter().all(|byte| *byte == index as u8), "frame {number}");
    }
    assert!(bytes.is_empty(), "no packet behind {} frames", frames.len());
    frames
}
