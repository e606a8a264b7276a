//! Switches of a connection's congestion controller.

use crate::agent::{Agent, ReportedState};
use crate::algorithms::CcPolicy;
use crate::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use crate::conn::Conn;
use crate::qlog;
use millrace_cc::quiche_adapter;
use millrace_cc::registry::Algorithm;
use millrace_config::Class;
use std::time::Instant;

impl Conn {
    /// Applies `choice` unless the algorithm is pinned. A connection whose algorithm is already selected keeps it: the
    /// path is the same for the next flow.
    pub(crate) fn select_cc(
        &mut self,
        choice: &CcPolicy,
        class: Class,
        agent: Option<&mut Agent>,
        now: Instant,
    ) {
        let managed = choice.managed && agent.is_some();
        let before = self.cc.switches;
        let keeps = self.cc.pinned || managed && self.cc.managed();
        if !keeps {
            // An error has been logged, and the previous algorithm goes on.
            let _ = self.switch_to(&choice.algorithm, "flow", now);
        }
        let Some(agent) = agent else { return };
        if managed || agent.watches_all() {
            let watched = self.cc.watched.get_or_insert_with(|| ReportedState::new(class, managed));
            watched.set(class, managed);
            if self.cc.switches != before {
                watched.algorithm_was_set();
            }
            agent.send_pending(self.id, watched, &self.cc.algorithm, self.cc.pinned, now);
        } else if self.cc.watched.take().is_some() {
            agent.forget(self.id);
        }
    }

    /// Applies a change by an operator, regardless of flows and rules.
    pub(crate) fn apply_override(
        &mut self,
        change: &CcOverride,
        now: Instant,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        let from = self.cc.algorithm.name();
        match change {
            CcOverride::Set(to) => {
                let refused = |_| CcOverrideError::Irreplaceable { from, to: to.name() };
                self.switch_to(to, "hand", now).map_err(refused)?;
                self.cc.pinned = true;
            }
            CcOverride::Clear => self.cc.pinned = false,
            CcOverride::Tune(tuning) => {
                if !quiche_adapter::tune(&mut self.quic, *tuning) {
                    return Err(CcOverride::untunable(*tuning, from));
                }
            }
        }
        if let Some(watched) = &mut self.cc.watched {
            watched.algorithm_was_set();
        }
        Ok(CcOverrideResult { algorithm: self.cc.algorithm.name(), pinned: self.cc.pinned })
    }

    /// Applies a choice of the rules, unless the algorithm is pinned or not selected. Returns whether the
    /// controller was replaced. With `restart` it is replaced even by one of the same algorithm, as after a path change.
    pub(crate) fn apply_selection(
        &mut self,
        algorithm: &Algorithm,
        restart: bool,
        now: Instant,
    ) -> bool {
        let before = self.cc.switches;
        if self.cc.managed() && !self.cc.pinned {
            // As in `select_cc`.
            let _ = match restart {
                true => self.replace_controller(algorithm, "path", now),
                false => self.switch_to(algorithm, "rules", now),
            };
        }
        self.cc.switches != before
    }

    /// Reports to the Selector what it does not know yet, if the connection is watched.
    pub(crate) fn report_to_selector(&mut self, agent: &mut Agent, now: Instant) {
        let Some(watched) = &mut self.cc.watched else { return };
        if watched.has_pending_updates() {
            agent.send_pending(self.id, watched, &self.cc.algorithm, self.cc.pinned, now);
        }
        if let Some(path) = quiche_adapter::path(&self.quic) {
            agent.report_path(self.id, watched, path, now);
        }
    }

    /// Switches to another algorithm; `trigger` names the cause.
    fn switch_to(
        &mut self,
        algorithm: &Algorithm,
        trigger: &'static str,
        now: Instant,
    ) -> Result<(), quiche::Error> {
        if self.cc.algorithm.settings() == algorithm.settings() {
            return Ok(());
        }
        self.replace_controller(algorithm, trigger, now)
    }

    /// Replaces the controller, even by one of the same algorithm.
    fn replace_controller(
        &mut self,
        algorithm: &Algorithm,
        trigger: &'static str,
        now: Instant,
    ) -> Result<(), quiche::Error> {
        let replaced = quiche_adapter::replace(&mut self.quic, algorithm);
        match &replaced {
            Ok(()) => {
                tracing::debug!(
                    conn = self.id.serial,
                    from = self.cc.algorithm.name(),
                    to = algorithm.name(),
                    trigger,
                    "congestion control changed"
                );
                if let Some(streamer) = self.quic.qlog_streamer() {
                    qlog::note_switch(
                        streamer,
                        self.cc.algorithm.name(),
                        algorithm.name(),
                        trigger,
                    );
                }
                self.cc.algorithm = algorithm.clone();
                self.cc.switches += 1;
                self.cc.switched = now;
            }
            Err(error) => tracing::error!(
                conn = self.id.serial,
                algorithm = algorithm.name(),
                %error,
                "congestion control not changed"
            ),
        }
        replaced
    }
}
