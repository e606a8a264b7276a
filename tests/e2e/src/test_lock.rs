//! Lock between the tests of one binary: how many run at the same time depends on what they measure.
//!
//! Most run beside many others. Tests that measure seconds run beside a few of their kind. Tests that measure rates, memory
//! or milliseconds run exclusively. A kind begins when no test of an earlier kind runs or waits, and
//! no two kinds run at the same time. Each test that waits keeps a thread of the test binary: with fewer threads than
//! exclusive tests, others run in what is left of them.
//!
//! A test that has not ended after [`MAX_TEST_TIME`] ends the process with a reason: a test that fails while a thread of
//! its own waits for what no longer comes would hold the others up for ever.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Number of kinds.
const KINDS: usize = 3;

/// Tests of each [`Kind`] that run at the same time.
///
/// Of many: they wait most of the time; with 12, the 186 tests of `loopback` took 45 s and half of two processors. Less,
/// because other programs run beside them in `make test`. Of few: their bounds are half a second and more, and each pair of
/// proxies of theirs takes up to a quarter of a processor.
const MAX_RUNNING: [usize; KINDS] = [8, 4, 1];

/// Longer than the longest test, whose flows stay paused for ten minutes.
const MAX_TEST_TIME: Duration = Duration::from_secs(15 * 60);

static LOCK: Lock = Lock { state: Mutex::new([Count::NONE; KINDS]), changed: Condvar::new() };

struct Lock {
    state: Mutex<[Count; KINDS]>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct Count {
    waiting: usize,
    running: usize,
}

impl Count {
    const NONE: Self = Self { waiting: 0, running: 0 };
}

/// Beside which others a test may run. Earlier kinds come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Many others of its kind.
    Many,
    /// A few others of its kind.
    Few,
    /// No other test of this process.
    Exclusive,
}

/// Permission to run, until dropped.
#[derive(Debug)]
pub struct TestLock {
    kind: Kind,
    /// Its end tells the thread of [`end_process_unless_dropped`].
    _running: Sender<()>,
}

/// What panics of this process said: where one test waits for ever, its own panic is not printed.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records panics for [`PANICS`], besides what is done with them anyway.
fn record_panics() {
    static RECORDED: Once = Once::new();
    RECORDED.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            default_hook(panic);
        }));
    });
}

/// Ends the process, with what is known of the reason, when `running` is not dropped in time.
fn end_process_unless_dropped(test: &str, running: &Receiver<()>) {
    if running.recv_timeout(MAX_TEST_TIME) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    // Not by a macro: what these print is kept until the test's end.
    let mut stderr = std::io::stderr();
    let _ = writeln!(
        stderr,
        "test {test} ... FAILED\n{test} has not ended within {MAX_TEST_TIME:?}; panics until then:\n{panics}"
    );
    std::process::exit(101);
}

impl Lock {
    // A failed test does not affect others: the counts are right whenever the mutex is free.
    fn state(&self) -> MutexGuard<'_, [Count; KINDS]> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a test of this kind may begin.
fn is_open(kinds: &[Count; KINDS], kind: Kind) -> bool {
    let own = kind as usize;
    let others_run = (0..KINDS).any(|other| other != own && kinds[other].running > 0);
    let earlier_wait = kinds[..own].iter().any(|earlier| earlier.waiting > 0);
    !others_run && !earlier_wait && kinds[own].running < MAX_RUNNING[own]
}

impl Drop for TestLock {
    fn drop(&mut self) {
        LOCK.state()[self.kind as usize].running -= 1;
        LOCK.changed.notify_all();
    }
}

/// Waits until a test of this kind may run.
#[must_use]
pub fn wait(kind: Kind) -> TestLock {
    let mut state = LOCK.state();
    state[kind as usize].waiting += 1;
    let mut state = LOCK
        .changed
        .wait_while(state, |kinds| !is_open(kinds, kind))
        .unwrap_or_else(PoisonError::into_inner);
    state[kind as usize].waiting -= 1;
    state[kind as usize].running += 1;
    drop(state);
    // One that no longer waits may open a later kind.
    LOCK.changed.notify_all();
    record_panics();
    let (running, ended) = channel();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || end_process_unless_dropped(&test, &ended));
    TestLock { kind, _running: running }
}

/// Waits until it may run beside many others.
#[must_use]
pub fn shared() -> TestLock {
    wait(Kind::Many)
}

/// Waits until no other test runs or waits to run, and keeps others from starting.
#[must_use]
pub fn exclusive() -> TestLock {
    wait(Kind::Exclusive)
}
