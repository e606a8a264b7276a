use std::path::Path;

use super::super::Figures;
use super::*;

/// A scenario that sweeps algorithm and loss, with `claims`.
fn file(claims: &str) -> ScenarioFile {
    let text = format!(
        r#"
name = "made-up"
title = "Made up"
duration_s = 10
[link]
rate_mbps = 10
rtt_ms = 10
buffer_bytes = 10000
[sweep]
"flow.0.cc" = ["bbr", "reno"]
"link.loss" = [0, 0.01]
[[flow]]
cc = "bbr"
[[flow]]
cc = "cubic"
{claims}
"#
    );
    ScenarioFile::parse(&text, Path::new("test.toml")).unwrap()
}

fn run_of(cc: &str, mbps: f64, cubic: f64, delay: f64) -> RunFigures {
    let flow = |flow: usize, cc: &str, mbps: f64| FlowFigures {
        flow,
        group: flow,
        cc: cc.to_owned(),
        label: cc.to_owned(),
        start_s: 0.0,
        stop_s: 10.0,
        figures: Figures([("throughput_mbps", mbps), ("convergence_s", delay)].into()),
    };
    let link = Figures([("jain", 0.5)].into());
    RunFigures { link, flows: vec![flow(0, cc, mbps), flow(1, "cubic", cubic)] }
}

fn cell(cc: &str, values: &[f64], cubic: f64, delay: f64) -> CellRuns {
    let named = values.iter().enumerate();
    named.map(|(n, mbps)| (n.to_string(), run_of(cc, *mbps, cubic, delay))).collect()
}

/// bbr: 9 and 8 Mbit/s; reno: 6 and 2, with nine repeats of the first of which one is far off.
fn runs() -> Vec<CellRuns> {
    let mut far_off = [9.0; 9];
    far_off[4] = 1.0;
    vec![
        cell("bbr", &far_off, 1.0, 2.0),
        cell("bbr", &[8.0; 3], 2.0, 3.0),
        cell("reno", &[6.0; 3], 4.0, f64::INFINITY),
        cell("reno", &[2.0; 3], 8.0, f64::INFINITY),
    ]
}

fn judged(claims: &str) -> Judged {
    let judged = judge(&file(&format!("[[claim]]\ntext = \"t\"\n{claims}")), &runs());
    assert_eq!(judged.len(), 1);
    judged[0].clone()
}

fn verdict(claims: &str) -> ClaimVerdict {
    judged(claims).verdict
}

#[test]
fn every_matching_run_counts_and_the_worst_is_shown() {
    let good = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\" }\n";
    let found = judged(&format!("{good}at_least = 8"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Holds, Some(8.0)));
    assert_eq!(found.at.unwrap()["link.loss"], 0.01);
    assert_eq!(found.points.len(), 2);
    let found = judged(&format!("{good}at_least = 8.5"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Fails, Some(8.0)));
    assert_eq!(verdict(&format!("{good}at_most = 9")), ClaimVerdict::Holds);
    assert_eq!(verdict(&format!("{good}at_most = 8.9")), ClaimVerdict::Fails);
}

#[test]
fn repeats_become_their_median_unless_asked_otherwise() {
    let good = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\", \"link.loss\" = 0 }\n";
    assert_eq!(judged(&format!("{good}at_least = 8")).measured, Some(9.0));
    let found = judged(&format!("{good}over_repeats = \"min\"\nat_least = 8"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Fails, Some(1.0)));
}

#[test]
fn repeats_on_both_sides_of_the_bound_decide_nothing() {
    let claim = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\", \"link.loss\" = 0 }\n";
    let of = |bound: &str, values: &[f64]| {
        let file = file(&format!("[[claim]]\ntext = \"t\"\n{claim}{bound}"));
        let mut runs = runs();
        runs[0] = cell("bbr", values, 1.0, 2.0);
        let judged = judge(&file, &runs).remove(0);
        (judged.verdict, judged.interval_95)
    };
    let values = [7.0, 8.0, 9.0, 10.0, 11.0];
    assert_eq!(of("at_least = 7", &values), (ClaimVerdict::Holds, Some([7.0, 11.0])));
    assert_eq!(of("at_least = 8.5", &values).0, ClaimVerdict::Undecided);
    assert_eq!(of("at_least = 10.5", &values).0, ClaimVerdict::Undecided);
    assert_eq!(of("at_least = 11.5", &values).0, ClaimVerdict::Fails);
    assert_eq!(
        of("at_least = 8.5", &[9.0]),
        (ClaimVerdict::Holds, None),
        "one repeat: the value decides"
    );
    let mean = of("over_repeats = \"mean\"\nat_least = 7.5", &values);
    assert_eq!(mean.0, ClaimVerdict::Holds, "{mean:?}");
}

#[test]
fn a_ratio_is_of_the_cell_that_differs_in_nothing_else() {
    let ratio = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\" }\nratio_to = { where = { cc = \"reno\" } }\n";
    let found = judged(&format!("{ratio}at_least = 1.5"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Holds, Some(1.5)));
    let measured: Vec<f64> = found.points.iter().map(|point| point.measured).collect();
    assert_eq!(measured, [1.5, 4.0], "never across different losses");
    assert_eq!(verdict(&format!("{ratio}at_least = 1.6")), ClaimVerdict::Fails);
}

#[test]
fn a_difference_is_to_the_same_cell_as_a_ratio() {
    let less = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\" }\nminus = { where = { cc = \"reno\" } }\n";
    let found = judged(&format!("{less}at_least = 3"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Holds, Some(3.0)));
    let measured: Vec<f64> = found.points.iter().map(|point| point.measured).collect();
    assert_eq!(measured, [3.0, 6.0]);
    assert_eq!(verdict(&format!("{less}at_least = 3.5")), ClaimVerdict::Fails);
}

#[test]
fn a_ratio_to_a_flow_of_the_same_run() {
    let ratio = "metric = \"throughput_mbps\"\nwhere = { group = 0 }\nratio_to = { where = { cc = \"cubic\" } }\n";
    let measured: Vec<f64> =
        judged(&format!("{ratio}at_least = 1")).points.iter().map(|p| p.measured).collect();
    assert_eq!(measured, [9.0, 4.0, 1.5, 0.25]);
}

#[test]
fn a_ratio_to_another_value_of_a_swept_key() {
    let ratio = "metric = \"throughput_mbps\"\nwhere = { cc = [\"bbr\", \"reno\"], \"link.loss\" = { at_least = 0.001 } }\nratio_to = { where = { \"link.loss\" = 0 } }\n";
    let found = judged(&format!("{ratio}at_least = 0.5"));
    let measured: Vec<f64> = found.points.iter().map(|point| point.measured).collect();
    assert_eq!(measured, [8.0 / 9.0, 2.0 / 6.0]);
    assert_eq!((found.verdict, found.cc.as_deref()), (ClaimVerdict::Fails, Some("reno")));
}

#[test]
fn one_of_several_is_enough_where_it_is_said() {
    let any = "metric = \"throughput_mbps\"\nwhere = { group = 0 }\nany_of = [\"cc\"]\n";
    assert_eq!(verdict(&format!("{any}at_least = 8")), ClaimVerdict::Holds);
    // Neither does at a loss of 0.01.
    let found = judged(&format!("{any}at_least = 8.5"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Fails, Some(8.0)));
}

#[test]
fn all_conditions_must_hold_for_the_same_one() {
    let both = |second: &str| {
        verdict(&format!(
            "metric = \"throughput_mbps\"\nwhere = {{ group = 0 }}\nany_of = [\"cc\"]\nat_least = 2\n[[claim.and]]\nmetric = \"convergence_s\"\n{second}"
        ))
    };
    assert_eq!(both("at_most = 3"), ClaimVerdict::Holds);
    assert_eq!(both("at_most = 2"), ClaimVerdict::Fails);
    // Only reno never converges, only bbr has 8 Mbit/s: each condition holds for one, none for both.
    let apart = verdict(
        "metric = \"throughput_mbps\"\nwhere = { group = 0 }\nany_of = [\"cc\"]\nat_least = 8\n[[claim.and]]\nmetric = \"convergence_s\"\nat_least = 100",
    );
    assert_eq!(apart, ClaimVerdict::Fails);
}

#[test]
fn what_never_comes_is_longer_than_any_bound_and_a_ratio_to_it_is_nothing() {
    let bad = "metric = \"convergence_s\"\nwhere = { cc = \"reno\" }\n";
    assert_eq!(verdict(&format!("{bad}at_most = 1e300")), ClaimVerdict::Fails);
    let good = "metric = \"convergence_s\"\nwhere = { cc = \"bbr\" }\nratio_to = { where = { cc = \"reno\" } }\n";
    let found = judged(&format!("{good}at_most = 0.4"));
    assert_eq!((found.verdict, found.measured), (ClaimVerdict::Holds, Some(0.0)));
    let never = "metric = \"convergence_s\"\nwhere = { cc = \"reno\", \"link.loss\" = { at_least = 0.001 } }\nratio_to = { where = { \"link.loss\" = 0 } }\n";
    assert_eq!(verdict(&format!("{never}at_most = 2")), ClaimVerdict::Fails);
}

#[test]
fn figures_of_the_link_and_nothing_to_compare() {
    assert_eq!(judged("metric = \"link.jain\"\nat_least = 0.5").points.len(), 4);
    assert_eq!(verdict("metric = \"link.jain\"\nat_least = 0.6"), ClaimVerdict::Fails);
    assert_eq!(verdict("metric = \"follow_s\"\nat_most = 1"), ClaimVerdict::NotMeasured);
    let no_reference =
        "metric = \"throughput_mbps\"\nratio_to = { where = { cc = \"unknown\" } }\n";
    assert_eq!(verdict(&format!("{no_reference}at_least = 0")), ClaimVerdict::NotMeasured);
}

#[test]
fn a_reason_has_the_measured_values_in_their_places() {
    let claim = "metric = \"throughput_mbps\"\nwhere = { cc = \"bbr\", \"link.loss\" = 0.01 }\n\
                 ratio_to = { where = { \"link.loss\" = 0 } }\nat_least = 1\n\
                 reason = \"\"\"It has {value} of {throughput_mbps where cc = 'bbr', 'link.loss' = 0}, {fixed 7} in the \
                 paper; beside it CUBIC has {throughput_mbps where group = 1, 'flow.0.cc' = 'bbr'}, \
                 reno converges {convergence_s where cc = 'reno'}\"\"\"\n";
    let reason = judged(claim).reason.unwrap();
    assert_eq!(
        reason,
        "It has 0.889 of 9 Mbit/s, 7 in the paper; beside it CUBIC has 1 Mbit/s to 2 Mbit/s, reno converges never"
    );
    let mut file = file(&format!("[[claim]]\ntext = \"t\"\n{claim}"));
    let preset = Some(crate::scenario::AlgorithmPreset::Published);
    file.head.variant = crate::scenario::AlgorithmVariant { preset, baselines: None };
    assert_eq!(judge(&file, &runs())[0].reason, None, "it is about other settings");
}
