use super::*;
use crate::rules::Choice;
use crate::{Class, ConnectionRecord, Player};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// Rules that call a function.
struct FnRules<F>(F);

impl<F: FnMut(&RuleInput) -> Result<Option<&'static str>, String>> SelectionRules for FnRules<F> {
    fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String> {
        let name = (self.0)(input)?;
        Ok(name.map(|name| Choice { algorithm: name.to_owned(), reason: None }))
    }
}

fn settings() -> SelectorSettings {
    SelectorSettings::new(["cubic", "bbr", "westwood"].map(str::to_owned).to_vec())
}

fn acked(connection: u64, ms: u64, delivered: u64, lost: u64) -> PathUpdate {
    let mut path = millrace_cc::PathModel::default();
    path.min_rtt = Some(Duration::from_millis(20));
    path.latest_rtt = Duration::from_millis(30);
    path.smoothed_rtt = Duration::from_millis(25);
    (path.delivered_bytes, path.lost_bytes) = (delivered, lost);
    PathUpdate::Acked(ConnectionRecord::new(connection, at(ms), &path))
}

fn opened(connection: u64, class: Class) -> PathUpdate {
    PathUpdate::Opened { connection, now: at(0), class, algorithm: 0 }
}

/// Evaluates at `ms` and returns the requests.
fn evaluate<R: SelectionRules>(selector: &mut Selector<R>, ms: u64) -> Vec<(u64, u16)> {
    let mut requests = Vec::new();
    let try_send = |request: SwitchRequest| {
        requests.push((request.connection, request.algorithm));
        true
    };
    selector.evaluate(at(ms), try_send, |_| {});
    requests
}

#[test]
fn each_connection_gets_its_own_algorithm() {
    let by_class =
        |input: &RuleInput| Ok(Some(if input.class == Class::Rtsp { "bbr" } else { "cubic" }));
    let mut selector = Selector::new(FnRules(by_class), settings());
    selector.ingest(opened(1, Class::Rtsp));
    selector.ingest(opened(2, Class::Dash));
    // The first choice for a connection has no hold-down.
    assert_eq!(evaluate(&mut selector, 1), [(1, 1)]);
    assert_eq!(selector.rule_input(1, at(1)).unwrap().algorithm, "bbr");
    assert_eq!(evaluate(&mut selector, 1000), [], "no update");
}

#[test]
fn switch_requires_hold_down_and_min_dwell() {
    let by_loss = |input: &RuleInput| Ok(Some(if input.loss > 0.03 { "westwood" } else { "bbr" }));
    let mut selector = Selector::new(FnRules(by_loss), settings());
    selector.ingest(opened(1, Class::Bulk));
    let (mut delivered, mut lost, mut requests) = (0, 0, Vec::new());
    for tenth in 0..300 {
        let ms = tenth * 100;
        // Loss from 6 s on, and for 0.1 s at 4 s.
        let share = if tenth >= 60 || tenth == 40 { 10 } else { 0 };
        (delivered, lost) = (delivered + 100 - share, lost + share);
        selector.ingest(acked(1, ms, delivered, lost));
        requests.extend(evaluate(&mut selector, ms).into_iter().map(|request| (ms, request)));
    }
    let (first, second) = (requests[0], requests[1]);
    assert_eq!((first.1, second.1), ((1, 1), (1, 2)));
    assert_eq!(first.0, 0, "the first choice has no hold-down: {requests:?}");
    // 3 % over ten seconds: 3 s with 10 % loss, and 1 s of hold-down.
    assert!((9000..11_500).contains(&second.0), "{requests:?}");
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_eq!(selector.counts().switch_requests, 2);
}

/// A record after this many path changes.
fn acked_on(changes: u32, rtt_ratio: f32, ms: u64, delivered: u64) -> PathUpdate {
    match acked(1, ms, delivered, delivered / 10) {
        PathUpdate::Acked(record) => {
            PathUpdate::Acked(ConnectionRecord { path_changes: changes, rtt_ratio, ..record })
        }
        other => other,
    }
}

#[test]
fn longer_path_restarts_algorithm_and_clears_window() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    selector.ingest(opened(1, Class::Bulk));
    let mut requests = Vec::new();
    let mut run = |selector: &mut Selector<_>, seconds: std::ops::Range<u64>, changes, ratio| {
        for second in seconds {
            selector.ingest(acked_on(changes, ratio, second * 1000, second * 1000));
            let try_send = |request: SwitchRequest| {
                requests.push((second, request.algorithm, request.is_new_path));
                true
            };
            selector.evaluate(at(second * 1000), try_send, |_| {});
        }
    };
    run(&mut selector, 0..20, 0, 0.0);
    let before = selector.rule_input(1, at(19_500)).unwrap();
    assert!((before.path_age_s - 19.5).abs() < 1e-9 && before.loss > 0.05, "{before:?}");
    run(&mut selector, 20..21, 1, 3.0);
    let after = selector.rule_input(1, at(20_500)).unwrap();
    assert_eq!((after.path_age_s, after.age_s, after.loss), (0.5, 20.5, 0.0));
    run(&mut selector, 21..40, 1, 3.0);
    // A shorter path needs no restart.
    run(&mut selector, 40..60, 2, 0.3);
    assert_eq!(selector.rule_input(1, at(60_000)).unwrap().path_age_s, 20.0);
    assert_eq!(requests, [(20, 0, true)]);
    assert_eq!(selector.rule_input(1, at(60_000)).unwrap().switches, 0);
}

#[test]
fn selector_ignores_path_changes_before_its_first_record() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    for second in 0..10 {
        selector.ingest(acked_on(3, 3.0, second * 1000, second * 1000));
        assert_eq!(evaluate(&mut selector, second * 1000), []);
    }
    assert_eq!(selector.rule_input(1, at(10_000)).unwrap().path_age_s, 10.0);
}

#[test]
fn choice_for_new_path_has_no_hold_down_and_no_min_dwell() {
    let by_age =
        |input: &RuleInput| Ok(Some(if input.path_age_s < 1.0 { "westwood" } else { "bbr" }));
    let mut selector = Selector::new(FnRules(by_age), settings());
    selector.ingest(opened(1, Class::Bulk));
    let mut requests = Vec::new();
    for second in 0..40 {
        let changes = u32::from(second >= 8);
        selector.ingest(acked_on(changes, 3.0, second * 1000, second * 1000));
        let sent = evaluate(&mut selector, second * 1000);
        requests.extend(sent.into_iter().map(|request| (second, request.1)));
    }
    // BBR after Westwood's minimum dwell time, and Westwood at once on a new path.
    assert_eq!(requests, [(0, 2), (5, 1), (8, 2), (13, 1)]);
}

#[test]
fn min_dwell_limits_flapping() {
    let mut turn = 0;
    let flapping = move |_: &RuleInput| {
        turn += 1;
        Ok(Some(if turn % 20 < 10 { "bbr" } else { "westwood" }))
    };
    let mut selector = Selector::new(FnRules(flapping), settings());
    let mut requests = Vec::new();
    for tenth in 0..600 {
        selector.ingest(acked(1, tenth * 100, tenth, 0));
        requests.extend(evaluate(&mut selector, tenth * 100).into_iter().map(|_| tenth * 100));
    }
    assert!(requests.len() > 3, "{requests:?}");
    for pair in requests.windows(2) {
        assert!(pair[1] - pair[0] >= 5000, "{requests:?}");
    }
}

#[test]
fn evaluation_interval_limits_evaluations() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    for ms in 0..10_000 {
        selector.ingest(acked(1, ms, ms, 0));
        assert_eq!(evaluate(&mut selector, ms), []);
    }
    assert_eq!(selector.counts().evaluations, 40);
}

#[test]
fn rule_failure_keeps_algorithm_and_is_reported_once() {
    let broken = |input: &RuleInput| {
        if input.connection == 3 { Ok(Some("vegas")) } else { Err("rules.lua:2: no".to_owned()) }
    };
    let mut selector = Selector::new(FnRules(broken), settings());
    let mut reported = Vec::new();
    for second in 0..10 {
        selector.ingest(acked(1, second * 1000, 0, 0));
        selector.evaluate(
            at(second * 1000),
            |_| panic!("no request"),
            |problem| reported.push(problem.to_owned()),
        );
    }
    selector.ingest(opened(3, Class::Bulk));
    selector.evaluate(
        at(10_000),
        |_| panic!("no request"),
        |problem| reported.push(problem.to_owned()),
    );
    let wrong = "the rules chose \"vegas\"; there are cubic, bbr, westwood";
    assert_eq!(reported, ["rules.lua:2: no", wrong]);
    assert_eq!((selector.counts().evaluations, selector.counts().evaluation_errors), (11, 11));
}

#[test]
fn request_without_room_is_sent_again() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(Some("bbr"))), settings());
    selector.ingest(opened(1, Class::Bulk));
    selector.evaluate(at(1), |_| false, |_| {});
    assert_eq!(selector.counts().postponed_requests, 1);
    assert_eq!(evaluate(&mut selector, 2), [(1, 1)]);
    assert_eq!(evaluate(&mut selector, 3), []);
}

#[test]
fn pinned_connection_keeps_algorithm_until_released() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(Some("bbr"))), settings());
    selector.ingest(PathUpdate::Set { connection: 1, now: at(0), algorithm: 2, pinned: true });
    for second in 0..20 {
        selector.ingest(acked(1, second * 1000, second, 0));
        assert_eq!(evaluate(&mut selector, second * 1000), []);
    }
    assert_eq!(selector.rule_input(1, at(20_000)).unwrap().algorithm, "westwood");
    selector.ingest(PathUpdate::Set {
        connection: 1,
        now: at(20_000),
        algorithm: 2,
        pinned: false,
    });
    let later: Vec<_> = (20..30)
        .flat_map(|second| {
            selector.ingest(acked(1, second * 1000, second, 0));
            evaluate(&mut selector, second * 1000)
        })
        .collect();
    assert_eq!(later, [(1, 1)]);
}

#[test]
fn replaced_rules_are_evaluated_for_all_connections() {
    fn always(
        name: &'static str,
    ) -> FnRules<impl FnMut(&RuleInput) -> Result<Option<&'static str>, String>> {
        FnRules(move |_: &RuleInput| Ok(Some(name)))
    }
    let mut selector = Selector::new(always("cubic"), settings());
    selector.ingest(opened(1, Class::Bulk));
    assert_eq!(evaluate(&mut selector, 1), []);
    selector.replace_rules(always("bbr"));
    assert_eq!(evaluate(&mut selector, 2), [(1, 1)]);
}

#[test]
fn closed_and_silent_connections_are_removed() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    for connection in 0..10 {
        selector.ingest(acked(connection, 0, 0, 0));
    }
    selector.ingest(PathUpdate::Closed { connection: 3 });
    assert_eq!(selector.connections(), 9);
    for second in 0..200 {
        selector.ingest(acked(5, second * 1000, second, 0));
        evaluate(&mut selector, second * 1000);
    }
    assert_eq!(selector.connections(), 1);
}

#[test]
fn player_report_reaches_rules_with_its_age() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    selector.ingest(opened(1, Class::Dash));
    let player = Player { buffer_s: Some(3.0), ..Player::default() };
    selector.ingest(PathUpdate::Player { connection: 1, now: at(1000), player });
    let player = selector.rule_input(1, at(3500)).unwrap().player.unwrap();
    assert_eq!((player.buffer_s, player.age_s), (Some(3.0), 2.5));
}

#[test]
fn bucket_holds_rtts_from_its_lower_bound_to_the_next() {
    assert_eq!([0, 1, 393_215, 393_216].map(bucket), [0, 0, 0, 1]);
    for number in 1..BUCKETS {
        assert_eq!(bucket(lower_bound_ns(number)), number);
        assert_eq!(bucket(lower_bound_ns(number) - 1), number - 1);
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn batch_interval_is_a_tenth_of_the_modal_rtt() {
    let mut selector = Selector::new(FnRules(|_: &RuleInput| Ok(None)), settings());
    assert_eq!(selector.interval(), MAX_INTERVAL);
    for ms in 0..100 {
        selector.ingest(acked(1, ms, 0, 0));
    }
    let interval = selector.interval().as_secs_f64();
    assert!(
        (0.002..=0.0031).contains(&interval),
        "a tenth of 30 ms, in half doublings: {interval}"
    );
}
