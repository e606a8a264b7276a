//! Requests of a player that wait for their answers, in their order.

use std::collections::VecDeque;

/// Requests that an answer is waited for. Players wait for each answer; the bound is for those that do not.
const MAX_UNANSWERED_REQUESTS: usize = 256;

/// The answers that a player waits for: a server answers in the order of the requests (RFC 2326, Section 9.1).
#[derive(Debug)]
pub(super) struct Exchanges<T> {
    waiting: VecDeque<RtspExchange<T>>,
}

#[derive(Debug)]
enum RtspExchange<T> {
    /// The origin will answer.
    Asked { cseq: Option<u32>, what: T },
    /// This end answers, once the requests before have been answered.
    Answered(Vec<u8>),
}

impl<T> Default for Exchanges<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<T> Exchanges<T> {
    /// The origin will answer this request.
    pub(super) fn ask(&mut self, cseq: Option<u32>, what: T) {
        self.push(RtspExchange::Asked { cseq, what });
    }

    /// This end answers a request that the origin does not see.
    pub(super) fn reply(&mut self, answer: Vec<u8>) {
        self.push(RtspExchange::Answered(answer));
    }

    fn push(&mut self, exchange: RtspExchange<T>) {
        if self.waiting.len() == MAX_UNANSWERED_REQUESTS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(exchange);
    }

    /// The request that an answer with this CSeq belongs to. Some origins number their answers otherwise or not at
    /// all: then it is the oldest of those that `fits` selects. Requests before it are no longer waited for, but for
    /// those that `stays` selects.
    pub(super) fn answered(
        &mut self,
        cseq: Option<u32>,
        fits: impl Fn(&T) -> bool,
        stays: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let by = |select: &dyn Fn(Option<u32>, &T) -> bool| {
            self.waiting.iter().position(
                |it| matches!(it, RtspExchange::Asked { cseq, what } if select(*cseq, what)),
            )
        };
        let index =
            by(&|its, _| its.is_some() && its == cseq).or_else(|| by(&|_, what| fits(what)))?;
        let Some(RtspExchange::Asked { what, .. }) = self.waiting.remove(index) else {
            return None;
        };
        let mut before = index;
        self.waiting.retain(|it| {
            let is_before = before > 0;
            before = before.saturating_sub(1);
            !is_before || !matches!(it, RtspExchange::Asked { what, .. } if !stays(what))
        });
        Some(what)
    }

    /// The next answer of this end whose turn it is.
    pub(super) fn next_reply(&mut self) -> Option<Vec<u8>> {
        match self.waiting.pop_front()? {
            RtspExchange::Answered(answer) => Some(answer),
            asked => {
                self.waiting.push_front(asked);
                None
            }
        }
    }

    /// Whether an answer of this end waits for its turn.
    pub(super) fn has_reply(&self) -> bool {
        self.waiting.iter().any(|it| matches!(it, RtspExchange::Answered(_)))
    }

    /// The requests that the origin has not answered.
    pub(super) fn asked(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().filter_map(|it| match it {
            RtspExchange::Asked { what, .. } => Some(what),
            RtspExchange::Answered(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(cseqs: &[u32]) -> Exchanges<u32> {
        let mut exchanges = Exchanges::default();
        for (number, cseq) in cseqs.iter().enumerate() {
            exchanges.ask(Some(*cseq), number as u32);
        }
        exchanges
    }

    #[test]
    fn answers_are_matched_by_cseq_then_by_order() {
        let mut waiting = exchanges(&[1, 2, 3, 4]);
        assert_eq!(
            waiting.answered(Some(2), |_| true, |_| false),
            Some(1),
            "the first was not answered"
        );
        assert_eq!(waiting.answered(Some(9), |_| true, |_| false), Some(2), "another number");
        assert_eq!(waiting.answered(None, |_| true, |_| false), Some(3), "no number");
        assert_eq!(waiting.answered(Some(1), |_| true, |_| false), None);
    }

    #[test]
    fn an_answer_that_overtakes_leaves_what_must_stay() {
        let mut waiting = exchanges(&[1, 2, 3]);
        assert_eq!(waiting.answered(Some(3), |_| true, |what| *what == 0), Some(2));
        assert_eq!(waiting.asked().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(waiting.answered(Some(9), |what| *what != 0, |_| true), None);
    }

    #[test]
    fn replies_wait_for_the_answers_before_them() {
        let mut waiting = exchanges(&[1]);
        waiting.reply(b"x".to_vec());
        assert_eq!(waiting.next_reply(), None);
        waiting.answered(Some(1), |_| true, |_| false);
        assert_eq!(waiting.next_reply().as_deref(), Some(&b"x"[..]));
        assert_eq!(waiting.next_reply(), None);
    }

    #[test]
    fn requests_are_bounded() {
        let mut waiting = Exchanges::default();
        for number in 0..1000_u32 {
            waiting.ask(Some(number), number);
        }
        assert_eq!(waiting.asked().count(), MAX_UNANSWERED_REQUESTS);
        assert_eq!(waiting.answered(Some(999), |_| true, |_| false), Some(999));
    }
}
