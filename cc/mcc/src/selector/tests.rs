use super::*;
use crate::rules::Choice;
use crate::{Class, Player, Record};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// Says what it is told to say about each connection.
struct Fixed<F>(F);

impl<F: FnMut(&Facts) -> Result<Option<&'static str>, String>> Rules for Fixed<F> {
    fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String> {
        let name = (self.0)(facts)?;
        Ok(name.map(|name| Choice { algorithm: name.to_owned(), reason: None }))
    }
}

fn settings() -> Settings {
    Settings::new(["cubic", "bbr", "westwood"].map(str::to_owned).to_vec())
}

fn acked(connection: u64, ms: u64, delivered: u64, lost: u64) -> News {
    let mut path = millrace_cc::PathModel::default();
    path.min_rtt = Some(Duration::from_millis(20));
    path.latest_rtt = Duration::from_millis(30);
    path.smoothed_rtt = Duration::from_millis(25);
    (path.delivered_bytes, path.lost_bytes) = (delivered, lost);
    News::Acked(Record::new(connection, at(ms), &path))
}

fn opened(connection: u64, class: Class) -> News {
    News::Opened { connection, now: at(0), class, algorithm: 0 }
}

/// Orders given at `ms`.
fn decide<R: Rules>(selector: &mut Selector<R>, ms: u64) -> Vec<(u64, u16)> {
    let mut orders = Vec::new();
    let give = |order: Order| {
        orders.push((order.connection, order.algorithm));
        true
    };
    selector.decide(at(ms), give, |_| {});
    orders
}

#[test]
fn connections_get_algorithms_of_their_own() {
    let by_class =
        |facts: &Facts| Ok(Some(if facts.class == Class::Rtsp { "bbr" } else { "cubic" }));
    let mut selector = Selector::new(Fixed(by_class), settings());
    selector.hear(opened(1, Class::Rtsp));
    selector.hear(opened(2, Class::Dash));
    // What a connection begins with needs no confirmation.
    assert_eq!(decide(&mut selector, 1), [(1, 1)]);
    assert_eq!(selector.facts(1, at(1)).unwrap().algorithm, "bbr");
    assert_eq!(decide(&mut selector, 1000), [], "nothing new");
}

#[test]
fn a_change_must_be_wanted_for_a_while_and_the_one_before_has_its_time() {
    let by_loss = |facts: &Facts| Ok(Some(if facts.loss > 0.03 { "westwood" } else { "bbr" }));
    let mut selector = Selector::new(Fixed(by_loss), settings());
    selector.hear(opened(1, Class::Bulk));
    let (mut delivered, mut lost, mut orders) = (0, 0, Vec::new());
    for tenth in 0..300 {
        let ms = tenth * 100;
        // From 6 s on there is loss, at 4 s for a moment only.
        let share = if tenth >= 60 || tenth == 40 { 10 } else { 0 };
        (delivered, lost) = (delivered + 100 - share, lost + share);
        selector.hear(acked(1, ms, delivered, lost));
        orders.extend(decide(&mut selector, ms).into_iter().map(|order| (ms, order)));
    }
    let (first, second) = (orders[0], orders[1]);
    assert_eq!((first.1, second.1), ((1, 1), (1, 2)));
    assert_eq!(first.0, 0, "what a connection begins with needs no confirmation: {orders:?}");
    // Three of a hundred over ten seconds: 3 s of one in ten, and a second's confirmation.
    assert!((9000..11_500).contains(&second.0), "{orders:?}");
    assert_eq!(orders.len(), 2, "{orders:?}");
    assert_eq!(selector.counts().ordered, 2);
}

/// On a path that has become another one so often.
fn acked_on(changes: u32, rtt_ratio: f32, ms: u64, delivered: u64) -> News {
    match acked(1, ms, delivered, delivered / 10) {
        News::Acked(record) => News::Acked(Record { path_changes: changes, rtt_ratio, ..record }),
        other => other,
    }
}

#[test]
fn on_a_longer_path_whatever_drives_starts_anew_and_nothing_is_known() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    selector.hear(opened(1, Class::Bulk));
    let mut orders = Vec::new();
    let mut run = |selector: &mut Selector<_>, seconds: std::ops::Range<u64>, changes, ratio| {
        for second in seconds {
            selector.hear(acked_on(changes, ratio, second * 1000, second * 1000));
            let give = |order: Order| {
                orders.push((second, order.algorithm, order.anew));
                true
            };
            selector.decide(at(second * 1000), give, |_| {});
        }
    };
    run(&mut selector, 0..20, 0, 0.0);
    let before = selector.facts(1, at(19_500)).unwrap();
    assert!((before.path_age_s - 19.5).abs() < 1e-9 && before.loss > 0.05, "{before:?}");
    run(&mut selector, 20..21, 1, 3.0);
    let after = selector.facts(1, at(20_500)).unwrap();
    assert_eq!((after.path_age_s, after.age_s, after.loss), (0.5, 20.5, 0.0));
    run(&mut selector, 21..40, 1, 3.0);
    // A shorter one needs no start: nothing that fits the longer one is too much for long.
    run(&mut selector, 40..60, 2, 0.3);
    assert_eq!(selector.facts(1, at(60_000)).unwrap().path_age_s, 20.0);
    assert_eq!(orders, [(20, 0, true)]);
    assert_eq!(selector.facts(1, at(60_000)).unwrap().switches, 0);
}

#[test]
fn a_selector_that_comes_late_takes_no_path_for_a_new_one() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    for second in 0..10 {
        selector.hear(acked_on(3, 3.0, second * 1000, second * 1000));
        assert_eq!(decide(&mut selector, second * 1000), []);
    }
    assert_eq!(selector.facts(1, at(10_000)).unwrap().path_age_s, 10.0);
}

#[test]
fn what_rules_want_for_a_new_path_needs_neither_confirmation_nor_dwell() {
    let by_age = |facts: &Facts| Ok(Some(if facts.path_age_s < 1.0 { "westwood" } else { "bbr" }));
    let mut selector = Selector::new(Fixed(by_age), settings());
    selector.hear(opened(1, Class::Bulk));
    let mut orders = Vec::new();
    for second in 0..40 {
        let changes = u32::from(second >= 8);
        selector.hear(acked_on(changes, 3.0, second * 1000, second * 1000));
        orders.extend(
            decide(&mut selector, second * 1000).into_iter().map(|order| (second, order.1)),
        );
    }
    // BBR once Westwood has had its five seconds, and Westwood at once where the path is new.
    assert_eq!(orders, [(0, 2), (5, 1), (8, 2), (13, 1)]);
}

#[test]
fn what_flaps_is_held_by_the_dwell_time() {
    let mut turn = 0;
    let flapping = move |_: &Facts| {
        turn += 1;
        Ok(Some(if turn % 20 < 10 { "bbr" } else { "westwood" }))
    };
    let mut selector = Selector::new(Fixed(flapping), settings());
    let mut orders = Vec::new();
    for tenth in 0..600 {
        selector.hear(acked(1, tenth * 100, tenth, 0));
        orders.extend(decide(&mut selector, tenth * 100).into_iter().map(|_| tenth * 100));
    }
    assert!(orders.len() > 3, "{orders:?}");
    for pair in orders.windows(2) {
        assert!(pair[1] - pair[0] >= 5000, "{orders:?}");
    }
}

#[test]
fn rules_are_not_asked_more_often_than_wanted() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    for ms in 0..10_000 {
        selector.hear(acked(1, ms, ms, 0));
        assert_eq!(decide(&mut selector, ms), []);
    }
    assert_eq!(selector.counts().asked, 40);
}

#[test]
fn failures_keep_the_algorithm_and_are_told_once() {
    let broken = |facts: &Facts| {
        if facts.connection == 3 { Ok(Some("vegas")) } else { Err("rules.lua:2: no".to_owned()) }
    };
    let mut selector = Selector::new(Fixed(broken), settings());
    let mut told = Vec::new();
    for second in 0..10 {
        selector.hear(acked(1, second * 1000, 0, 0));
        selector.decide(
            at(second * 1000),
            |_| panic!("no order"),
            |said| told.push(said.to_owned()),
        );
    }
    selector.hear(opened(3, Class::Bulk));
    selector.decide(at(10_000), |_| panic!("no order"), |said| told.push(said.to_owned()));
    let wrong = "the rules chose \"vegas\"; there are cubic, bbr, westwood";
    assert_eq!(told, ["rules.lua:2: no", wrong]);
    assert_eq!((selector.counts().asked, selector.counts().failed), (11, 11));
}

#[test]
fn an_order_without_room_is_given_again() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(Some("bbr"))), settings());
    selector.hear(opened(1, Class::Bulk));
    selector.decide(at(1), |_| false, |_| {});
    assert_eq!(selector.counts().postponed, 1);
    assert_eq!(decide(&mut selector, 2), [(1, 1)]);
    assert_eq!(decide(&mut selector, 3), []);
}

#[test]
fn a_pinned_connection_is_left_alone_until_it_is_released() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(Some("bbr"))), settings());
    selector.hear(News::Set { connection: 1, now: at(0), algorithm: 2, pinned: true });
    for second in 0..20 {
        selector.hear(acked(1, second * 1000, second, 0));
        assert_eq!(decide(&mut selector, second * 1000), []);
    }
    assert_eq!(selector.facts(1, at(20_000)).unwrap().algorithm, "westwood");
    selector.hear(News::Set { connection: 1, now: at(20_000), algorithm: 2, pinned: false });
    let later: Vec<_> = (20..30)
        .flat_map(|second| {
            selector.hear(acked(1, second * 1000, second, 0));
            decide(&mut selector, second * 1000)
        })
        .collect();
    assert_eq!(later, [(1, 1)]);
}

#[test]
fn other_rules_are_asked_about_everyone() {
    fn always(
        name: &'static str,
    ) -> Fixed<impl FnMut(&Facts) -> Result<Option<&'static str>, String>> {
        Fixed(move |_: &Facts| Ok(Some(name)))
    }
    let mut selector = Selector::new(always("cubic"), settings());
    selector.hear(opened(1, Class::Bulk));
    assert_eq!(decide(&mut selector, 1), []);
    selector.replace_rules(always("bbr"));
    assert_eq!(decide(&mut selector, 2), [(1, 1)]);
}

#[test]
fn what_is_closed_or_silent_is_forgotten() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    for connection in 0..10 {
        selector.hear(acked(connection, 0, 0, 0));
    }
    selector.hear(News::Closed { connection: 3 });
    assert_eq!(selector.connections(), 9);
    for second in 0..200 {
        selector.hear(acked(5, second * 1000, second, 0));
        decide(&mut selector, second * 1000);
    }
    assert_eq!(selector.connections(), 1);
}

#[test]
fn a_player_is_told_of_with_its_age() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    selector.hear(opened(1, Class::Dash));
    let player = Player { buffer_s: Some(3.0), ..Player::default() };
    selector.hear(News::Player { connection: 1, now: at(1000), player });
    let told = selector.facts(1, at(3500)).unwrap().player.unwrap();
    assert_eq!((told.buffer_s, told.age_s), (Some(3.0), 2.5));
}

#[test]
fn a_bucket_holds_what_lies_between_its_least_and_the_next_ones() {
    assert_eq!([0, 1, 393_215, 393_216].map(bucket), [0, 0, 0, 1]);
    for number in 1..BUCKETS {
        assert_eq!(bucket(least_in(number)), number);
        assert_eq!(bucket(least_in(number) - 1), number - 1);
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn news_gather_for_a_tenth_of_the_modal_rtt() {
    let mut selector = Selector::new(Fixed(|_: &Facts| Ok(None)), settings());
    assert_eq!(selector.interval(), LONGEST_INTERVAL);
    for ms in 0..100 {
        selector.hear(acked(1, ms, 0, 0));
    }
    let interval = selector.interval().as_secs_f64();
    assert!(
        (0.002..=0.0031).contains(&interval),
        "a tenth of 30 ms, in half doublings: {interval}"
    );
}
