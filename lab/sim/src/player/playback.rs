use std::time::Duration;

use super::delays::RENDER_DELAY;
use super::ladder::BitrateLadder;
use super::outcome::{PlayerOutcome, PlayerSample};

/// Media with which the browser waits for more (measured: docs/research/qoe-results.md, Validation).
const WAITING_LEVEL: Duration = Duration::from_millis(110);
/// What the browser has decoded before it is shown, too late for a segment that replaces it: four frames that the renderer
/// of Chromium holds (`limits::kMaxVideoFrames`), at 24 frames a second, and what is in the decoder, [`WAITING_LEVEL`].
const DECODED_AHEAD: Duration = Duration::from_millis(277);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaybackState {
    /// No frame yet.
    Starting,
    /// There is enough media; the next frame comes at this time.
    Resuming {
        at: Duration,
    },
    Playing,
    Stalled,
}

/// The buffer and what is on the screen. All times are since the play request; the media begins at zero, and has no gaps.
#[derive(Clone, Debug)]
pub(super) struct PlaybackClock {
    segment: Duration,
    /// Announced rates of the rungs.
    kbps: Vec<u64>,
    state: PlaybackState,
    now: Duration,
    /// Media time on the screen.
    position: Duration,
    /// The rung of each segment that came: the last to come before it was decoded.
    rungs: Vec<u8>,
    /// The segment on the screen and its rung.
    shown: Option<(usize, usize)>,
    /// Rate in kbit/s by time played in nanoseconds.
    kbps_ns: u128,
    outcome: PlayerOutcome,
}

impl PlaybackClock {
    pub(super) fn new(ladder: &BitrateLadder) -> Self {
        Self {
            segment: ladder.segment,
            kbps: ladder.rungs.iter().map(|rung| rung.kbps).collect(),
            state: PlaybackState::Starting,
            now: Duration::ZERO,
            position: Duration::ZERO,
            rungs: Vec::new(),
            shown: None,
            kbps_ns: 0,
            outcome: PlayerOutcome::default(),
        }
    }

    /// Plays up to `now`.
    pub(super) fn advance_to(&mut self, now: Duration) {
        while self.now < now {
            match self.state {
                PlaybackState::Starting => self.now = now,
                PlaybackState::Resuming { at } => {
                    let until = at.min(now);
                    if self.outcome.startup.is_some() {
                        self.outcome.stalled += until - self.now;
                    }
                    self.now = until;
                    if until == at {
                        self.outcome.startup.get_or_insert(at);
                        self.state = PlaybackState::Playing;
                    }
                }
                PlaybackState::Playing => self.play(now),
                PlaybackState::Stalled => {
                    self.outcome.stalled += now - self.now;
                    self.now = now;
                }
            }
        }
    }

    /// Plays up to `now`, to the end of a segment, or until the browser waits.
    fn play(&mut self, now: Duration) {
        let left = self.level().saturating_sub(WAITING_LEVEL);
        if left.is_zero() {
            self.state = PlaybackState::Stalled;
            self.outcome.stalls += 1;
            return;
        }
        let index = self.index_of(self.position);
        self.show(index);
        let segment_end = self.end_of(index);
        let step = (now - self.now).min(left).min(segment_end - self.position);
        let kbps = self.shown.map_or(0, |(_, rung)| self.kbps[rung]);
        self.kbps_ns += u128::from(kbps) * step.as_nanos();
        self.outcome.played += step;
        self.position += step;
        self.now += step;
    }

    fn show(&mut self, index: usize) {
        if self.shown.is_some_and(|(shown, _)| shown == index) {
            return;
        }
        let rung = usize::from(self.rungs[index]);
        if let Some((_, before)) = self.shown.filter(|(_, before)| *before != rung) {
            self.outcome.switches += 1;
            self.outcome.switched_kbps += self.kbps[rung].abs_diff(self.kbps[before]);
        }
        self.shown = Some((index, rung));
    }

    /// A segment is in the buffer from now on.
    pub(super) fn append(&mut self, index: u64, rung: usize) {
        let index = index as usize;
        debug_assert!(index <= self.rungs.len(), "no gaps");
        // At most 64 rungs.
        let rung = rung as u8;
        let is_decoded = self.segment * index as u32 <= self.position + DECODED_AHEAD;
        match self.rungs.get_mut(index) {
            Some(_) if is_decoded => {}
            Some(present) => *present = rung,
            None => self.rungs.push(rung),
        }
        let waits = matches!(self.state, PlaybackState::Starting | PlaybackState::Stalled);
        if waits && self.level() > WAITING_LEVEL {
            self.state = PlaybackState::Resuming { at: self.now + RENDER_DELAY };
        }
    }

    fn end_of(&self, index: usize) -> Duration {
        self.segment * (index as u32 + 1)
    }

    fn index_of(&self, media: Duration) -> usize {
        (media.as_nanos() / self.segment.as_nanos()) as usize
    }

    /// The segment at this media time, and its rung if it has come.
    pub(super) fn segment_at(&self, media: Duration) -> (u64, Option<usize>) {
        let index = self.index_of(media);
        (index as u64, self.rungs.get(index).map(|rung| usize::from(*rung)))
    }

    /// Media in the buffer.
    pub(super) fn level(&self) -> Duration {
        (self.segment * self.rungs.len() as u32).saturating_sub(self.position)
    }

    pub(super) fn position(&self) -> Duration {
        self.position
    }

    pub(super) fn has_started(&self) -> bool {
        self.outcome.startup.is_some()
    }

    pub(super) fn sample(&self) -> PlayerSample {
        PlayerSample {
            shown_kbps: self.shown.map(|(_, rung)| self.kbps[rung]),
            buffer: self.level(),
        }
    }

    /// The figures of a session that ends now.
    pub(super) fn outcome(&self) -> PlayerOutcome {
        let played_ns = self.outcome.played.as_nanos();
        let outcome = PlayerOutcome {
            session: self.now,
            bitrate_kbps: (played_ns > 0).then(|| self.kbps_ns as f64 / played_ns as f64),
            ..self.outcome
        };
        if outcome.startup.is_some() || self.now.is_zero() {
            return outcome;
        }
        PlayerOutcome { stalls: 1, stalled: self.now, ..outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn clock() -> PlaybackClock {
        PlaybackClock::new(&BitrateLadder::recorded())
    }

    #[test]
    fn a_stall_lasts_from_the_browsers_wait_to_the_frame_behind_the_next_segment() {
        let mut clock = clock();
        clock.advance_to(ms(400));
        clock.append(0, 1);
        clock.advance_to(ms(2000));
        // Plays from 416 ms for 890 ms, to 1306.
        assert_eq!((clock.position(), clock.level()), (ms(890), ms(110)));
        clock.append(1, 2);
        clock.advance_to(ms(2500));
        let outcome = clock.outcome();
        assert_eq!(outcome.startup, Some(ms(416)));
        assert_eq!((outcome.stalls, outcome.stalled), (1, ms(2016 - 1306)));
        // 484 ms since then: 110 of the first segment, 374 of the second.
        assert_eq!(outcome.played, ms(890 + 484));
        let mean_kbps = (620.0 * 1000.0 + 1570.0 * 374.0) / 1374.0;
        assert!((outcome.bitrate_kbps.unwrap() - mean_kbps).abs() < 1e-9);
        assert_eq!((outcome.switches, outcome.switched_kbps), (1, 950));
        assert_eq!(ms(416) + outcome.stalled + outcome.played, outcome.session);
    }

    #[test]
    fn a_replacement_is_shown_if_it_comes_before_its_segment_is_decoded() {
        let mut clock = clock();
        for index in 0..4 {
            clock.append(index, 0);
        }
        clock.advance_to(ms(516));
        // Half a second is shown.
        clock.append(0, 4);
        clock.append(1, 4);
        clock.advance_to(ms(1766));
        // At 1.75 s, with 2.0 s decoded.
        clock.append(2, 4);
        clock.advance_to(ms(3016));
        let outcome = clock.outcome();
        assert_eq!(outcome.bitrate_kbps, Some((350.0 + 3600.0 + 350.0) / 3.0));
        assert_eq!(clock.sample(), PlayerSample { shown_kbps: Some(350), buffer: ms(1000) });
    }

    #[test]
    fn a_session_without_a_frame_is_one_stall() {
        let mut clock = clock();
        clock.advance_to(ms(9000));
        let outcome = clock.outcome();
        assert_eq!((outcome.startup, outcome.stalls, outcome.stalled), (None, 1, ms(9000)));
        assert_eq!((outcome.bitrate_kbps, outcome.qoe_lin()), (None, -4.3));
    }
}
