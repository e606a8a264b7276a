//! Playout of a stream in virtual time, from the arrival times of its frames.
//!
//! The player begins when it holds `buffer_s` of media, shows each frame at its time, stalls where the
//! next one is not there, and goes on when it holds `buffer_s` again, with the first frame from there on
//! that it can show. A lost frame is known to be lost when a later frame is whole; the picture before it
//! stays. A stall that has not ended when the session does lasts to its end, and a session that never began is
//! a single stall over its whole time, as in `docs/research/qoe.md` for DASH.

use serde::Serialize;

/// A frame of the stream, in the order of display.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Its time in the stream.
    pub media_s: f64,
    /// When its last packet arrived, since the play request; `None` if one is missing.
    pub whole_s: Option<f64>,
    /// Whether all that it refers to is whole too. If not, the picture before it stays, although it is
    /// not waited for.
    pub decodable: bool,
}

impl Frame {
    fn can_be_shown(&self) -> bool {
        self.whole_s.is_some() && self.decodable
    }
}

/// A time in which the picture was frozen for lack of data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stall {
    /// Since the play request.
    pub start_s: f64,
    /// Since the play request.
    pub end_s: f64,
}

/// The result of a playout.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Playout {
    /// When the first frame was shown; `None` when that never happened.
    pub startup_s: Option<f64>,
    /// Interruptions, in order.
    pub stalls: Vec<Stall>,
    /// When each frame was shown; `None` for frames that were not.
    pub shown_s: Vec<Option<f64>>,
    /// So many frames, from the first on, were shown or passed over.
    pub due: usize,
    /// How long the session lasted: to its given end, or until all was shown.
    pub session_s: f64,
}

impl Playout {
    /// Plays `frames` for at most `session_s`, with a player that holds `buffer_s` of media before it
    /// begins and after each stall.
    #[must_use]
    pub fn of(frames: &[Frame], buffer_s: f64, session_s: f64) -> Self {
        let mut playout = Self { shown_s: vec![None; frames.len()], session_s, ..Self::default() };
        let known_s = known(frames);
        // From when on the player holds `buffer_s` from this frame on, or all that there is.
        let filled_s = |first: usize| {
            let ahead = frames[first..].iter().zip(&known_s[first..]);
            let wanted = ahead.take_while(|(it, _)| it.media_s - frames[first].media_s <= buffer_s);
            wanted.map(|(_, known_s)| *known_s).fold(0.0, f64::max)
        };
        let begins_s = if frames.is_empty() { f64::INFINITY } else { filled_s(0) };
        if begins_s >= session_s {
            playout.stalls.push(Stall { start_s: 0.0, end_s: session_s });
            return playout;
        }
        playout.startup_s = Some(begins_s);
        let mut offset_s = begins_s - frames[0].media_s;
        let mut goes_on_with = 0;
        for (index, frame) in frames.iter().enumerate() {
            if index < goes_on_with {
                continue;
            }
            let due_s = frame.media_s + offset_s;
            if due_s >= session_s {
                return playout;
            }
            if known_s[index] > due_s {
                // A frozen picture does not stay frozen for frames that were lost meanwhile.
                let showable = frames[index..].iter().position(Frame::can_be_shown);
                goes_on_with = index + showable.unwrap_or(0);
                let end_s = filled_s(goes_on_with).min(session_s);
                playout.stalls.push(Stall { start_s: due_s, end_s });
                if end_s >= session_s {
                    return playout;
                }
                offset_s = end_s - frames[goes_on_with].media_s;
                if goes_on_with > index {
                    continue;
                }
            }
            if frame.can_be_shown() {
                playout.shown_s[index] = Some(frame.media_s + offset_s);
            }
            playout.due = index + 1;
        }
        if let Some(last) = frames.last() {
            playout.session_s = session_s.min(last.media_s + offset_s);
        }
        playout
    }

    /// Media that a player holds at `at_s` and has not shown yet: up to the last frame that was whole by
    /// then. `frames` are those that were played.
    #[must_use]
    pub fn buffered_s(&self, frames: &[Frame], at_s: f64) -> f64 {
        let arrived = |it: &&Frame| it.whole_s.is_some_and(|whole_s| whole_s <= at_s);
        let Some(newest) = frames.iter().rfind(arrived) else { return 0.0 };
        let shown = self.shown_s.iter().rposition(|it| it.is_some_and(|shown_s| shown_s <= at_s));
        let from_s = shown.map_or(0.0, |shown| frames[shown].media_s);
        (newest.media_s - from_s).max(0.0)
    }

    /// Time in stalls over the session's.
    #[must_use]
    pub fn rebuffer_ratio(&self) -> f64 {
        let lengths_s = self.stalls.iter().map(|stall| stall.end_s - stall.start_s);
        // A sum of nothing is -0.0.
        let stalled_s = lengths_s.fold(0.0, |sum_s, length_s| sum_s + length_s);
        if self.session_s > 0.0 { (stalled_s / self.session_s).min(1.0) } else { 0.0 }
    }
}

/// When it was known what becomes of each frame: when it was whole, or, lost, when a later one was.
fn known(frames: &[Frame]) -> Vec<f64> {
    let mut later_s = f64::INFINITY;
    let mut known_s: Vec<f64> = frames
        .iter()
        .rev()
        .map(|frame| {
            let known_s = frame.whole_s.unwrap_or(later_s);
            later_s = later_s.min(known_s);
            known_s
        })
        .collect();
    known_s.reverse();
    known_s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten frames a second, each `late_s` after its time.
    fn frames(count: u32, late_s: impl Fn(u32) -> Option<f64>) -> Vec<Frame> {
        let frame = |number: u32| {
            let media_s = f64::from(number) / 10.0;
            let whole_s = late_s(number).map(|late_s| media_s + late_s);
            Frame { media_s, whole_s, decodable: true }
        };
        (0..count).map(frame).collect()
    }

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_steady_stream_begins_when_the_buffer_is_full_and_never_stalls() {
        let seen = Playout::of(&frames(100, |_| Some(0.2)), 1.0, 60.0);
        assert!(is_close(seen.startup_s.unwrap(), 1.2), "{seen:?}");
        assert!(seen.stalls.is_empty() && is_close(seen.shown_s[10].unwrap(), 2.2));
        assert!(is_close(seen.session_s, 11.1), "until all is shown: {}", seen.session_s);
        assert!(is_close(seen.buffered_s(&frames(100, |_| Some(0.2)), 5.05), 1.0));
    }

    /// For 3 s nothing arrives, then all of it at once: a buffer of a second makes 2 s of stall, and as
    /// much as is missing of a full buffer when it goes on.
    #[test]
    fn an_outage_stalls_for_what_the_buffer_does_not_cover() {
        let late = |number: u32| {
            let media_s = f64::from(number) / 10.0;
            Some(if (4.0..7.0).contains(&media_s) { 7.0 - media_s } else { 0.0 })
        };
        let seen = Playout::of(&frames(200, late), 1.0, 60.0);
        assert!(is_close(seen.startup_s.unwrap(), 1.0));
        let [stall] = seen.stalls[..] else { panic!("{seen:?}") };
        assert!(is_close(stall.start_s, 5.0) && is_close(stall.end_s, 7.0), "{stall:?}");
        assert!(is_close(seen.rebuffer_ratio(), 2.0 / seen.session_s));
    }

    #[test]
    fn a_lost_frame_is_passed_over_and_not_waited_for() {
        let seen = Playout::of(&frames(50, |it| (it != 20).then_some(0.0)), 0.5, 60.0);
        assert!(seen.stalls.is_empty());
        assert_eq!(seen.shown_s[20], None);
        assert!(seen.shown_s[21].is_some());
    }

    /// Over UDP, where nothing is sent again: 3 s of frames never come.
    #[test]
    fn after_an_outage_it_goes_on_with_what_came_after_it() {
        let lost = |number: u32| (!(40..70).contains(&number)).then_some(0.0);
        let seen = Playout::of(&frames(200, lost), 1.0, 60.0);
        let [stall] = seen.stalls[..] else { panic!("{seen:?}") };
        // The last second that it held was over at 5.0 s, and another one is there at 8.0 s.
        assert!(is_close(stall.start_s, 5.0) && is_close(stall.end_s, 8.0), "{stall:?}");
        assert!(seen.shown_s[40..70].iter().all(Option::is_none) && seen.due == 200);
        assert!(
            is_close(seen.shown_s[70].unwrap(), 8.0) && is_close(seen.shown_s[71].unwrap(), 8.1)
        );
    }

    #[test]
    fn what_refers_to_a_lost_frame_is_neither_shown_nor_waited_for() {
        let mut frames = frames(50, |it| (it != 20).then_some(0.0));
        frames[21..30].iter_mut().for_each(|it| it.decodable = false);
        let seen = Playout::of(&frames, 0.5, 60.0);
        assert!(seen.stalls.is_empty());
        let shown: Vec<bool> = seen.shown_s[19..31].iter().map(Option::is_some).collect();
        assert!(shown[0] && shown[11] && shown[1..11].iter().all(|shown| !shown), "{shown:?}");
    }

    #[test]
    fn an_end_without_the_rest_is_a_stall_to_the_end() {
        let seen = Playout::of(&frames(100, |it| (it < 50).then_some(0.0)), 0.5, 30.0);
        let [stall] = seen.stalls[..] else { panic!("{seen:?}") };
        assert!(is_close(stall.start_s, 5.5) && is_close(stall.end_s, 30.0), "{stall:?}");
        assert_eq!(seen.due, 50, "the rest is waited for");
    }

    #[test]
    fn what_never_began_is_one_stall() {
        for frames in [frames(10, |_| None), Vec::new()] {
            let seen = Playout::of(&frames, 0.5, 30.0);
            assert_eq!((seen.startup_s, seen.rebuffer_ratio()), (None, 1.0));
        }
    }
}
