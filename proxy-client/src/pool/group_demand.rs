//! Which connection groups need connections.

use std::time::{Duration, Instant};

use crate::connection_group::ConnectionGroup;

/// How long a group that is not kept ready has connections after its last flow began or ended. Longer than the pauses
/// between the flows of players that watch, and short enough that PINGs and memory of a connection without use don't
/// count.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(300);

/// Which connection groups need connections: those that are kept ready, and those that have had flows lately.
#[derive(Debug)]
pub(crate) struct GroupDemand {
    groups: Vec<Demand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Always,
    Until(Instant),
    None,
}

impl GroupDemand {
    /// No group has had flows.
    pub(crate) fn new(groups: &[ConnectionGroup]) -> Self {
        let mut demand = Self { groups: vec![Demand::None; groups.len()] };
        demand.set_kept_ready(groups);
        demand
    }

    /// Keeps the groups ready that are to be, from now on.
    pub(crate) fn set_kept_ready(&mut self, groups: &[ConnectionGroup]) {
        for (demand, group) in self.groups.iter_mut().zip(groups) {
            *demand = match (group.is_kept_ready, *demand) {
                (true, _) => Demand::Always,
                (false, Demand::Always) => Demand::None,
                (false, demand) => demand,
            };
        }
    }

    /// A group has a flow.
    pub(crate) fn use_group(&mut self, group: usize, now: Instant) {
        if let Some(demand) = self.groups.get_mut(group).filter(|it| **it != Demand::Always) {
            *demand = Demand::Until(now + UNUSED_TIMEOUT);
        }
    }

    /// Forgets groups without use; whether there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let mut has_expired = false;
        for demand in &mut self.groups {
            if matches!(demand, Demand::Until(until) if *until <= now) {
                *demand = Demand::None;
                has_expired = true;
            }
        }
        has_expired
    }

    /// Whether a group needs connections.
    pub(crate) fn needs(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|it| *it != Demand::None)
    }

    /// The groups that need connections to a server in use.
    pub(crate) fn needed(&self) -> impl Iterator<Item = usize> {
        (0..self.groups.len()).filter(|group| self.needs(*group))
    }

    /// The group of the one connection to a standby server.
    pub(crate) fn standby(&self) -> usize {
        self.groups.iter().position(|it| *it == Demand::Always).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::{Class, CongestionControl};
    use millrace_tunnel::algorithms::CcPolicy;

    use super::*;

    fn groups(kept_ready: [bool; 3]) -> Vec<ConnectionGroup> {
        let (name, parameters) = ("cubic".to_owned(), Default::default());
        let cubic = CongestionControl { name, parameters };
        let choice = CcPolicy::new(&cubic, None).unwrap();
        let group = |is_kept_ready| {
            let (class, choice) = (Class::Bulk, choice.clone());
            ConnectionGroup { class, choice, requested_cc: None, is_kept_ready }
        };
        kept_ready.map(group).into()
    }

    fn needed(demand: &GroupDemand) -> Vec<usize> {
        demand.needed().collect()
    }

    #[test]
    fn a_group_is_needed_while_it_is_kept_ready_or_in_use() {
        let now = Instant::now();
        let mut demand = GroupDemand::new(&groups([false, true, false]));
        assert_eq!((needed(&demand), demand.standby()), (vec![1], 1));
        demand.use_group(2, now);
        demand.use_group(1, now);
        demand.use_group(7, now);
        assert_eq!((needed(&demand), demand.standby()), (vec![1, 2], 1));
        let later = now + UNUSED_TIMEOUT / 2;
        demand.use_group(2, later);
        assert!(!demand.expire(now + UNUSED_TIMEOUT));
        assert_eq!(needed(&demand), [1, 2]);
        assert!(demand.expire(later + UNUSED_TIMEOUT));
        assert_eq!(needed(&demand), [1]);
        assert!(!demand.expire(later + UNUSED_TIMEOUT));
    }

    #[test]
    fn other_groups_may_be_kept_ready_after_a_reload() {
        let now = Instant::now();
        let mut demand = GroupDemand::new(&groups([true, false, false]));
        demand.use_group(2, now);
        demand.set_kept_ready(&groups([false, true, false]));
        assert_eq!((needed(&demand), demand.standby()), (vec![1, 2], 1));
        demand.set_kept_ready(&groups([true, true, true]));
        assert_eq!(needed(&demand), [0, 1, 2]);
        assert!(!demand.expire(now + 2 * UNUSED_TIMEOUT));
    }
}
