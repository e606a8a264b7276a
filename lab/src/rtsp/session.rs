//! A session with a stream: from the packets that arrived to the frames on the screen.

use serde::Serialize;

use super::frames::Assembly;
use super::playout::{Frame, Playout, Stall};
use super::stream::Stream;

/// A session; `docs/research/qoe.md` defines each.
#[derive(Debug, Clone, Serialize)]
pub struct Session {
    /// How long it lasted.
    pub session_s: f64,
    /// From the play request to the first frame; `None` when it never came.
    pub startup_s: Option<f64>,
    /// Interruptions after that.
    pub stalls: Vec<Stall>,
    /// Time in which frames were due that were not shown, outside of interruptions.
    pub frozen_s: f64,
    /// Time in interruptions, and that of frames not shown, over the session's time, or over the time until the server
    /// gave up the stream.
    pub rebuffer_ratio: f64,
    /// Mean PSNR of what was on the screen from the first frame on.
    pub psnr_db: Option<f64>,
    /// RTP packets that never came, of all up to the last that did.
    pub rtp_loss: f64,
    /// Frames that were due and not shown: lost, or referring to a lost frame.
    pub lost_frames: usize,
    /// Frames of which all packets came, but less than the file has of them: the server cut them off.
    pub truncated_frames: usize,
    /// When the last RTP came of a stream that the server gave up.
    pub gave_up_s: Option<f64>,
    /// When the first bytes came that are no RTSP, after the server had given up the stream inside a packet.
    pub broken_off_s: Option<f64>,
    /// One for each second.
    pub seconds: Vec<Second>,
    /// All that were to be shown, or came.
    pub frames: Vec<FrameSeen>,
}

/// What was on the screen in a second of a session.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Second {
    /// Mean; `None` before the first frame.
    pub psnr_db: Option<f64>,
    /// Media in the client's buffer at the second's end.
    pub buffer_s: f64,
}

/// When a frame came and was shown; in seconds since the play request.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FrameSeen {
    /// When its last packet arrived.
    pub whole_s: Option<f64>,
    /// When it was shown.
    pub shown_s: Option<f64>,
    /// Bytes of it that arrived.
    pub bytes: u64,
}

impl Session {
    /// Of a player with a buffer of `buffer_s` that watched for `session_s`.
    #[must_use]
    pub fn of(stream: &Stream, assembly: &Assembly, buffer_s: f64, session_s: f64) -> Self {
        let (there, frames) = (frame_count(stream), frames_of(stream, assembly));
        let playout = Playout::of(&frames, buffer_s, session_s);
        let arrived = assembly.arrived();
        let cut = |(number, it): (usize, &super::frames::Arrived)| {
            it.whole_s.is_some() && it.slice_bytes < stream.slice_bytes(number)
        };
        let due = playout.due;
        let lost_frames = playout.shown_s[..due].iter().filter(|shown| shown.is_none()).count();
        let all = assembly.packets + assembly.lost_packets;
        let seen = |(number, shown_s): (usize, &Option<f64>)| FrameSeen {
            whole_s: frames[number].whole_s,
            shown_s: *shown_s,
            bytes: arrived.get(number).map_or(0, |it| it.slice_bytes),
        };
        let kept = due.max(arrived.len().min(there));
        let screen = ScreenTimeline::of(stream, &playout);
        let seconds = (0..playout.session_s.ceil() as u32).map(f64::from);
        Self {
            session_s: playout.session_s,
            startup_s: playout.startup_s,
            frozen_s: playout.frozen_s,
            rebuffer_ratio: playout.rebuffer_ratio(),
            psnr_db: screen.mean_db(0.0, playout.session_s),
            rtp_loss: if all > 0 { assembly.lost_packets as f64 / all as f64 } else { 0.0 },
            lost_frames,
            gave_up_s: None,
            broken_off_s: None,
            truncated_frames: arrived.iter().enumerate().filter(|it| cut(*it)).count(),
            seconds: seconds
                .map(|from_s| {
                    let to_s = (from_s + 1.0).min(playout.session_s);
                    let buffer_s = playout.buffered_s(&frames, to_s);
                    Second { psnr_db: screen.mean_db(from_s, to_s), buffer_s }
                })
                .collect(),
            frames: playout.shown_s[..kept].iter().enumerate().map(seen).collect(),
            stalls: playout.stalls,
        }
    }

    /// The same session if the server gave up the stream `at_s`: what follows is not rebuffering.
    #[must_use]
    pub fn given_up(self, stream: &Stream, assembly: &Assembly, buffer_s: f64, at_s: f64) -> Self {
        let until = Playout::of(&frames_of(stream, assembly), buffer_s, at_s);
        Self { gave_up_s: Some(at_s), rebuffer_ratio: until.rebuffer_ratio(), ..self }
    }

    /// Interruptions that began before the server gave up the stream.
    #[must_use]
    pub fn stall_count(&self) -> usize {
        let end_s = self.gave_up_s.unwrap_or(f64::INFINITY);
        self.stalls.iter().filter(|stall| stall.start_s < end_s).count()
    }
}

/// Every frame of a stream, with its arrival.
fn frames_of(stream: &Stream, assembly: &Assembly) -> Vec<Frame> {
    assembly.frames(frame_count(stream), stream.frames_of_group())
}

fn frame_count(stream: &Stream) -> usize {
    (stream.duration().as_secs_f64() * stream.fps()).round() as usize
}

/// The screen over time, per frame time.
struct ScreenTimeline {
    /// From when on, and what it was worth.
    steps: Vec<(f64, f64)>,
}

impl ScreenTimeline {
    fn of(stream: &Stream, playout: &Playout) -> Self {
        let shown: Vec<(usize, f64)> = playout
            .shown_s
            .iter()
            .enumerate()
            .filter_map(|(number, shown_s)| Some((number, (*shown_s)?)))
            .collect();
        let frame_s = 1.0 / stream.fps();
        let mut steps = Vec::new();
        for (index, (number, from_s)) in shown.iter().enumerate() {
            let to_s = shown.get(index + 1).map_or(playout.session_s, |next| next.1);
            for step in 0_u32.. {
                let for_s = f64::from(step) * frame_s;
                // Half a frame: rounding must not make a step of its own.
                if step > 0 && from_s + for_s + frame_s / 2.0 > to_s {
                    break;
                }
                steps.push((from_s + for_s, stream.psnr_db(*number, for_s)));
            }
        }
        steps.push((playout.session_s, f64::NAN));
        Self { steps }
    }

    /// Mean over time; `None` where nothing was shown.
    fn mean_db(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let (mut sum, mut time_s) = (0.0, 0.0);
        for pair in self.steps.windows(2) {
            let [(start_s, db), (end_s, _)] = *pair else { continue };
            let within_s = end_s.min(to_s) - start_s.max(from_s);
            if within_s > 0.0 {
                sum += db * within_s;
                time_s += within_s;
            }
        }
        (time_s > 0.0).then(|| sum / time_s)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rtp::RtpPacket;
    use super::super::stream::tests::stream;
    use super::*;

    /// A packet for each frame of 2 a second, `late_s` after its time; `None` is lost.
    fn assembly(stream: &Stream, frames: u16, late_s: impl Fn(u16) -> Option<f64>) -> Assembly {
        let mut assembly = Assembly::new(stream.fps());
        for number in 0..frames {
            let Some(late_s) = late_s(number) else { continue };
            let packet = RtpPacket {
                sequence: number,
                timestamp: u32::from(number) * 45_000,
                marker: true,
                bytes: 100,
                slice_bytes: stream.slice_bytes(usize::from(number)) as usize,
            };
            assembly.take(packet, f64::from(number) / 2.0 + late_s).unwrap();
        }
        assembly
    }

    #[test]
    fn an_undisturbed_session_has_the_files_quality() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 10);
        let seen = Session::of(&stream, &assembly(&stream, 40, |_| Some(0.1)), 1.0, 12.0);
        assert_eq!((seen.stalls.len(), seen.lost_frames, seen.truncated_frames), (0, 0, 0));
        assert!((seen.startup_s.unwrap() - 1.1).abs() < 1e-9);
        let mean = seen.seconds[4].psnr_db.unwrap();
        assert!((40.0..=43.0).contains(&mean) && seen.seconds[0].psnr_db.is_none());
        // Half a second of each frame of the clip.
        assert!((seen.psnr_db.unwrap() - 41.5).abs() < 0.2, "{:?}", seen.psnr_db);
        assert_eq!(seen.seconds.len(), 12);
    }

    #[test]
    fn a_frozen_picture_is_worth_less() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 10);
        let outage = |number: u16| {
            let media_s = f64::from(number) / 2.0;
            Some(if media_s >= 4.0 { (8.0 - media_s).max(0.1) } else { 0.1 })
        };
        let seen = Session::of(&stream, &assembly(&stream, 40, outage), 1.0, 12.0);
        assert_eq!(seen.stalls.len(), 1, "{:?}", seen.stalls);
        let undisturbed = Session::of(&stream, &assembly(&stream, 40, |_| Some(0.1)), 1.0, 12.0);
        assert!(seen.psnr_db.unwrap() < undisturbed.psnr_db.unwrap() - 3.0);
        assert_eq!(seen.lost_frames, 0);
    }

    #[test]
    fn what_the_server_cut_off_or_dropped_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 10);
        let with_loss = assembly(&stream, 40, |number| (number != 8).then_some(0.0));
        let seen = Session::of(&stream, &with_loss, 1.0, 30.0);
        // With the key frame the one that refers to it is lost.
        assert_eq!((seen.lost_frames, seen.truncated_frames), (2, 0));
        // Half a second each.
        assert!((seen.frozen_s - 1.0).abs() < 1e-9 && seen.stalls.is_empty());
        assert!((seen.rebuffer_ratio - 1.0 / seen.session_s).abs() < 1e-9);
        assert!((seen.rtp_loss - 1.0 / 40.0).abs() < 1e-9);

        let mut cut = Assembly::new(stream.fps());
        let (marker, slice_bytes) = (true, 1);
        let packet = RtpPacket { sequence: 0, timestamp: 0, marker, bytes: 13, slice_bytes };
        cut.take(packet, 0.0).unwrap();
        assert_eq!(Session::of(&stream, &cut, 1.0, 30.0).truncated_frames, 1);
    }

    /// From 4 s on nothing comes: an outage to the end, or the server has given the stream up.
    #[test]
    fn what_follows_after_the_server_gave_up_is_no_rebuffering() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 10);
        let ends = assembly(&stream, 40, |number| (number < 8).then_some(0.1));
        let outage = Session::of(&stream, &ends, 1.0, 12.0);
        assert!(outage.rebuffer_ratio > 0.5 && outage.stall_count() == 1, "{outage:?}");
        let given_up = outage.given_up(&stream, &ends, 1.0, 3.6);
        assert_eq!((given_up.gave_up_s, given_up.stall_count()), (Some(3.6), 0));
        assert!(given_up.rebuffer_ratio == 0.0, "{given_up:?}");
    }

    #[test]
    fn nothing_at_all_is_a_stall_as_long_as_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 10);
        let seen = Session::of(&stream, &Assembly::new(2.0), 1.0, 12.0);
        assert_eq!((seen.rebuffer_ratio, seen.psnr_db, seen.startup_s), (1.0, None, None));
        assert_eq!(seen.seconds.len(), 12);
    }
}
