use super::ladder::BitrateLadder;
use super::throughput::ThroughputEstimate;

/// What the rules know when they choose the next segment's rung.
#[derive(Clone, Copy, Debug)]
pub(super) struct RungChoice<'a> {
    /// Since the play request.
    pub now_s: f64,
    /// Media in the buffer.
    pub level_s: f64,
    /// The present rung.
    pub current: usize,
    pub ladder: &'a BitrateLadder,
    pub estimate: &'a ThroughputEstimate,
}
