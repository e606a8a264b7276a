use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::events::{TopEvent, start_updates};
use super::snapshot::{SnapshotSource, TopSnapshot};
use super::state::TopState;
use super::{run_loop, view};
use crate::admin::AdminApiError;
use crate::admin::test_listener::{AdminFixture, flow};

/// For what takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

fn state_with(flows: u64) -> TopState {
    let flows = (0..flows).map(|id| flow(id, 1000.0 - id as f64)).collect();
    let program = "millrace-client 1.2.3".to_owned();
    let snapshot = TopSnapshot { program, health_problem: None, flows };
    TopState::new("127.0.0.1:9464".to_owned(), snapshot)
}

fn draw(state: &mut TopState, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view::draw(frame, state)).unwrap();
    lines(&terminal)
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn press(state: &mut TopState, code: KeyCode) -> bool {
    state.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_terminal_of_80_by_24_shows_all_that_matters() {
    let shown = draw(&mut state_with(2), 80, 24);
    assert_eq!(shown[0], "millrace-client 1.2.3  127.0.0.1:9464  healthy");
    assert_eq!(shown[1], "2 TCP  0 UDP  0 bypassed  1999.00 Mbit/s  2.5 kB up  113.4 MB down");
    let words = |line: usize| shown[line].split_whitespace().collect::<Vec<_>>();
    let titles =
        ["CLIENT", "DESTINATION", "CLASS", "ALGORITHM", "MBIT/S", "RTT", "MS", "LOSS", "%"];
    assert_eq!(words(2), titles);
    let first = ["198.18.1.0", "198.18.3.2:80", "dash", "vivace-latency", "1000.00", "48.2", "1.2"];
    assert_eq!(words(3), first);
    assert_eq!(words(4)[4], "999.00");
    assert!(shown[5].is_empty(), "{shown:?}");
    assert!(shown[23].starts_with("flows 1 to 2 of 2  q quit"), "{shown:?}");
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:?}");
}

#[test]
fn a_wide_terminal_shows_more_columns() {
    let titles = |columns| draw(&mut state_with(1), columns, 24)[2].clone();
    assert!(!titles(100).contains("AGE"));
    assert!(titles(110).contains("AGE") && !titles(110).contains("CONNECTION"));
    assert!(titles(150).ends_with("CONNECTION"));
}

#[test]
fn many_flows_are_shown_in_pages() {
    let mut state = state_with(50);
    let page = |state: &mut TopState| draw(state, 80, 24)[23].clone();
    assert!(page(&mut state).starts_with("flows 1 to 20 of 50"));
    for (key, shown) in [
        (KeyCode::PageDown, "flows 21 to 40 of 50"),
        (KeyCode::PageDown, "flows 31 to 50 of 50"),
        (KeyCode::Down, "flows 31 to 50 of 50"),
        (KeyCode::Up, "flows 30 to 49 of 50"),
        (KeyCode::PageUp, "flows 10 to 29 of 50"),
        (KeyCode::End, "flows 31 to 50 of 50"),
        (KeyCode::Home, "flows 1 to 20 of 50"),
    ] {
        assert!(!press(&mut state, key));
        assert!(page(&mut state).starts_with(shown), "{key:?}: {}", page(&mut state));
    }
    press(&mut state, KeyCode::End);
    state.snapshot.flows.truncate(5);
    assert!(page(&mut state).starts_with("flows 1 to 5 of 5"));
    state.snapshot.flows.clear();
    assert!(page(&mut state).starts_with("no flows"));
}

#[test]
fn a_tiny_terminal_is_no_error() {
    for (columns, rows) in [(1, 1), (20, 3), (80, 4)] {
        draw(&mut state_with(3), columns, rows);
    }
}

#[test]
fn health_and_a_program_that_does_not_answer_are_said() {
    let mut state = state_with(1);
    state.snapshot.health_problem = Some("no connection to a server".to_owned());
    assert!(draw(&mut state, 80, 24)[0].ends_with("not healthy: no connection to a server"));
    state.update(Err(AdminApiError::NotListening { at: "127.0.0.1:9464".to_owned() }));
    let shown = draw(&mut state, 80, 24);
    assert!(shown[23].starts_with("nothing listens at 127.0.0.1:9464"), "{shown:?}");
    assert!(shown[3].starts_with("198.18.1.0"), "the last answer stays: {shown:?}");
    state.update(Ok(state_with(2).snapshot));
    assert!(draw(&mut state, 80, 24)[23].starts_with("flows 1 to 2 of 2"));
}

#[test]
fn q_and_control_c_quit() {
    let mut state = state_with(1);
    assert!(press(&mut state, KeyCode::Char('q')));
    assert!(!press(&mut state, KeyCode::Char('c')));
    assert!(state.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

/// Ends the loop, and returns what it showed last.
fn quit(
    events: &Sender<TopEvent>,
    display: std::thread::JoinHandle<Terminal<TestBackend>>,
) -> Vec<String> {
    events.send(TopEvent::Key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))).unwrap();
    lines(&display.join().unwrap())
}

/// A display of what a real listener answers. `change` is made once it has been shown for the first time; the display ends
/// after the first answer for which `is_awaited`.
fn show(
    fixture: AdminFixture,
    change: impl FnOnce(AdminFixture) -> Option<AdminFixture>,
    is_awaited: impl Fn(&Result<TopSnapshot, AdminApiError>) -> bool,
) -> Vec<String> {
    let mut source = SnapshotSource::new(fixture.api(None));
    let state = TopState::new(source.address(), source.fetch().unwrap());
    let (updates, updated) = channel();
    let _stop = start_updates(source, Duration::from_millis(10), &updates).unwrap();
    let (sender, events) = channel();
    let display = std::thread::spawn(move || {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        run_loop(&mut terminal, &events, state).unwrap();
        terminal
    });
    let _changed = change(fixture);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "the awaited answer did not come");
        let TopEvent::Updated(update) = updated.recv_timeout(TIMEOUT).unwrap() else { continue };
        let is_last = is_awaited(&update);
        sender.send(TopEvent::Updated(update)).unwrap();
        if is_last {
            return quit(&sender, display);
        }
    }
}

#[test]
fn the_loop_shows_what_a_listener_answers_and_quits() {
    let shown = show(
        AdminFixture::start(vec![flow(1, 1.0)]),
        |fixture| {
            *fixture.flows.lock().unwrap() = vec![flow(1, 1.0), flow(2, 7.5)];
            fixture.healthy.store(false, Ordering::Relaxed);
            Some(fixture)
        },
        |update| update.as_ref().is_ok_and(|it| it.flows.len() == 2 && it.health_problem.is_some()),
    );
    assert!(shown[0].starts_with("millrace-client 1.2.3  127.0.0.1:"), "{shown:?}");
    assert!(shown[0].ends_with("not healthy: no connection to a server"), "{shown:?}");
    assert!(shown[1].contains("8.50 Mbit/s"), "{shown:?}");
    assert!(shown[3].contains("198.18.1.2") && shown[3].contains("7.50"), "{shown:?}");
}

#[test]
fn the_loop_goes_on_without_a_listener_and_after_its_restart() {
    let gone = show(
        AdminFixture::start(vec![flow(1, 1.0)]),
        |fixture| {
            drop(fixture);
            None
        },
        Result::is_err,
    );
    assert!(gone[23].starts_with("nothing listens at "), "{gone:?}");
    assert!(gone[3].contains("198.18.1.1"), "{gone:?}");

    let again = show(
        AdminFixture::start(vec![flow(1, 1.0)]),
        |fixture| {
            let address = fixture.address();
            drop(fixture);
            Some(AdminFixture::start_at(vec![flow(3, 2.0)], address))
        },
        |update| update.as_ref().is_ok_and(|it| it.flows[0].id == 3),
    );
    assert!(again[3].contains("198.18.1.3"), "{again:?}");
    assert!(again[23].starts_with("flows 1 to 1 of 1"), "{again:?}");
}
