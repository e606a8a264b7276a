use crate::timers::NEVER;
use crate::{LinkChange, Order, Setup};

/// A scheduled event of a run.
#[derive(Debug)]
pub enum Item {
    /// The bottleneck changes.
    Change(LinkChange),
    /// Random values of the bottleneck are drawn again.
    Redraw,
    /// This flow starts.
    Start(usize),
    /// This flow stops.
    Stop(usize),
    /// This flow gets an order.
    Ask(usize, Order),
    /// The warm-up ends: totals count from here on.
    WarmedUp,
    /// A sample for the observer.
    Sample,
}

/// Scheduled events in order of time. At the same time a sample comes first, because it covers the time
/// before. Then events come in the order of the setup, and a redraw last.
#[derive(Debug)]
pub struct EventQueue {
    /// In reverse order of time.
    listed: Vec<(u64, Item)>,
    redraw: Periodic,
    sample: Periodic,
}

#[derive(Debug)]
struct Periodic {
    next_ns: u64,
    every_ns: u64,
}

impl Periodic {
    fn advance(&mut self) {
        self.next_ns = self.next_ns.saturating_add(self.every_ns);
    }
}

impl EventQueue {
    /// The events of a whole run; times are counted from its start.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let ns = |duration: std::time::Duration| duration.as_nanos() as u64;
        let mut listed = vec![(ns(setup.warmup), Item::WarmedUp)];
        listed.extend(setup.changes.iter().map(|(at, to)| (ns(*at), Item::Change(to.clone()))));
        for (index, flow) in setup.flows.iter().enumerate() {
            listed.push((ns(flow.start), Item::Start(index)));
            listed.extend(flow.stop.map(|at| (ns(at), Item::Stop(index))));
            let orders = flow.orders.iter();
            listed.extend(orders.map(|(at, order)| (ns(*at), Item::Ask(index, order.clone()))));
        }
        listed.sort_by_key(|(at_ns, _)| *at_ns);
        listed.reverse();
        let redraw = setup.random_change.as_ref().map_or(NEVER, |change| ns(change.every));
        let sample_ns = ns(setup.sample_every);
        Self {
            listed,
            redraw: Periodic { next_ns: if redraw == NEVER { NEVER } else { 0 }, every_ns: redraw },
            sample: Periodic { next_ns: sample_ns, every_ns: sample_ns },
        }
    }

    /// When the next event is due; `u64::MAX` if the queue is empty.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        let listed_ns = self.listed.last().map_or(NEVER, |(at_ns, _)| *at_ns);
        listed_ns.min(self.redraw.next_ns).min(self.sample.next_ns)
    }

    /// Removes the next event that is due at `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<Item> {
        if self.sample.next_ns <= now_ns {
            self.sample.advance();
            return Some(Item::Sample);
        }
        if let Some((_, item)) = self.listed.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            return Some(item);
        }
        if self.redraw.next_ns <= now_ns {
            self.redraw.advance();
            return Some(Item::Redraw);
        }
        None
    }
}
