//! The two pipes between a worker and its Selector: pre-allocated rings with one producer and one consumer
//! each, without locks (MCC, Section 3.2.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::{News, Order};

/// The worker's ends.
#[derive(Debug)]
pub struct AgentEnd {
    news: Producer<News>,
    orders: Consumer<Order>,
    dropped: Arc<AtomicU64>,
}

/// The Selector's ends.
#[derive(Debug)]
pub struct SelectorEnd {
    news: Consumer<News>,
    orders: Producer<Order>,
    dropped: Arc<AtomicU64>,
}

/// Makes both pipes, for `news` and `orders` entries.
#[must_use]
pub fn pair(news: usize, orders: usize) -> (AgentEnd, SelectorEnd) {
    let (news_in, news_out) = RingBuffer::new(news);
    let (orders_in, orders_out) = RingBuffer::new(orders);
    let dropped = Arc::new(AtomicU64::new(0));
    let agent = AgentEnd { news: news_in, orders: orders_out, dropped: Arc::clone(&dropped) };
    (agent, SelectorEnd { news: news_out, orders: orders_in, dropped })
}

impl AgentEnd {
    /// Says something; whether there was room. Without, it is dropped and counted.
    pub fn tell(&mut self, news: News) -> bool {
        let fits = self.news.push(news).is_ok();
        if !fits {
            // Nobody else writes it.
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        fits
    }

    /// The next order, if one has come.
    pub fn order(&mut self) -> Option<Order> {
        self.orders.pop().ok()
    }

    /// How much found no room so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl SelectorEnd {
    /// The next piece of news, if there is one.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop().ok()
    }

    /// Gives an order; whether there was room.
    pub fn order(&mut self, order: Order) -> bool {
        self.orders.push(order).is_ok()
    }

    /// How much of the news found no room so far, for whoever shows it: also while the Selector stands still.
    #[must_use]
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Whether the worker is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.news.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_drops_and_counts_and_goes_on() {
        let (mut agent, mut selector) = pair(2, 1);
        let closed = |connection| News::Closed { connection };
        assert_eq!([1, 2, 3, 4].map(|id| agent.tell(closed(id))), [true, true, false, false]);
        assert_eq!((agent.dropped(), selector.dropped().load(Ordering::Relaxed)), (2, 2));
        assert_eq!(selector.news(), Some(closed(1)));
        assert!(agent.tell(closed(5)));
        assert_eq!(
            [selector.news(), selector.news(), selector.news()],
            [Some(closed(2)), Some(closed(5)), None]
        );

        let order = Order { connection: 1, algorithm: 3, anew: false };
        assert!(selector.order(order) && !selector.order(order));
        assert_eq!((agent.order(), agent.order()), (Some(order), None));
        assert!(!selector.is_abandoned());
        drop(agent);
        assert!(selector.is_abandoned());
    }
}
