//! Figures as people read them.

/// Bytes with the largest unit in which there is at least 1, as `56.7 MB` (10^6 bytes).
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1e3;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    // 999.95 would be written as 1000.0.
    while amount >= 999.95
        && let Some(next) = units.next()
    {
        (amount, unit) = (amount / 1e3, next);
    }
    format!("{amount:.1} {unit}")
}

/// A duration with its two largest units, as `1m15s`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{:02}m", minutes % 60),
        (days, hours, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_largest_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (56_700_000, "56.7 MB"),
            (u64::MAX, "18446.7 PB"),
        ];
        for (amount, text) in cases {
            assert_eq!(bytes(amount), text);
        }
    }

    #[test]
    fn durations_have_two_units() {
        let cases = [
            (-1.0, "0s"),
            (59.9, "59s"),
            (75.0, "1m15s"),
            (3_600.0, "1h00m"),
            (90_000.0, "1d01h"),
            (f64::NAN, "0s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}
