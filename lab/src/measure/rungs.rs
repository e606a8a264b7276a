//! How a simulated player follows the link.

use super::record::{SAMPLE_S, SAMPLES_PER_SECOND};

/// Longest time from a change of the link's rate until the rung `top_kbps` is on the screen; infinite if it does not
/// come before the next change. `shown_kbps` are the rungs on the screen, `changes` the samples of the changes.
pub(super) fn top_rung_s(
    shown_kbps: &[Option<f64>],
    changes: &[usize],
    top_kbps: f64,
) -> Option<f64> {
    let ends = changes.iter().skip(1).copied().chain([shown_kbps.len()]);
    let waits = changes.iter().zip(ends).filter_map(|(change, end)| {
        let shown = shown_kbps.get(*change..end.min(shown_kbps.len()))?;
        // A second at least: a change at the end shows nothing.
        (shown.len() >= SAMPLES_PER_SECOND).then(|| {
            let found = shown.iter().position(|kbps| *kbps == Some(top_kbps));
            found.map_or(f64::INFINITY, |samples| samples as f64 * SAMPLE_S)
        })
    });
    waits.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_for_the_top_rung_counts_and_one_without_end_is_infinite() {
        let shown = |runs: &[(Option<f64>, usize)]| {
            runs.iter().flat_map(|(kbps, count)| vec![*kbps; *count]).collect::<Vec<_>>()
        };
        let shown = shown(&[
            (None, 5),
            (Some(350.0), 20),
            (Some(3600.0), 25),
            (Some(350.0), 30),
            (Some(3600.0), 40),
        ]);
        let close = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-9 || found == expected, "{found} not {expected}");
        };
        close(top_rung_s(&shown, &[0], 3600.0), 2.5);
        close(top_rung_s(&shown, &[0, 50], 3600.0), 3.0);
        close(top_rung_s(&shown, &[0, 50, 75], 3600.0), f64::INFINITY);
        close(top_rung_s(&shown, &[50], 6000.0), f64::INFINITY);
        assert_eq!(top_rung_s(&shown, &[], 3600.0), None);
        assert_eq!(top_rung_s(&shown, &[115], 3600.0), None);
    }
}
