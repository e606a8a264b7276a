//! Who decides on a connection's congestion control: the flow that begins on it, rules while it runs, or
//! somebody by hand.

use std::time::Instant;

use millrace_cc::quiche_adapter;
use millrace_cc::registry::Algorithm;
use millrace_config::Class;

use crate::admin::{FlowInfo, SteerError, Steered, Steering};
use crate::agent::{Agent, Watched};
use crate::algorithms::Choice;
use crate::conn::Conn;
use crate::qlog;

/// A connection's congestion control.
#[derive(Debug)]
pub(crate) struct Control {
    algorithm: Algorithm,
    /// How often that was changed, and when last.
    switches: u64,
    switched: Instant,
    /// It was set by hand, and flows and rules leave it alone.
    pinned: bool,
    /// The Selector hears of it.
    pub(crate) watched: Option<Watched>,
}

impl Control {
    pub(crate) fn new(algorithm: Algorithm, now: Instant) -> Self {
        Self { algorithm, switches: 0, switched: now, pinned: false, watched: None }
    }

    /// Whether rules select its algorithm.
    fn is_selected(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_selected)
    }

    /// What people want to know of it.
    pub(crate) fn shown_in(&self, info: FlowInfo, now: Instant) -> FlowInfo {
        let since = now.saturating_duration_since(self.switched).as_secs_f64();
        FlowInfo {
            algorithm: Some(self.algorithm.name().to_owned()),
            pinned: self.pinned,
            is_selected: self.is_selected(),
            switches: Some(self.switches),
            since_switch_s: (self.switches > 0).then_some(since),
            ..info
        }
    }
}

impl Conn {
    /// Lets `choice` drive it from now on, unless it is pinned. One that is selected already keeps what
    /// it has: the path is the same, whatever flow comes next.
    pub(crate) fn steer(
        &mut self,
        choice: &Choice,
        class: Class,
        agent: Option<&mut Agent>,
        now: Instant,
    ) {
        let is_selected = choice.is_selected && agent.is_some();
        let before = self.control.switches;
        let keeps = self.control.pinned || is_selected && self.control.is_selected();
        if !keeps {
            // An error has been logged, and what drove it goes on.
            let _ = self.turn_to(&choice.algorithm, "flow", now);
        }
        let Some(agent) = agent else { return };
        if is_selected || agent.watches_all() {
            let watched =
                self.control.watched.get_or_insert_with(|| Watched::new(class, is_selected));
            watched.set(class, is_selected);
            if self.control.switches != before {
                watched.algorithm_was_set();
            }
            agent.introduce(self.id, watched, &self.control.algorithm, self.control.pinned, now);
        } else if self.control.watched.take().is_some() {
            agent.forget(self.id);
        }
    }

    /// Does what somebody wants by hand, whatever flows and rules want.
    pub(crate) fn obey(
        &mut self,
        steering: &Steering,
        now: Instant,
    ) -> Result<Steered, SteerError> {
        let from = self.control.algorithm.name();
        match steering {
            Steering::Pin(to) => {
                let refused = |_| SteerError::Irreplaceable { from, to: to.name() };
                self.turn_to(to, "hand", now).map_err(refused)?;
                self.control.pinned = true;
            }
            Steering::Release => self.control.pinned = false,
            Steering::Tune(tuning) => {
                if !quiche_adapter::tune(&mut self.quic, *tuning) {
                    return Err(Steering::untunable(*tuning, from));
                }
            }
        }
        if let Some(watched) = &mut self.control.watched {
            watched.algorithm_was_set();
        }
        Ok(Steered { algorithm: self.control.algorithm.name(), pinned: self.control.pinned })
    }

    /// Does what the rules want, unless somebody else has a say; whether that changed anything. `anew` lets
    /// the same algorithm start again: the path has become another one.
    pub(crate) fn follow(&mut self, algorithm: &Algorithm, anew: bool, now: Instant) -> bool {
        let before = self.control.switches;
        if self.control.is_selected() && !self.control.pinned {
            // As in `steer`.
            let _ = match anew {
                true => self.begin(algorithm, "path", now),
                false => self.turn_to(algorithm, "rules", now),
            };
        }
        self.control.switches != before
    }

    /// Tells its Selector what it does not know yet, if the rules select.
    pub(crate) fn tell(&mut self, agent: &mut Agent, now: Instant) {
        let Some(watched) = &mut self.control.watched else { return };
        if watched.is_untold() {
            agent.introduce(self.id, watched, &self.control.algorithm, self.control.pinned, now);
        }
        if let Some(path) = quiche_adapter::path(&self.quic) {
            agent.hear(self.id, watched, path, now);
        }
    }

    /// Another algorithm from now on; `trigger` says who wants it.
    fn turn_to(
        &mut self,
        algorithm: &Algorithm,
        trigger: &'static str,
        now: Instant,
    ) -> Result<(), quiche::Error> {
        if self.control.algorithm.settings() == algorithm.settings() {
            return Ok(());
        }
        self.begin(algorithm, trigger, now)
    }

    /// The same, also if it drives already.
    fn begin(
        &mut self,
        algorithm: &Algorithm,
        trigger: &'static str,
        now: Instant,
    ) -> Result<(), quiche::Error> {
        let turned = quiche_adapter::replace(&mut self.quic, algorithm);
        match &turned {
            Ok(()) => {
                tracing::debug!(
                    conn = self.id.serial,
                    from = self.control.algorithm.name(),
                    to = algorithm.name(),
                    trigger,
                    "congestion control changed"
                );
                if let Some(streamer) = self.quic.qlog_streamer() {
                    qlog::note_switch(
                        streamer,
                        self.control.algorithm.name(),
                        algorithm.name(),
                        trigger,
                    );
                }
                self.control.algorithm = algorithm.clone();
                self.control.switches += 1;
                self.control.switched = now;
            }
            Err(error) => tracing::error!(
                conn = self.id.serial,
                algorithm = algorithm.name(),
                %error,
                "congestion control not changed"
            ),
        }
        turned
    }
}
