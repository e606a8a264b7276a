use std::path::Path;

use super::*;

const HEAD: &str = "name = \"a\"\ntitle = \"A\"\nduration_s = 10\n";
const LINK: &str = "[link]\nrate_mbps = 10\nrtt_ms = 20\nbuffer_bytes = 25000\n";
const FLOW: &str = "[[flow]]\ncc = \"cubic\"\n";

fn parse(parts: &[&str]) -> ScenarioFile {
    ScenarioFile::parse(&parts.concat(), Path::new("a.toml")).unwrap()
}

fn error(parts: &[&str]) -> String {
    ScenarioFile::parse(&parts.concat(), Path::new("a.toml")).unwrap_err().to_string()
}

#[test]
fn defaults_are_filled_in() {
    let file = parse(&[HEAD, LINK, FLOW]);
    assert_eq!((file.head.repeat, file.head.seed, file.head.series), (1, 1, Series::First));
    assert_eq!(file.cells.len(), 1);
    let scenario = &file.cells[0].scenario;
    assert_eq!((scenario.warmup_s, scenario.link.loss, scenario.sim.ack_every), (0.0, 0.0, 2));
    let group = &scenario.groups[0];
    assert_eq!((group.count, group.start_s, group.stop_s), (1, 0.0, 10.0));
    assert_eq!((group.label.as_str(), group.app, group.via), ("cubic", App::Bulk, Via::Proxy));
}

#[test]
fn a_sweep_makes_every_combination_and_the_last_key_turns_fastest() {
    let sweep =
        "[sweep]\n\"link.loss\" = [0, 0.01]\n\"flow.0.cc\" = [\"cubic\", \"bbr\", \"reno\"]\n";
    let file = parse(&[HEAD, LINK, sweep, FLOW]);
    let cells: Vec<(f64, &str)> = file
        .cells
        .iter()
        .map(|cell| (cell.scenario.link.loss, cell.scenario.groups[0].cc.as_str()))
        .collect();
    assert_eq!(
        cells,
        [
            (0.0, "cubic"),
            (0.0, "bbr"),
            (0.0, "reno"),
            (0.01, "cubic"),
            (0.01, "bbr"),
            (0.01, "reno")
        ]
    );
    assert_eq!(file.cells[4].at["flow.0.cc"], "bbr");
    assert_eq!(file.cells[4].at["link.loss"], 0.01);
}

#[test]
fn zipped_keys_turn_together() {
    let sweep = "[sweep]\n\"link.loss\" = [0, 0.01]\n[[sweep.zip]]\n\"flow.0.count\" = [1, 4]\n\"link.rate_mbps\" = [8, 32]\n";
    let file = parse(&[HEAD, LINK, sweep, FLOW]);
    assert_eq!(file.cells.len(), 4);
    for cell in &file.cells {
        let rate = Rate::Constant { rate_mbps: 8.0 * cell.scenario.groups[0].count as f64 };
        assert_eq!(cell.scenario.link.rate, rate);
    }
    assert_eq!(file.zips, [["flow.0.count", "link.rate_mbps"]]);
}

#[test]
fn a_star_is_every_flow_and_parameters_can_be_swept() {
    let sweep = "[sweep]\n\"flow.*.parameters.c\" = [1.0, 1.5]\n";
    let file = parse(&[HEAD, LINK, sweep, FLOW, FLOW]);
    let c = |group: usize| file.cells[1].scenario.groups[group].parameters["c"].clone();
    assert_eq!((c(0), c(1)), (1.5.into(), 1.5.into()));
}

#[test]
fn a_wrong_swept_value_is_reported_where_it_is_written() {
    let sweep = "[sweep]\n\"link.loss\" = [0, 1.5]\n";
    assert_eq!(
        error(&[HEAD, LINK, sweep, FLOW]),
        "a.toml:9:19: link.loss: 1.5 is out of range: 0 to 1"
    );
    let sweep = "[sweep]\n\"flow.3.cc\" = [\"cubic\"]\n";
    assert_eq!(
        error(&[HEAD, LINK, sweep, FLOW]),
        "a.toml:9:1: sweep.\"flow.3.cc\": no item \"3\": there are 1, counted from 0"
    );
}

#[test]
fn changes_and_starts_are_read() {
    let changes = "[[link.change]]\nat_s = 4\nrate_mbps = 5\n[link.random_change]\nevery_s = 5\nloss = [0, 0.01]\n";
    let flow = "[[flow]]\ncc = \"cubic\"\ncount = 3\nstart_every_s = 2\nstart_s = 1\n[[flow.change]]\nat_s = 3\nshare = 0.25\n";
    let file = parse(&[HEAD, LINK, changes, flow]);
    let scenario = &file.cells[0].scenario;
    assert_eq!(scenario.link.change[0].rate_mbps, Some(5.0));
    assert_eq!(scenario.link.random_change.as_ref().unwrap().loss, Some([0.0, 0.01]));
    assert_eq!(scenario.groups[0].change[0].share, Some(0.25));
    assert_eq!(scenario.groups[0].start_of_s(2), 5.0);
}

#[test]
fn a_video_like_source_is_read() {
    let flow = "[[flow]]\ncc = \"cubic\"\napp = \"on_off\"\nsegment_bytes = 450000\nevery_s = 1\n";
    let file = parse(&[HEAD, LINK, flow]);
    let expected = App::OnOff { segment_bytes: 450_000, every_s: 1.0 };
    assert_eq!(file.cells[0].scenario.groups[0].app, expected);
}

#[test]
fn a_dash_player_is_that_of_the_page_unless_told_otherwise() {
    let app = |more| {
        let flow = format!("[[flow]]\ncc = \"cubic\"\napp = \"dash\"\n{more}");
        parse(&[HEAD, LINK, &flow]).cells[0].scenario.groups[0].app
    };
    let by_default =
        App::Dash { abr: Abr::Throughput, buffer_s: 15.0, fast_switch: true, rate_cap: false };
    assert_eq!(app(""), by_default);
    let told = App::Dash { abr: Abr::Bola, buffer_s: 8.0, fast_switch: false, rate_cap: true };
    assert_eq!(app("abr = \"bola\"\nbuffer_s = 8\nfast_switch = false\nrate_cap = true\n"), told);
}

#[test]
fn numbers_are_equal_however_they_are_written() {
    assert!(Test::Is(1.into()).passes(&1.0.into()));
    assert!(Test::OneOf(vec![0.5.into(), "b".into()]).passes(&"b".into()));
    let within = Test::Within(Bound { at_least: Some(1.0), at_most: Some(2.0) });
    assert!(within.passes(&2.into()) && !within.passes(&2.5.into()) && !within.passes(&"1".into()));
}

/// Measured values change with the code: a reason refers to them. Numbers that no run measures are `{fixed ...}`.
#[test]
fn reasons_refer_to_measured_values_instead_of_quoting_them() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut reasons = 0;
    for directory in crate::results::entries(&scenarios).unwrap() {
        for path in crate::results::entries(&directory).unwrap() {
            let file = ScenarioFile::load(&path).unwrap_or_else(|error| panic!("{error}"));
            for reason in file.claims.iter().filter_map(|claim| claim.reason.as_ref()) {
                let quoted: Vec<&str> = reason.literal_numbers().collect();
                assert!(quoted.is_empty(), "{}: {quoted:?} in {reason:?}", path.display());
                reasons += 1;
            }
        }
    }
    assert!(reasons > 30, "{reasons}");
}
