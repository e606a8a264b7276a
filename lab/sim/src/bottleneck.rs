use crate::link::queue::LinkSized;
use crate::link::{Pipe, PipeConfig};
use crate::random::{Redraw, SeedPurpose, seed};
use crate::{LinkChange, LinkRate, LinkSetup, Setup};

/// The bottleneck of a [`Setup`] in the direction of the data, with its changes during a run. Used by the
/// simulator and by the emulator of real packets.
#[derive(Debug)]
pub struct Bottleneck<P> {
    /// Where packets wait and are serialised.
    pub pipe: Pipe<P>,
    link: LinkSetup,
    redraw: Option<Redraw>,
}

impl<P: LinkSized> Bottleneck<P> {
    /// The bottleneck of `setup` in its initial state, from `now_ns` on.
    #[must_use]
    pub fn new(setup: &Setup, now_ns: u64) -> Self {
        Self::with_losses(setup, seed(setup.seed, SeedPurpose::Link, 0), now_ns)
    }

    /// The bottleneck of `setup` with its own seed of the random losses.
    #[must_use]
    pub fn with_losses(setup: &Setup, loss_seed: u64, now_ns: u64) -> Self {
        let link = setup.link.clone();
        let pipe = Pipe::new(pipe_config(&link), loss_seed);
        let redraw = setup.random_change.clone().map(|ranges| Redraw::new(ranges, setup.seed));
        let mut bottleneck = Self { pipe, link, redraw };
        bottleneck.begin_trace(now_ns);
        bottleneck
    }

    /// The link in its current state.
    #[must_use]
    pub fn link(&self) -> &LinkSetup {
        &self.link
    }

    /// Restarts a recorded rate at `now_ns`; a constant rate stays.
    pub fn begin_trace(&mut self, now_ns: u64) {
        if let LinkRate::Trace(trace) = &self.link.rate {
            self.pipe.follow(now_ns, trace.clone());
        }
    }

    /// Changes it at `now_ns`.
    pub fn change(&mut self, now_ns: u64, change: &LinkChange) {
        let link = &mut self.link;
        link.rtt = change.rtt.unwrap_or(link.rtt);
        link.buffer_bytes = change.buffer_bytes.unwrap_or(link.buffer_bytes);
        link.loss = change.loss.unwrap_or(link.loss);
        link.loss_reverse = change.loss_reverse.unwrap_or(link.loss_reverse);
        link.jitter = change.jitter.unwrap_or(link.jitter);
        if let Some(rate) = &change.rate {
            link.rate = rate.clone();
            match rate {
                LinkRate::Constant(rate) => self.pipe.set_rate(now_ns, rate.bits_per_s()),
                LinkRate::Trace(trace) => self.pipe.follow(now_ns, trace.clone()),
            }
        }
        let rate_bps = self.pipe.config().rate_bps;
        self.pipe.reconfigure(now_ns, PipeConfig { rate_bps, ..pipe_config(&self.link) });
    }

    /// Draws the random values again at `now_ns`.
    pub fn redraw(&mut self, now_ns: u64) {
        if let Some(change) = self.redraw.as_mut().map(Redraw::draw) {
            self.change(now_ns, &change);
        }
    }
}

fn pipe_config(link: &LinkSetup) -> PipeConfig {
    let rate_bps = match &link.rate {
        LinkRate::Constant(rate) => rate.bits_per_s(),
        // Not used while a trace is in force.
        LinkRate::Trace(_) => 1_000_000,
    };
    PipeConfig {
        rate_bps,
        delay_ns: link.rtt.as_nanos() as u64 / 2,
        buffer_bytes: link.buffer_bytes,
        loss: link.loss,
        jitter_ns: link.jitter.as_nanos() as u64,
        reorder: link.reorder,
    }
}
