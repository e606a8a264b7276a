//! The rate limit of repeated messages.
//!
//! Messages count by the place in the code that logs them (tracing's callsite) and by their reason: the first few are
//! written, then some a minute. Distinct reasons of one place count apart, and together against a larger limit, so that
//! text which peers choose can't get around it. The levels debug and trace are not limited.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Warnings that one reason of one place may log at once, and from then on a minute.
const WARNINGS_PER_REASON: Allowance = Allowance { burst: 3.0, per_minute: 1.0 };
/// What one reason of one place may log at once below the level of a warning, and from then on a minute.
const INFOS_PER_REASON: Allowance = Allowance { burst: 50.0, per_minute: 20.0 };
/// All reasons of one place together, for warnings and errors.
const WARNINGS_PER_PLACE: Allowance = Allowance { burst: 30.0, per_minute: 15.0 };
/// All reasons of one place together, below the level of a warning.
const INFOS_PER_PLACE: Allowance = Allowance { burst: 100.0, per_minute: 40.0 };
/// Reasons that are told apart at a time; further ones count for their place only.
const MAX_REASONS: usize = 1024;
/// Silence after which a reason is forgotten when others need its place.
const FORGET_AFTER: Duration = Duration::from_secs(180);
/// What is kept of a message for its summary.
const MAX_TEXT_BYTES: usize = 160;
/// Fields that say why, or what is concerned that does not come from peers.
const REASON_FIELDS: [&str; 7] = ["reason", "failure", "error", "server", "key", "problem", "what"];

/// Messages of this target are never limited: they tell of what was.
pub(super) const REPORT_TARGET: &str = "millrace_ops::logging";

/// The rate limit of repeated messages. Clones share one limit.
#[derive(Clone, Debug, Default)]
pub(super) struct RateLimit {
    messages: Arc<Mutex<Messages>>,
    suppressed: Arc<AtomicU64>,
}

impl RateLimit {
    /// How many messages it has left out.
    pub(super) fn suppressed(&self) -> Arc<AtomicU64> {
        self.suppressed.clone()
    }

    /// What was left out since the last call.
    pub(super) fn take_repeated(&self) -> Vec<Repeated> {
        self.lock().take_repeated()
    }

    // Counts are right whatever thread panicked beside them.
    fn lock(&self) -> std::sync::MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Filter<S> for RateLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    /// Joined filters have a level hint only if each of them has one. Without it the `log` crate's macros format the
    /// records of disabled levels too, of which quiche has several for each packet.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == REPORT_TARGET {
            return true;
        }
        let mut said = LoggedMessage::default();
        event.record(&mut said);
        let is_warning = *metadata.level() <= Level::WARN;
        let admitted = self.lock().admit(metadata.callsite(), is_warning, &said, Instant::now());
        if !admitted {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }
}

/// A message that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) message: String,
    pub(super) reason: String,
    pub(super) times: u64,
}

/// A message and its reason, both cut off.
#[derive(Debug, Default)]
struct LoggedMessage {
    message: String,
    reason: String,
}

impl LoggedMessage {
    /// Without a reason the message itself is it: where it is not constant, it says why.
    fn reason_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let reason = if self.reason.is_empty() { &self.message } else { &self.reason };
        reason.hash(&mut hasher);
        hasher.finish()
    }
}

impl Visit for LoggedMessage {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let to = match field.name() {
            "message" => &mut self.message,
            name if REASON_FIELDS.contains(&name) => &mut self.reason,
            _ => return,
        };
        if !to.is_empty() {
            to.push(' ');
        }
        // It only fails when it is full.
        let _ = write!(Bounded(to), "{value:?}");
    }
}

/// Takes the beginning of a text.
struct Bounded<'a>(&'a mut String);

impl Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: f64,
    per_minute: f64,
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(allowance: Allowance, now: Instant) -> Self {
        Self { tokens: allowance.burst, at: now }
    }

    fn has_one(&mut self, allowance: Allowance, now: Instant) -> bool {
        let minutes = now.saturating_duration_since(self.at).as_secs_f64() / 60.0;
        self.tokens = (self.tokens + minutes * allowance.per_minute).min(allowance.burst);
        self.at = now;
        self.tokens >= 1.0
    }
}

#[derive(Debug)]
struct Reason {
    bucket: Bucket,
    said: LoggedMessage,
    suppressed: u64,
}

#[derive(Debug)]
struct LimitedMessage {
    bucket: Bucket,
    message: String,
    /// Of reasons that are not told apart.
    suppressed: u64,
}

#[derive(Debug, Default)]
struct Messages {
    places: HashMap<Identifier, LimitedMessage>,
    reasons: HashMap<(Identifier, u64), Reason>,
}

impl Messages {
    fn admit(
        &mut self,
        at: Identifier,
        is_warning: bool,
        said: &LoggedMessage,
        now: Instant,
    ) -> bool {
        let (per_reason, per_place) = match is_warning {
            true => (WARNINGS_PER_REASON, WARNINGS_PER_PLACE),
            false => (INFOS_PER_REASON, INFOS_PER_PLACE),
        };
        let place = self.places.entry(at.clone()).or_insert_with(|| LimitedMessage {
            bucket: Bucket::new(per_place, now),
            message: said.message.clone(),
            suppressed: 0,
        });
        let place_has_one = place.bucket.has_one(per_place, now);
        let key = (at.clone(), said.reason_hash());
        if self.reasons.len() >= MAX_REASONS && !self.reasons.contains_key(&key) {
            self.reasons.retain(|_, it| {
                it.suppressed > 0 || now.saturating_duration_since(it.bucket.at) < FORGET_AFTER
            });
        }
        let place = self.places.get_mut(&at).expect("it was inserted above");
        if self.reasons.len() >= MAX_REASONS && !self.reasons.contains_key(&key) {
            place.bucket.tokens -= f64::from(u8::from(place_has_one));
            place.suppressed += u64::from(!place_has_one);
            return place_has_one;
        }
        let reason = self.reasons.entry(key).or_insert_with(|| Reason {
            bucket: Bucket::new(per_reason, now),
            said: LoggedMessage { message: said.message.clone(), reason: said.reason.clone() },
            suppressed: 0,
        });
        let admitted = reason.bucket.has_one(per_reason, now) && place_has_one;
        if admitted {
            reason.bucket.tokens -= 1.0;
            place.bucket.tokens -= 1.0;
        } else {
            reason.suppressed += 1;
        }
        admitted
    }

    fn take_repeated(&mut self) -> Vec<Repeated> {
        let of_reasons = self.reasons.values_mut().filter(|it| it.suppressed > 0).map(|it| {
            let (message, reason) = (it.said.message.clone(), it.said.reason.clone());
            Repeated { message, reason, times: std::mem::take(&mut it.suppressed) }
        });
        let of_places = self.places.values_mut().filter(|it| it.suppressed > 0).map(|it| {
            let (message, reason) = (it.message.clone(), "other reasons".to_owned());
            Repeated { message, reason, times: std::mem::take(&mut it.suppressed) }
        });
        let mut repeated: Vec<_> = of_reasons.chain(of_places).collect();
        repeated.sort_by_key(|it| std::cmp::Reverse(it.times));
        repeated
    }
}

#[cfg(test)]
mod tests {
    use tracing::Metadata;
    use tracing::callsite::{Callsite, Identifier};
    use tracing::subscriber::Interest;

    use super::*;

    struct At(#[allow(dead_code, reason = "gives it an address of its own")] u8);

    impl Callsite for At {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unimplemented!("not asked for")
        }
    }

    static HERE: At = At(0);
    static THERE: At = At(1);

    fn said(reason: &str) -> LoggedMessage {
        LoggedMessage { message: "it failed".to_owned(), reason: reason.to_owned() }
    }

    fn here() -> Identifier {
        Identifier(&HERE)
    }

    #[test]
    fn the_first_few_are_admitted_then_some_a_minute() {
        let mut messages = Messages::default();
        let start = Instant::now();
        let mut admitted = 0;
        for ms in (0..60_000).step_by(10) {
            let now = start + Duration::from_millis(ms);
            admitted += u32::from(messages.admit(here(), true, &said("x"), now));
        }
        assert!((3..=4).contains(&admitted), "{admitted}");
        let repeated = messages.take_repeated();
        let times = 6000 - u64::from(admitted);
        let expected = Repeated { message: "it failed".to_owned(), reason: "x".to_owned(), times };
        assert_eq!(repeated, [expected]);
        assert_eq!(messages.take_repeated(), []);
        assert!(messages.admit(here(), true, &said("x"), start + Duration::from_secs(200)));
    }

    #[test]
    fn reasons_and_places_count_apart() {
        let mut messages = Messages::default();
        let now = Instant::now();
        for _ in 0..100 {
            messages.admit(here(), true, &said("x"), now);
        }
        assert!(!messages.admit(here(), true, &said("x"), now));
        assert!(messages.admit(here(), true, &said("y"), now));
        assert!(messages.admit(Identifier(&THERE), true, &said("x"), now));
    }

    #[test]
    fn ever_new_reasons_are_bounded_in_number_and_memory() {
        let mut messages = Messages::default();
        let start = Instant::now();
        let mut admitted = 0;
        for number in 0..100_000_u64 {
            let now = start + Duration::from_micros(number * 100);
            let text = format!("reason {number}");
            admitted += u64::from(messages.admit(here(), true, &said(&text), now));
        }
        assert!(admitted <= 33, "{admitted}");
        assert!(messages.reasons.len() <= MAX_REASONS);
        let left_out: u64 = messages.take_repeated().iter().map(|it| it.times).sum();
        assert_eq!(left_out, 100_000 - admitted);
        // Forgotten, they make room for others.
        let later = start + FORGET_AFTER * 2;
        messages.admit(here(), true, &said("new"), later);
        assert_eq!(messages.reasons.len(), 1);
    }

    #[test]
    fn what_is_kept_of_a_message_is_bounded() {
        let mut text = String::new();
        assert!(write!(Bounded(&mut text), "{}", "\u{20ac}".repeat(1000)).is_err());
        assert!(text.len() <= MAX_TEXT_BYTES && !text.is_empty());
    }
}
