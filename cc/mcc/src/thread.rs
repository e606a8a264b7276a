//! A Selector on a thread of its own, beside its worker.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_cc::Time;

use crate::pipe::SelectorEnd;
use crate::rules::Rules;
use crate::{Counts, Episode, Explained, Selector, Settings};

/// News taken in before the rules have their turn.
const BATCH: usize = 4096;
/// Of people, that wait for an answer at a time.
const MAX_QUESTIONS: usize = 16;
/// How long one waits: several of the longest pauses between batches.
const ANSWER_PATIENCE: Duration = Duration::from_millis(300);
/// After a crash, before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// What a worker's Selector does, for whoever shows it.
#[derive(Debug, Default)]
pub struct Account {
    asked: AtomicU64,
    failed: AtomicU64,
    ordered: AtomicU64,
    postponed: AtomicU64,
    too_many: AtomicU64,
    left_out: AtomicU64,
    /// The pipe's own.
    dropped: Arc<AtomicU64>,
    restarts: AtomicU64,
    connections: AtomicU64,
}

/// A reading of an [`Account`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Of the Selectors that there were, together.
    pub counts: Counts,
    /// News that found no room in the pipe.
    pub dropped: u64,
    /// Crashes after which it was started again.
    pub restarts: u64,
    /// Connections that it knows now.
    pub connections: u64,
}

impl Account {
    /// What it says now.
    pub fn read(&self) -> Reading {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reading {
            counts: Counts {
                asked: of(&self.asked),
                failed: of(&self.failed),
                ordered: of(&self.ordered),
                postponed: of(&self.postponed),
                too_many: of(&self.too_many),
                left_out: of(&self.left_out),
            },
            dropped: of(&self.dropped),
            restarts: of(&self.restarts),
            connections: of(&self.connections),
        }
    }

    fn add(&self, now: Counts, before: Counts) {
        for (total, more) in [
            (&self.asked, now.asked - before.asked),
            (&self.failed, now.failed - before.failed),
            (&self.ordered, now.ordered - before.ordered),
            (&self.postponed, now.postponed - before.postponed),
            (&self.too_many, now.too_many - before.too_many),
            (&self.left_out, now.left_out - before.left_out),
        ] {
            total.fetch_add(more, Ordering::Relaxed);
        }
    }
}

type MakeRules<R> = Arc<dyn Fn() -> Result<R, String> + Send + Sync>;

/// Rules that can be replaced while Selectors run: each makes its own from them, as Lua has no state that
/// threads could share.
pub struct RulesSource<R> {
    generation: AtomicU64,
    make: Mutex<MakeRules<R>>,
}

impl<R> RulesSource<R> {
    /// Rules as `make` makes them.
    pub fn new(make: impl Fn() -> Result<R, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { generation: AtomicU64::new(0), make: Mutex::new(Arc::new(make)) })
    }

    /// Others from now on.
    pub fn replace(&self, make: impl Fn() -> Result<R, String> + Send + Sync + 'static) {
        // Whatever panicked while it held the lock, there is one of the two in it.
        *self.make.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(make);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn make(&self) -> Result<R, String> {
        let make = Arc::clone(&self.make.lock().unwrap_or_else(PoisonError::into_inner));
        make()
    }
}

/// A running Selector. It ends when this is dropped, or when its worker has gone.
#[derive(Debug)]
pub struct SelectorThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    account: Arc<Account>,
    questions: SyncSender<Question>,
}

/// Which connection somebody asks about.
#[derive(Debug)]
struct Question {
    connection: u64,
    answer: SyncSender<Option<Explained>>,
}

/// What a Selector's thread is made of.
pub struct Start<R> {
    /// Of the thread.
    pub name: String,
    /// The Selector's ends of the pipes.
    pub pipes: SelectorEnd,
    /// The rules.
    pub rules: Arc<RulesSource<R>>,
    /// How they are treated.
    pub settings: Settings,
    /// The moment from which the agent counts time, and the time that it was.
    pub epoch: (Instant, Time),
    /// Hears what goes wrong.
    pub tell: Box<dyn FnMut(&str) + Send>,
    /// Takes the episodes, if they are kept; how many it had no room for. It must not block.
    pub keep: Box<dyn FnMut(Vec<Episode>) -> u64 + Send>,
}

impl SelectorThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<R: Rules + 'static>(start: Start<R>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let account = Arc::new(Account { dropped: start.pipes.dropped(), ..Account::default() });
        let (questions, asked) = sync_channel(MAX_QUESTIONS);
        let (stopped, own) = (Arc::clone(&stop), Arc::clone(&account));
        let thread = thread::Builder::new()
            .name(start.name.clone())
            .spawn(move || keep_running(start, &stopped, &own, &asked))?;
        Ok(Self { stop, thread: Some(thread), account, questions })
    }

    /// What the rules make of a connection now; `None` when it is not known here, or when the Selector has
    /// no time.
    pub fn explain(&self, connection: u64) -> Option<Explained> {
        let (answer, answered) = sync_channel(1);
        self.questions.try_send(Question { connection, answer }).ok()?;
        answered.recv_timeout(ANSWER_PATIENCE).ok()?
    }

    /// What it does.
    pub fn account(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }
}

impl Drop for SelectorThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has been told of.
            let _ = thread.join();
        }
    }
}

/// Starts a Selector again after it has crashed: connections stay as they are until it knows them anew.
fn keep_running<R: Rules>(
    mut start: Start<R>,
    stop: &AtomicBool,
    account: &Account,
    asked: &Receiver<Question>,
) {
    while !is_over(stop, &start.pipes) {
        let ended = catch_unwind(AssertUnwindSafe(|| select(&mut start, stop, account, asked)));
        let problem = match ended {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(_) => {
                account.restarts.fetch_add(1, Ordering::Relaxed);
                "the Selector crashed and is started again".to_owned()
            }
        };
        (start.tell)(&problem);
        thread::park_timeout(PAUSE);
    }
}

fn is_over(stop: &AtomicBool, pipes: &SelectorEnd) -> bool {
    stop.load(Ordering::Relaxed) || pipes.is_abandoned()
}

/// Until it is over; an error when there are no rules to begin with.
fn select<R: Rules>(
    start: &mut Start<R>,
    stop: &AtomicBool,
    account: &Account,
    asked: &Receiver<Question>,
) -> Result<(), String> {
    let Start { pipes, rules, settings, epoch: (instant, time), tell, keep, .. } = start;
    let mut generation = rules.generation.load(Ordering::Acquire);
    let mut selector = Selector::new(rules.make()?, settings.clone());
    let mut before = Counts::default();
    while !is_over(stop, pipes) {
        for _ in 0..BATCH {
            let Some(news) = pipes.news() else { break };
            selector.hear(news);
        }
        let latest = rules.generation.load(Ordering::Acquire);
        if latest != generation {
            generation = latest;
            match rules.make() {
                Ok(rules) => selector.replace_rules(rules),
                Err(problem) => tell(&problem),
            }
        }
        let now = *time + instant.elapsed();
        selector.decide(now, |order| pipes.order(order), &mut *tell);
        account.left_out.fetch_add(keep(selector.take_episodes()), Ordering::Relaxed);
        while let Ok(Question { connection, answer }) = asked.try_recv() {
            // Without anybody waiting any more it is of no use.
            let _ = answer.send(selector.explain(connection, now));
        }
        let counts = selector.counts();
        account.add(counts, before);
        before = counts;
        account.connections.store(selector.connections() as u64, Ordering::Relaxed);
        // The worker never waits for this thread, nor wakes it: news gather meanwhile.
        thread::park_timeout(selector.interval());
    }
    while let Some(news) = pipes.news() {
        selector.hear(news);
    }
    selector.end();
    // Nobody asks any more how many found no room.
    let _ = keep(selector.take_episodes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{self, AgentEnd};
    use crate::rules::Choice;
    use crate::{Class, Facts, News, Order};

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Always(&'static str);

    impl Rules for Always {
        fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String> {
            match (self.0, facts.connection) {
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
        news: usize,
    ) -> (AgentEnd, SelectorThread, Arc<RulesSource<Always>>) {
        let (agent, pipes) = pipe::pair(news, 64);
        let rules = RulesSource::new(move || Ok(Always(name)));
        let settings = Settings::new(["none", "a", "b"].map(str::to_owned).to_vec());
        let thread = SelectorThread::start(Start {
            name: "selector-test".to_owned(),
            pipes,
            rules: Arc::clone(&rules),
            settings,
            epoch: (Instant::now(), Time::ZERO),
            tell: Box::new(|_| {}),
            keep: Box::new(|_| 0),
        });
        (agent, thread.unwrap(), rules)
    }

    fn opened(connection: u64) -> News {
        News::Opened { connection, now: Time::ZERO, class: Class::Bulk, algorithm: 0 }
    }

    /// Until there is one.
    fn order(agent: &mut AgentEnd) -> Order {
        let began = Instant::now();
        loop {
            if let Some(order) = agent.order() {
                return order;
            }
            assert!(began.elapsed() < PATIENCE, "no order");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn orders_come_back_and_rules_are_replaced() {
        let (mut agent, thread, rules) = start("a", 64);
        agent.tell(opened(1));
        assert_eq!(order(&mut agent), Order { connection: 1, algorithm: 1, anew: false });
        rules.replace(|| Ok(Always("b")));
        // A new one, so that no dwell time is in the way. What is told after them is judged by them.
        agent.tell(opened(2));
        assert_eq!(order(&mut agent), Order { connection: 2, algorithm: 2, anew: false });
        assert!(thread.account().read().counts.ordered >= 2);
        let explained = thread.explain(2).unwrap();
        assert_eq!((explained.facts.algorithm.as_str(), explained.problem), ("b", None));
        assert_eq!(explained.choice.unwrap().algorithm, "b");
        assert_eq!(thread.explain(3), None);
    }

    #[test]
    fn it_starts_again_after_a_crash() {
        let (mut agent, thread, _) = start("panic", 64);
        agent.tell(opened(13));
        let account = thread.account();
        let began = Instant::now();
        while account.read().restarts == 0 {
            assert!(began.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        agent.tell(opened(1));
        assert_eq!(order(&mut agent).connection, 1);
    }

    #[test]
    fn a_slow_rule_costs_news_and_nobody_waits() {
        let (mut agent, thread, _) = start("slow", 16);
        let began = Instant::now();
        while agent.dropped() == 0 {
            assert!(began.elapsed() < PATIENCE);
            (0..1000).for_each(|round| _ = agent.tell(opened(round % 4)));
        }
        assert_eq!(order(&mut agent).algorithm, 1);
        drop(thread);
    }

    #[test]
    fn it_ends_with_its_worker() {
        let (agent, mut thread, _) = start("a", 16);
        drop(agent);
        thread.thread.take().unwrap().join().unwrap();
    }
}
