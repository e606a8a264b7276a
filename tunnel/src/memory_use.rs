//! The memory that all workers of a process use together.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::IntGauge;

use crate::memory::{CONNECTION_BYTES, HeldBytes, share_of_excess};

/// Memory in use, and its cap.
#[derive(Debug)]
pub struct MemoryUse {
    cap: AtomicU64,
    bytes: AtomicU64,
    promised_bytes: AtomicU64,
    gauge: IntGauge,
}

impl MemoryUse {
    /// Nothing in use, and nothing allowed yet; `gauge` shows what is in use.
    pub fn new(gauge: IntGauge) -> Self {
        Self {
            cap: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            promised_bytes: AtomicU64::new(0),
            gauge,
        }
    }

    pub(crate) fn set_cap(&self, bytes: u64) {
        self.cap.store(bytes, Ordering::Relaxed);
    }

    /// What may be in use.
    pub fn cap(&self) -> u64 {
        self.cap.load(Ordering::Relaxed)
    }

    /// What is in use.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What windows beyond the least ones promise.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.promised_bytes.load(Ordering::Relaxed)
    }

    /// Whether another connection would go beyond the cap.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() + CONNECTION_BYTES > self.cap()
    }

    /// What a holder of `own` bytes has to free when too much is in use.
    pub fn share_of_excess(&self, own: u64) -> u64 {
        share_of_excess(own, self.bytes(), self.cap())
    }

    pub(crate) fn remove(&self, held: HeldBytes) {
        self.replace(held, HeldBytes::default());
    }

    /// A holder of `before` holds `now`.
    pub(crate) fn replace(&self, before: HeldBytes, now: HeldBytes) {
        if before == now {
            return;
        }
        self.replace_bytes(before.bytes, now.bytes);
        // Wraps around where it became less.
        self.promised_bytes
            .fetch_add(now.promised_bytes.wrapping_sub(before.promised_bytes), Ordering::Relaxed);
    }

    /// As above, for what has no windows.
    pub fn replace_bytes(&self, before: u64, now: u64) {
        let change = now.wrapping_sub(before);
        self.bytes.fetch_add(change, Ordering::Relaxed);
        self.gauge.add(change as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_or_removed_counts_no_more() {
        let memory = MemoryUse::new(IntGauge::new("bytes", "bytes").unwrap());
        memory.set_cap(CONNECTION_BYTES + 500);
        let held = |bytes, promised_bytes| HeldBytes { bytes, promised_bytes };
        memory.replace(HeldBytes::default(), held(300, 7));
        memory.replace(HeldBytes::default(), held(400, 0));
        assert!(memory.is_full());
        memory.replace(held(300, 7), held(100, 3));
        assert_eq!((memory.bytes(), memory.promised_bytes(), memory.gauge.get()), (500, 3, 500));
        assert!(!memory.is_full());
        memory.remove(held(100, 3));
        memory.remove(held(400, 0));
        assert_eq!((memory.bytes(), memory.promised_bytes(), memory.gauge.get()), (0, 0, 0));
    }
}
