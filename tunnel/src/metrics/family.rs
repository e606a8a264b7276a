//! Counters and gauges with one label, whose values are an enum.

use std::marker::PhantomData;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The values of a label: all are known when the process starts.
pub trait Label: Copy + PartialEq + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The value as Prometheus shows it.
    fn as_str(self) -> &'static str;
}

/// Defines an enum that is a [`Label`].
macro_rules! label {
    ($(#[$meta:meta])* $name:ident { $($(#[$value_meta:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_meta])* $value,)*
        }

        impl $crate::metrics::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value,)*];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}
pub(super) use label;

/// One counter for each value of a label. All are shown from the start, at 0.
#[derive(Debug)]
pub struct CounterFamily<L> {
    counters: Vec<IntCounter>,
    label: PhantomData<L>,
}

impl<L: Label> CounterFamily<L> {
    pub(super) fn register(
        registry: &Registry,
        name: &str,
        help: &str,
        label: &str,
    ) -> prometheus::Result<Self> {
        let family = IntCounterVec::new(Opts::new(name, help), &[label])?;
        registry.register(Box::new(family.clone()))?;
        let counters =
            L::ALL.iter().map(|value| family.with_label_values(&[value.as_str()])).collect();
        Ok(Self { counters, label: PhantomData })
    }

    /// Adds to the counter of one value.
    pub fn add(&self, value: L, count: u64) {
        if count > 0 {
            self.of(value).inc_by(count);
        }
    }

    /// The counter of one value.
    pub fn of(&self, value: L) -> &IntCounter {
        &self.counters[position(value)]
    }

    /// All values of the label with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (L, u64)> {
        std::iter::zip(L::ALL, &self.counters).map(|(value, counter)| (*value, counter.get()))
    }
}

/// One gauge for each value of a label.
#[derive(Debug)]
pub struct GaugeFamily<L> {
    gauges: Vec<IntGauge>,
    label: PhantomData<L>,
}

impl<L: Label> GaugeFamily<L> {
    pub(super) fn register(
        registry: &Registry,
        name: &str,
        help: &str,
        label: &str,
    ) -> prometheus::Result<Self> {
        let family = IntGaugeVec::new(Opts::new(name, help), &[label])?;
        registry.register(Box::new(family.clone()))?;
        let gauges =
            L::ALL.iter().map(|value| family.with_label_values(&[value.as_str()])).collect();
        Ok(Self { gauges, label: PhantomData })
    }

    /// The gauge of one value.
    pub fn of(&self, value: L) -> &IntGauge {
        &self.gauges[position(value)]
    }
}

fn position<L: Label>(value: L) -> usize {
    L::ALL.iter().position(|known| *known == value).expect("ALL has every value of the enum")
}
