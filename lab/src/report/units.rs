//! Names and units of keys, from how they are spelt.

/// How a key's values are shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantity {
    pub(super) name: String,
    pub(crate) unit: &'static str,
    /// From the value in the results to the one shown.
    pub(crate) scale: f64,
}

/// Ends of names and the units that they mean.
const SUFFIXES: [(&str, &str); 8] = [
    ("_mbps", "Mbit/s"),
    ("_kbps", "kbit/s"),
    ("_bytes", "bytes"),
    ("_bdp", "BDP"),
    ("_packets", "packets"),
    ("_ms", "ms"),
    ("_db", "dB"),
    ("_s", "s"),
];

/// Shares from 0 to 1, shown in percent.
const SHARES: [&str; 12] = [
    "loss",
    "loss_reverse",
    "loss_rate",
    "drop_rate",
    "retransmit_rate",
    "utilisation",
    "share",
    "share_error",
    "rebuffer_ratio",
    "gave_up",
    "late_frames",
    "skipped_frames",
];

/// Where the spelling alone would not read well.
const NAMES: [(&str, &str); 34] = [
    ("qoe_lin", "QoE_lin"),
    ("qoe_lin_without_switches", "QoE_lin without changes"),
    ("goodput_mbps", "Goodput"),
    ("throughput_mbps", "Throughput"),
    ("rate_mbps", "Rate"),
    ("sent_mbps", "Sending rate"),
    ("pacing_mbps", "Pacing rate"),
    ("link.rate_mbps", "Link rate"),
    ("link.loss", "Random loss"),
    ("link.rtt_ms", "Round trip of the empty path"),
    ("link.buffer_bytes", "Buffer"),
    ("link.jitter_ms", "Jitter"),
    ("loss_rate", "Loss"),
    ("rtt_ms", "RTT"),
    ("queueing_ms", "Queueing delay"),
    ("self_inflicted_delay_ms", "Self-inflicted delay"),
    ("signal_delay_ms", "Self-inflicted delay"),
    ("convergence_s", "Time to converge"),
    ("stddev_mbps", "Standard deviation"),
    ("jain", "Jain's index"),
    ("ratio_to_others", "Goodput / mean goodput of the others"),
    ("time_to_80_percent_s", "Time to 80 % of the capacity"),
    ("time_to_90_percent_s", "Time to 90 % of the capacity"),
    ("follow_s", "Time to follow a change"),
    ("switch_ratio", "Least second after a change of algorithm / before"),
    ("utility", "Utility"),
    ("bitrate_kbps", "Mean bitrate"),
    ("shown_kbps", "Rung on the screen"),
    ("top_rung_s", "Time to the top rung"),
    ("psnr_db", "PSNR"),
    ("ssim", "SSIM"),
    ("vmaf", "VMAF"),
    ("startup_s", "Start-up"),
    ("gave_up", "Streams given up by the server"),
];

/// Of a swept key (`link.loss`), a fact of a flow (`cc`) or a figure (`rtt_ms.p95`, `link.jain`).
pub(crate) fn quantity(key: &str) -> Quantity {
    let (base, statistic) = match key.rsplit_once('.') {
        Some((base, statistic)) if is_statistic(statistic) => (base, Some(statistic)),
        _ => (key, None),
    };
    let last = base.rsplit('.').next().unwrap_or(base);
    let named = |name: &str| NAMES.iter().find(|(key, _)| *key == name).map(|(_, name)| *name);
    let (unit, stem) = match SUFFIXES.iter().find(|(end, _)| last.ends_with(end)) {
        Some((end, unit)) => (*unit, &last[..last.len() - end.len()]),
        None => ("", last),
    };
    let name = match (last, named(base).or_else(|| named(last))) {
        (_, Some(name)) => name.to_owned(),
        ("cc" | "label", None) => "Algorithm".to_owned(),
        ("count", None) => "Flows".to_owned(),
        (_, None) => sentence(stem),
    };
    let name = match statistic {
        Some(statistic) => format!("{name}, {statistic}"),
        None => name,
    };
    if SHARES.contains(&last) {
        return Quantity { name, unit: "%", scale: 100.0 };
    }
    Quantity { name, unit, scale: 1.0 }
}

fn is_statistic(word: &str) -> bool {
    matches!(word, "mean" | "min" | "max" | "median")
        || word.strip_prefix('p').is_some_and(|rest| rest.parse::<u32>().is_ok())
}

/// `peak_in_flight` as `Peak in flight`.
fn sentence(stem: &str) -> String {
    capitalised(&stem.replace(['_', '.'], " "))
}

pub(super) fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// Six significant digits: more would only make the page heavier.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// For people: three significant digits, and the unit.
pub(crate) fn shown(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "bytes" if value.abs() >= 1e6 => (value / 1e6, "MB"),
        "bytes" if value.abs() >= 1e3 => (value / 1e3, "kB"),
        _ => (value, unit),
    };
    let digits = match value.abs() {
        size if size == 0.0 || size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let mut text = format!("{value:.digits$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_from_the_spelling() {
        let of = |key| {
            let q = quantity(key);
            (q.name, q.unit, q.scale)
        };
        assert_eq!(of("link.loss"), ("Random loss".into(), "%", 100.0));
        assert_eq!(of("rtt_ms.p95"), ("RTT, p95".into(), "ms", 1.0));
        assert_eq!(of("link.jain"), ("Jain's index".into(), "", 1.0));
        assert_eq!(of("flow.0.cc"), ("Algorithm".into(), "", 1.0));
        assert_eq!(of("flow.1.count"), ("Flows".into(), "", 1.0));
        assert_eq!(of("peak_in_flight_bdp"), ("Peak in flight".into(), "BDP", 1.0));
        assert_eq!(of("sim.ack_delay_ms"), ("Ack delay".into(), "ms", 1.0));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(shown(98.123, "Mbit/s"), "98.1 Mbit/s");
        assert_eq!(shown(1500.0, "bytes"), "1.5 kB");
        assert_eq!(shown(0.0123, ""), "0.0123");
        assert_eq!(shown(600.0, "ms"), "600 ms");
        assert_eq!(rounded(1.0 / 3.0), 0.333333);
    }
}
