//! The thread that runs a [`Selector`] beside its worker.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_cc::Time;

use crate::queue::SelectorEnd;
use crate::rules::SelectionRules;
use crate::{Episode, Explained, Selector, SelectorCounts, SelectorSettings};

/// Maximum number of updates ingested before the rules are evaluated.
const BATCH_UPDATES: usize = 4096;
/// Maximum number of calls of [`SelectorThread::explain`] that wait at a time.
const MAX_EXPLAIN_REQUESTS: usize = 16;
/// Time limit of [`SelectorThread::explain`]: several of the longest intervals between batches.
const EXPLAIN_TIMEOUT: Duration = Duration::from_millis(300);
/// Delay between a crash and the restart of the Selector.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Counters of a worker's Selector, for metrics.
#[derive(Debug, Default)]
pub struct SharedSelectorCounts {
    evaluations: AtomicU64,
    evaluation_errors: AtomicU64,
    switch_requests: AtomicU64,
    postponed_requests: AtomicU64,
    connections_rejected: AtomicU64,
    episodes_dropped: AtomicU64,
    /// Counter of the queue.
    records_dropped: Arc<AtomicU64>,
    restarts: AtomicU64,
    connections: AtomicU64,
}

/// A reading of [`SharedSelectorCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Sum over all restarts of the Selector.
    pub counts: SelectorCounts,
    /// Updates that did not fit into the queue.
    pub records_dropped: u64,
    /// Restarts after a crash.
    pub restarts: u64,
    /// Number of connections.
    pub connections: u64,
}

impl SharedSelectorCounts {
    /// Reads the counters.
    pub fn read(&self) -> Reading {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reading {
            counts: SelectorCounts {
                evaluations: of(&self.evaluations),
                evaluation_errors: of(&self.evaluation_errors),
                switch_requests: of(&self.switch_requests),
                postponed_requests: of(&self.postponed_requests),
                connections_rejected: of(&self.connections_rejected),
                episodes_dropped: of(&self.episodes_dropped),
            },
            records_dropped: of(&self.records_dropped),
            restarts: of(&self.restarts),
            connections: of(&self.connections),
        }
    }

    fn add(&self, now: SelectorCounts, before: SelectorCounts) {
        for (total, more) in [
            (&self.evaluations, now.evaluations - before.evaluations),
            (&self.evaluation_errors, now.evaluation_errors - before.evaluation_errors),
            (&self.switch_requests, now.switch_requests - before.switch_requests),
            (&self.postponed_requests, now.postponed_requests - before.postponed_requests),
            (&self.connections_rejected, now.connections_rejected - before.connections_rejected),
            (&self.episodes_dropped, now.episodes_dropped - before.episodes_dropped),
        ] {
            total.fetch_add(more, Ordering::Relaxed);
        }
    }
}

type MakeRules<R> = Arc<dyn Fn() -> Result<R, String> + Send + Sync>;

/// Rules that can be replaced while Selectors run. Each Selector makes its own instance, because threads can't share
/// a Lua state.
pub struct RulesSource<R> {
    generation: AtomicU64,
    make: Mutex<MakeRules<R>>,
}

impl<R> RulesSource<R> {
    /// Rules that `make` creates.
    pub fn new(make: impl Fn() -> Result<R, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { generation: AtomicU64::new(0), make: Mutex::new(Arc::new(make)) })
    }

    /// Replaces the rules; the Selectors load them before their next evaluation.
    pub fn replace(&self, make: impl Fn() -> Result<R, String> + Send + Sync + 'static) {
        // A panic under the lock leaves the old or the new function, both valid.
        *self.make.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(make);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn make(&self) -> Result<R, String> {
        let make = Arc::clone(&self.make.lock().unwrap_or_else(PoisonError::into_inner));
        make()
    }
}

/// A running Selector. It ends when this value or the worker's end of the queues is dropped.
#[derive(Debug)]
pub struct SelectorThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    account: Arc<SharedSelectorCounts>,
    explain_requests: SyncSender<ExplainRequest>,
}

/// A call of [`SelectorThread::explain`].
#[derive(Debug)]
struct ExplainRequest {
    connection: u64,
    reply: SyncSender<Option<Explained>>,
}

/// Parameters of a [`SelectorThread`].
pub struct SelectorThreadConfig<R> {
    /// Name of the thread.
    pub name: String,
    /// The Selector's ends of the queues.
    pub queues: SelectorEnd,
    /// The rules.
    pub rules: Arc<RulesSource<R>>,
    /// Settings of the Selector.
    pub settings: SelectorSettings,
    /// An instant and the agent's time at that instant.
    pub epoch: (Instant, Time),
    /// Receives failures.
    pub report: Box<dyn FnMut(&str) + Send>,
    /// Takes the recorded episodes and returns how many were dropped. It must not block.
    pub keep_episodes: Box<dyn FnMut(Vec<Episode>) -> u64 + Send>,
}

impl SelectorThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system can't create a thread.
    pub fn start<R: SelectionRules + 'static>(config: SelectorThreadConfig<R>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let account = SharedSelectorCounts {
            records_dropped: config.queues.dropped(),
            ..SharedSelectorCounts::default()
        };
        let account = Arc::new(account);
        let (explain_requests, received) = sync_channel(MAX_EXPLAIN_REQUESTS);
        let (stopped, own) = (Arc::clone(&stop), Arc::clone(&account));
        let thread = thread::Builder::new()
            .name(config.name.clone())
            .spawn(move || keep_running(config, &stopped, &own, &received))?;
        Ok(Self { stop, thread: Some(thread), account, explain_requests })
    }

    /// Evaluates the rules for a connection. Returns `None` if this Selector does not know the connection, or does
    /// not answer in time.
    pub fn explain(&self, connection: u64) -> Option<Explained> {
        let (reply, answer) = sync_channel(1);
        self.explain_requests.try_send(ExplainRequest { connection, reply }).ok()?;
        answer.recv_timeout(EXPLAIN_TIMEOUT).ok()?
    }

    /// The counters.
    pub fn account(&self) -> Arc<SharedSelectorCounts> {
        Arc::clone(&self.account)
    }
}

impl Drop for SelectorThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread has reported its panics.
            let _ = thread.join();
        }
    }
}

/// Runs a Selector, and restarts it after a crash. Connections keep their algorithm meanwhile.
fn keep_running<R: SelectionRules>(
    mut config: SelectorThreadConfig<R>,
    stop: &AtomicBool,
    account: &SharedSelectorCounts,
    explain_requests: &Receiver<ExplainRequest>,
) {
    while !is_over(stop, &config.queues) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            run_selector(&mut config, stop, account, explain_requests)
        }));
        let problem = match ended {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(_) => {
                account.restarts.fetch_add(1, Ordering::Relaxed);
                "the Selector crashed and is started again".to_owned()
            }
        };
        (config.report)(&problem);
        thread::park_timeout(RESTART_DELAY);
    }
}

fn is_over(stop: &AtomicBool, queues: &SelectorEnd) -> bool {
    stop.load(Ordering::Relaxed) || queues.is_abandoned()
}

/// Runs a Selector until the thread must end. Returns an error if the initial rules can't be loaded.
fn run_selector<R: SelectionRules>(
    config: &mut SelectorThreadConfig<R>,
    stop: &AtomicBool,
    account: &SharedSelectorCounts,
    explain_requests: &Receiver<ExplainRequest>,
) -> Result<(), String> {
    let SelectorThreadConfig { queues, rules, settings, epoch, report, keep_episodes, .. } = config;
    let (instant, time) = *epoch;
    let mut generation = rules.generation.load(Ordering::Acquire);
    let mut selector = Selector::new(rules.make()?, settings.clone());
    let mut before = SelectorCounts::default();
    while !is_over(stop, queues) {
        for _ in 0..BATCH_UPDATES {
            let Some(update) = queues.next_update() else { break };
            selector.ingest(update);
        }
        let latest = rules.generation.load(Ordering::Acquire);
        if latest != generation {
            generation = latest;
            match rules.make() {
                Ok(rules) => selector.replace_rules(rules),
                Err(problem) => report(&problem),
            }
        }
        let now = time + instant.elapsed();
        selector.evaluate(now, |request| queues.try_send(request), &mut *report);
        let dropped = keep_episodes(selector.take_episodes());
        account.episodes_dropped.fetch_add(dropped, Ordering::Relaxed);
        while let Ok(ExplainRequest { connection, reply }) = explain_requests.try_recv() {
            // Fails if the caller has timed out.
            let _ = reply.send(selector.explain(connection, now));
        }
        let counts = selector.counts();
        account.add(counts, before);
        before = counts;
        account.connections.store(selector.connections() as u64, Ordering::Relaxed);
        // The worker neither waits for this thread nor wakes it.
        thread::park_timeout(selector.interval());
    }
    while let Some(update) = queues.next_update() {
        selector.ingest(update);
    }
    selector.end();
    // The metrics are no longer read.
    let _ = keep_episodes(selector.take_episodes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{self, AgentEnd};
    use crate::rules::Choice;
    use crate::{Class, PathUpdate, RuleInput, SwitchRequest};

    const TIMEOUT: Duration = Duration::from_secs(20);

    struct Always(&'static str);

    impl SelectionRules for Always {
        fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String> {
            match (self.0, input.connection) {
                ("panic", 13) => panic!("13"),
                ("slow", _) => thread::sleep(Duration::from_millis(200)),
                _ => {}
            }
            let algorithm = if self.0 == "b" { "b" } else { "a" }.to_owned();
            Ok(Some(Choice { algorithm, reason: None }))
        }
    }

    fn start(
        name: &'static str,
        updates: usize,
    ) -> (AgentEnd, SelectorThread, Arc<RulesSource<Always>>) {
        let (agent, queues) = queue::pair(updates, 64);
        let rules = RulesSource::new(move || Ok(Always(name)));
        let settings = SelectorSettings::new(["none", "a", "b"].map(str::to_owned).to_vec());
        let thread = SelectorThread::start(SelectorThreadConfig {
            name: "selector-test".to_owned(),
            queues,
            rules: Arc::clone(&rules),
            settings,
            epoch: (Instant::now(), Time::ZERO),
            report: Box::new(|_| {}),
            keep_episodes: Box::new(|_| 0),
        });
        (agent, thread.unwrap(), rules)
    }

    fn opened(connection: u64) -> PathUpdate {
        PathUpdate::Opened { connection, now: Time::ZERO, class: Class::Bulk, algorithm: 0 }
    }

    /// Waits for a request.
    fn receive(agent: &mut AgentEnd) -> SwitchRequest {
        let began = Instant::now();
        loop {
            if let Some(request) = agent.next_request() {
                return request;
            }
            assert!(began.elapsed() < TIMEOUT, "no request");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn thread_sends_requests_and_replaces_rules() {
        let (mut agent, thread, rules) = start("a", 64);
        agent.try_send(opened(1));
        let request = SwitchRequest { connection: 1, algorithm: 1, is_new_path: false };
        assert_eq!(receive(&mut agent), request);
        rules.replace(|| Ok(Always("b")));
        // A new connection has no dwell time, and later updates are evaluated with the new rules.
        agent.try_send(opened(2));
        let request = SwitchRequest { connection: 2, algorithm: 2, is_new_path: false };
        assert_eq!(receive(&mut agent), request);
        assert!(thread.account().read().counts.switch_requests >= 2);
        let explained = thread.explain(2).unwrap();
        assert_eq!((explained.input.algorithm.as_str(), explained.problem), ("b", None));
        assert_eq!(explained.choice.unwrap().algorithm, "b");
        assert_eq!(thread.explain(3), None);
    }

    #[test]
    fn thread_restarts_selector_after_crash() {
        let (mut agent, thread, _) = start("panic", 64);
        agent.try_send(opened(13));
        let account = thread.account();
        let began = Instant::now();
        while account.read().restarts == 0 {
            assert!(began.elapsed() < TIMEOUT);
            thread::sleep(Duration::from_millis(1));
        }
        agent.try_send(opened(1));
        assert_eq!(receive(&mut agent).connection, 1);
    }

    #[test]
    fn slow_rule_drops_updates_without_blocking_agent() {
        let (mut agent, thread, _) = start("slow", 16);
        let began = Instant::now();
        while agent.dropped() == 0 {
            assert!(began.elapsed() < TIMEOUT);
            (0..1000).for_each(|round| _ = agent.try_send(opened(round % 4)));
        }
        assert_eq!(receive(&mut agent).algorithm, 1);
        drop(thread);
    }

    #[test]
    fn thread_ends_with_its_worker() {
        let (agent, mut thread, _) = start("a", 16);
        drop(agent);
        thread.thread.take().unwrap().join().unwrap();
    }
}
