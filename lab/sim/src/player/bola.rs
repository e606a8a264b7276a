use super::ladder::BitrateLadder;
use super::rung_choice::RungChoice;

/// Level at which the lowest rung is chosen, and below which nothing is delayed (dash.js 5.2.1, `BolaRule.js`,
/// `MINIMUM_BUFFER_S`).
const MIN_BUFFER_S: f64 = 10.0;
/// Further level for each rung (`MINIMUM_BUFFER_PER_BITRATE_LEVEL_S` there).
const BUFFER_PER_RUNG_S: f64 = 2.0;
/// What each segment leaves of the placeholder (`PLACEHOLDER_BUFFER_DECAY` there).
const PLACEHOLDER_DECAY: f64 = 0.99;

/// BOLA (Spiteri, Urgaonkar, Sitaraman, INFOCOM 2016, variant BOLA-O), with the placeholder buffer of dash.js 5.2.1.
///
/// The *placeholder* is added to the buffer's level: it stands for media that a full buffer, a fast switch or the
/// start-up kept the player from having. Times are in seconds since the play request.
#[derive(Clone, Debug)]
pub(super) struct BolaRule {
    kbps: Vec<f64>,
    /// Logarithms of the rates, the lowest 1.
    utilities: Vec<f64>,
    /// The paper's V times the length of a segment, and its gamma times that length.
    vp: f64,
    gp: f64,
    placeholder_s: f64,
    is_steady: bool,
    current: usize,
    most_advanced: Option<u64>,
    /// When the last segment came, if that was after the last choice.
    last_finished_s: Option<f64>,
    last_call_s: Option<f64>,
    segment_s: f64,
}

impl BolaRule {
    /// `None` for a ladder of one rung.
    pub(super) fn new(ladder: &BitrateLadder, buffer_target_s: f64) -> Option<Self> {
        if ladder.rungs.len() < 2 {
            return None;
        }
        let kbps: Vec<f64> = ladder.rungs.iter().map(|rung| rung.kbps as f64).collect();
        let utilities: Vec<f64> = kbps.iter().map(|rate| (rate / kbps[0]).ln() + 1.0).collect();
        // The lowest rung is best at MIN_BUFFER_S, the highest at `full_s`.
        let full_s = buffer_target_s.max(MIN_BUFFER_S + BUFFER_PER_RUNG_S * kbps.len() as f64);
        let gp = (utilities[kbps.len() - 1] - 1.0) / (full_s / MIN_BUFFER_S - 1.0);
        Some(Self {
            kbps,
            utilities,
            vp: MIN_BUFFER_S / gp,
            gp,
            placeholder_s: 0.0,
            is_steady: false,
            current: 0,
            most_advanced: None,
            last_finished_s: None,
            last_call_s: None,
            segment_s: ladder.segment_s(),
        })
    }

    /// The next rung, and how long its request is to be delayed.
    pub(super) fn choose(&mut self, choice: &RungChoice<'_>) -> (Option<usize>, f64) {
        let Some(safe_kbps) = choice.estimate.safe_kbps() else { return (None, 0.0) };
        let sustainable = choice.ladder.best_within(safe_kbps);
        if self.is_steady {
            let (rung, delay_s) = self.choose_steadily(choice, sustainable);
            return (Some(rung), delay_s);
        }
        self.placeholder_s = (self.min_level_s(sustainable) - choice.level_s).max(0.0);
        self.current = sustainable;
        self.is_steady = self.most_advanced.is_some() && choice.level_s >= self.segment_s;
        (Some(sustainable), 0.0)
    }

    fn choose_steadily(&mut self, choice: &RungChoice<'_>, sustainable: usize) -> (usize, f64) {
        // Waiting for room in the buffer does not change what is chosen.
        let since_s = self.last_finished_s.take().or(self.last_call_s);
        self.placeholder_s += since_s.map_or(0.0, |since_s| (choice.now_s - since_s).max(0.0));
        self.last_call_s = Some(choice.now_s);
        let mut rung = self.best_at(choice.level_s + self.placeholder_s);
        // BOLA-O: up only as far as the throughput carries.
        if rung > self.current && rung > sustainable {
            rung = sustainable.max(self.current);
        }
        let level_s = choice.level_s + self.placeholder_s;
        let excess_s = (level_s - self.max_level_s(rung)).max(0.0);
        let from_placeholder_s = excess_s.min(self.placeholder_s);
        self.placeholder_s -= from_placeholder_s;
        self.current = rung;
        let is_top = rung == self.kbps.len() - 1;
        (rung, if is_top { 0.0 } else { excess_s - from_placeholder_s })
    }

    /// The rung with the best score at this level.
    fn best_at(&self, level_s: f64) -> usize {
        let score = |rung: usize| {
            (self.vp * (self.utilities[rung] - 1.0 + self.gp) - level_s) / self.kbps[rung]
        };
        let higher =
            |best: usize, rung: usize| if score(rung) >= score(best) { rung } else { best };
        (0..self.kbps.len()).fold(0, higher)
    }

    /// Above it, waiting is better than a segment of this rung.
    fn max_level_s(&self, rung: usize) -> f64 {
        self.vp * (self.utilities[rung] + self.gp)
    }

    /// The level for which the start-up's placeholder makes up: by V above that from which the rung has the best score,
    /// as in dash.js.
    fn min_level_s(&self, rung: usize) -> f64 {
        let level_s = |lower: usize| {
            let (high, low) = (self.kbps[rung], self.kbps[lower]);
            let crossed = high * self.utilities[lower] - low * self.utilities[rung];
            self.vp * (self.gp + crossed / (high - low))
        };
        (0..rung).map(level_s).fold(0.0, f64::max)
    }

    /// The player goes to another rung, by whichever rule.
    pub(super) fn on_rung(&mut self, rung: usize) {
        self.current = rung;
    }

    /// The segment `index` of `rung` came, requested and finished at these times; the buffer has `level_s` without it.
    pub(super) fn on_segment(
        &mut self,
        index: u64,
        rung: usize,
        [requested_s, finished_s]: [f64; 2],
        level_s: f64,
    ) {
        let was_replacement = self.most_advanced.is_some_and(|most| index <= most);
        self.most_advanced = self.most_advanced.max(Some(index));
        self.current = rung;
        self.placeholder_s *= PLACEHOLDER_DECAY;
        let level_at_request_s = level_s + finished_s - requested_s;
        let most_s = (self.max_level_s(rung) - level_at_request_s).max(0.0);
        self.placeholder_s = self.placeholder_s.min(most_s);
        if was_replacement {
            self.placeholder_s += self.segment_s;
        }
        self.last_finished_s = Some(finished_s);
    }

    /// A request was given up at `now_s` in favour of the rung that `on_rung` named.
    pub(super) fn on_abandoned(&mut self, now_s: f64, level_s: f64) {
        let wanted_s = if self.current > 0 { self.min_level_s(self.current) } else { MIN_BUFFER_S };
        self.placeholder_s = self.placeholder_s.min((wanted_s - level_s).max(0.0));
        self.last_finished_s = Some(now_s);
    }

    /// The buffer ran empty.
    pub(super) fn on_empty(&mut self) {
        if self.is_steady {
            self.placeholder_s = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::throughput::ThroughputEstimate;
    use super::*;

    fn ladder() -> BitrateLadder {
        BitrateLadder::recorded()
    }

    fn bola() -> BolaRule {
        BolaRule::new(&ladder(), 15.0).unwrap()
    }

    fn estimate(kbps: u64) -> ThroughputEstimate {
        let mut estimate = ThroughputEstimate::default();
        estimate.add(kbps * 1000 / 8, 1000);
        estimate
    }

    #[test]
    fn parameters_put_the_lowest_rung_at_10_s_and_the_highest_at_20_s() {
        // u = ln(3600 / 350) + 1 = 3.3308; gp = 2.3308 / (20 / 10 - 1) = 2.3308; Vp = 10 / 2.3308 = 4.2904.
        let bola = bola();
        assert!((bola.gp - 2.3308).abs() < 1e-4 && (bola.vp - 4.2904).abs() < 1e-4);
        // The lowest rung's score is 0 at Vp gp = 10 s, and the highest's at Vp (u - 1 + gp) = 20 s.
        assert!((bola.vp * bola.gp - 10.0).abs() < 1e-9);
        assert!((bola.max_level_s(0) - 10.0 - bola.vp).abs() < 1e-9);
        assert_eq!(bola.best_at(0.0), 0);
        assert_eq!(bola.best_at(19.9), 4);
    }

    #[test]
    fn a_rung_is_best_from_its_least_level_on() {
        let bola = bola();
        // 620 against 350: 4.2904 (2.3308 + (620 - 350 x 1.5718) / 270) = 11.11 s, by hand.
        assert!((bola.min_level_s(1) - 11.11).abs() < 0.01, "{}", bola.min_level_s(1));
        for rung in 1..5 {
            let level_s = bola.min_level_s(rung) - bola.vp;
            assert_eq!(bola.best_at(level_s + 0.01), rung);
            assert!(bola.best_at(level_s - 0.01) < rung);
        }
    }

    #[test]
    fn it_starts_with_the_throughput_and_grows_up_no_further_than_that() {
        let (mut bola, ladder) = (bola(), ladder());
        let estimate = estimate(1000);
        let choice = |level_s, now_s| RungChoice {
            now_s,
            level_s,
            current: 0,
            ladder: &ladder,
            estimate: &estimate,
        };
        // 900 kbit/s are safe.
        assert_eq!(bola.choose(&choice(0.5, 1.0)), (Some(1), 0.0));
        assert!((bola.placeholder_s - (bola.min_level_s(1) - 0.5)).abs() < 1e-9);
        assert!(!bola.is_steady);
        bola.on_segment(0, 1, [1.0, 1.5], 0.0);
        assert_eq!(bola.choose(&choice(1.0, 1.5)), (Some(1), 0.0));
        assert!(bola.is_steady);
        // At 18 s BOLA alone would take a higher rung, which the throughput does not carry; nothing is delayed below
        // Vp (u + gp) = 16.74 s, and above it the placeholder goes first.
        bola.placeholder_s = 0.0;
        bola.on_segment(1, 1, [2.0, 2.0], 18.0);
        let (rung, delay_s) = bola.choose(&choice(18.0, 2.0));
        assert_eq!(rung, Some(1));
        assert!((delay_s - (18.0 - bola.max_level_s(1))).abs() < 1e-9 && delay_s > 1.0);
    }

    #[test]
    fn waiting_and_replacements_grow_the_placeholder_and_an_empty_buffer_clears_it() {
        let (mut bola, ladder) = (bola(), ladder());
        bola.is_steady = true;
        bola.on_segment(3, 0, [0.0, 1.0], 5.0);
        let estimate = estimate(400);
        let choice = RungChoice {
            now_s: 1.5,
            level_s: 5.5,
            current: 0,
            ladder: &ladder,
            estimate: &estimate,
        };
        bola.choose(&choice);
        assert!((bola.placeholder_s - 0.5).abs() < 1e-9, "half a second since the segment");
        bola.on_segment(3, 0, [1.5, 2.0], 5.0);
        assert!((bola.placeholder_s - (0.5 * 0.99 + 1.0)).abs() < 1e-9, "a replacement counts");
        bola.on_empty();
        assert_eq!(bola.placeholder_s, 0.0);
    }

    #[test]
    fn a_ladder_of_one_rung_leaves_nothing_to_choose() {
        let mut ladder = ladder();
        ladder.rungs.truncate(1);
        assert!(BolaRule::new(&ladder, 15.0).is_none());
    }
}
