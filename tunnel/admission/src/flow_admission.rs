//! Which flows are admitted: a bounded number for the process, shared fairly by listeners, clients
//! and viewers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fair_share::{FairShare, Place, PlaceRefusal, PoolLimits, Reserve};
use crate::flow_owner::{FlowOwner, FlowRefusal, Viewer};

/// How many flows there may be; `Default` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Flows of the process.
    pub max_flows: usize,
    /// Of these, what one viewer may have under contention.
    pub share_per_viewer: usize,
    /// Of these, what one listener may have under contention, at a client.
    pub share_per_listener: usize,
    /// Of these, what one client may have under contention, at a server.
    pub share_per_client: usize,
    /// Pairs of UDP ports for RTP.
    pub max_rtsp_port_pairs: usize,
    /// Of these, what one viewer may have under contention.
    pub rtsp_share_per_viewer: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self {
            max_flows: usize::MAX,
            share_per_viewer: usize::MAX,
            share_per_listener: usize::MAX,
            share_per_client: usize::MAX,
            max_rtsp_port_pairs: usize::MAX,
            rtsp_share_per_viewer: usize::MAX,
        }
    }
}

impl FlowLimits {
    fn viewers(&self) -> PoolLimits {
        let share = self.share_per_viewer;
        PoolLimits { places: self.max_flows, share, reserve: Reserve::Quarter }
    }

    fn listeners(&self) -> PoolLimits {
        let share = self.share_per_listener;
        PoolLimits { places: self.max_flows, share, reserve: Reserve::Sixteenth }
    }

    fn clients(&self) -> PoolLimits {
        let share = self.share_per_client;
        PoolLimits { places: self.max_flows, share, reserve: Reserve::Sixteenth }
    }

    fn port_pairs(&self) -> PoolLimits {
        let share = self.rtsp_share_per_viewer;
        PoolLimits { places: self.max_rtsp_port_pairs, share, reserve: Reserve::Quarter }
    }
}

/// The flows of a process.
#[derive(Debug)]
pub struct FlowPools {
    flows: AtomicUsize,
    max_flows: AtomicUsize,
    viewers: Arc<FairShare<Viewer>>,
    listeners: Arc<FairShare<usize>>,
    clients: Arc<FairShare<Arc<str>>>,
    port_pairs: Arc<FairShare<Viewer>>,
    max_port_pairs: AtomicUsize,
}

impl FlowPools {
    /// Without flows.
    pub fn new(limits: FlowLimits) -> Self {
        Self {
            flows: AtomicUsize::new(0),
            max_flows: AtomicUsize::new(limits.max_flows),
            viewers: FairShare::new(limits.viewers()),
            listeners: FairShare::new(limits.listeners()),
            clients: FairShare::new(limits.clients()),
            port_pairs: FairShare::new(limits.port_pairs()),
            max_port_pairs: AtomicUsize::new(limits.max_rtsp_port_pairs),
        }
    }

    /// Uses other limits for flows that come from now on.
    pub fn set(&self, limits: FlowLimits) {
        self.max_flows.store(limits.max_flows, Ordering::Relaxed);
        self.viewers.set(limits.viewers());
        self.listeners.set(limits.listeners());
        self.clients.set(limits.clients());
        self.port_pairs.set(limits.port_pairs());
        self.max_port_pairs.store(limits.max_rtsp_port_pairs, Ordering::Relaxed);
    }

    /// Takes the flow's places. Its place among those of the process goes with [`Self::leave`].
    ///
    /// # Errors
    /// The limit or share that is reached.
    pub fn join(&self, owner: &FlowOwner) -> Result<FlowPlaces, FlowRefusal> {
        let most = self.max_flows.load(Ordering::Relaxed);
        let taken = self.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |flows| {
            (flows < most).then_some(flows + 1)
        });
        taken.map_err(|_| FlowRefusal::Full)?;
        self.take(owner).inspect_err(|_| self.leave())
    }

    fn take(&self, owner: &FlowOwner) -> Result<FlowPlaces, FlowRefusal> {
        let share = |refusal: PlaceRefusal, own: FlowRefusal| match refusal {
            PlaceRefusal::Full => FlowRefusal::Full,
            PlaceRefusal::Share => own,
        };
        let viewer = owner.viewer.map(|_| self.viewers.take(owner.viewer()));
        let listener = owner.listener.map(|it| self.listeners.take(it));
        let client = owner.client.as_ref().map(|it| self.clients.take(it.clone()));
        Ok(FlowPlaces {
            viewer: viewer.transpose().map_err(|it| share(it, FlowRefusal::ViewerShare))?,
            _listener: listener.transpose().map_err(|it| share(it, FlowRefusal::ListenerShare))?,
            _client: client.transpose().map_err(|it| share(it, FlowRefusal::ClientShare))?,
        })
    }

    /// Whether the process has as many flows as it may.
    pub fn is_full(&self) -> bool {
        self.flows.load(Ordering::Relaxed) >= self.max_flows.load(Ordering::Relaxed)
    }

    /// A flow that has joined has ended.
    pub fn leave(&self) {
        self.flows.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a flow for the viewer that has turned out to be its own.
    ///
    /// # Errors
    /// The viewer has its share.
    pub fn set_viewer(
        &self,
        shares: &mut FlowPlaces,
        owner: &FlowOwner,
    ) -> Result<(), FlowRefusal> {
        let viewer = owner.viewer();
        if shares.viewer.as_ref().is_none_or(|place| *place.user() != viewer) {
            let place = self.viewers.take(viewer);
            shares.viewer = Some(place.map_err(|refusal| match refusal {
                PlaceRefusal::Full => FlowRefusal::Full,
                PlaceRefusal::Share => FlowRefusal::ViewerShare,
            })?);
        }
        Ok(())
    }

    /// Whether there may be RTP over UDP at all.
    pub fn has_port_pairs(&self) -> bool {
        self.max_port_pairs.load(Ordering::Relaxed) > 0
    }

    /// A place for a pair of ports of RTP and RTCP.
    ///
    /// # Errors
    /// All places are taken, or those of the viewer.
    pub fn take_port_pair(&self, viewer: Viewer) -> Result<Place<Viewer>, PlaceRefusal> {
        self.port_pairs.take(viewer)
    }
}

/// A flow's places among those of its owners.
#[derive(Debug)]
pub struct FlowPlaces {
    viewer: Option<Place<Viewer>>,
    _listener: Option<Place<usize>>,
    _client: Option<Place<Arc<str>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(max_flows: usize) -> FlowPools {
        FlowPools::new(FlowLimits {
            max_flows,
            share_per_viewer: 10,
            share_per_listener: 10,
            share_per_client: 10,
            ..FlowLimits::default()
        })
    }

    fn viewer(last: u8) -> FlowOwner {
        FlowOwner { viewer: Some([198, 18, 1, last].into()), ..FlowOwner::default() }
    }

    fn take_all(pools: &FlowPools, owner: &FlowOwner) -> (Vec<FlowPlaces>, FlowRefusal) {
        let mut taken = Vec::new();
        // More than any test's limits.
        while taken.len() < 2000 {
            match pools.join(owner) {
                Ok(shares) => taken.push(shares),
                Err(refusal) => return (taken, refusal),
            }
        }
        panic!("{owner:?} is never refused");
    }

    #[test]
    fn a_viewer_takes_what_is_idle_and_leaves_the_reserve() {
        let pools = pools(1600);
        let (taken, refusal) = take_all(&pools, &viewer(1));
        assert_eq!((taken.len(), refusal), (1200, FlowRefusal::ViewerShare));
        assert_eq!(take_all(&pools, &viewer(2)).0.len(), 10);
    }

    #[test]
    fn a_listener_leaves_flows_to_another_whoever_its_viewers_are() {
        let pools = pools(1600);
        let at = |listener, last| FlowOwner { listener: Some(listener), ..viewer(last) };
        let mut taken = Vec::new();
        let mut last_refusal = None;
        for last in 0..=255 {
            let (more, refusal) = take_all(&pools, &at(1, last));
            taken.extend(more);
            last_refusal = Some(refusal);
        }
        assert_eq!((taken.len(), last_refusal), (1500, Some(FlowRefusal::ListenerShare)));
        let elsewhere = FlowOwner { viewer: Some([198, 18, 2, 1].into()), ..at(2, 0) };
        assert!(pools.join(&elsewhere).is_ok());
    }

    #[test]
    fn a_client_can_not_use_up_the_share_of_another_ones_viewer() {
        let pools = pools(1600);
        let of = |client: &str| FlowOwner { client: Some(client.into()), ..viewer(1) };
        let (_taken, refusal) = take_all(&pools, &of("edge-1"));
        assert_eq!(refusal, FlowRefusal::ViewerShare);
        assert_eq!(take_all(&pools, &of("edge-2")).0.len(), 10);
    }

    #[test]
    fn a_refused_flow_takes_nothing() {
        let pools = pools(64);
        let (taken, _) = take_all(&pools, &viewer(1));
        assert_eq!(pools.flows.load(Ordering::Relaxed), taken.len());
        let count = taken.len();
        drop(taken);
        (0..count).for_each(|_| pools.leave());
        assert_eq!(pools.viewers.taken(), 0);
    }

    #[test]
    fn a_flow_counts_for_the_viewer_that_a_header_names() {
        let pools = pools(1600);
        let mut shares = pools.join(&viewer(1)).unwrap();
        pools.set_viewer(&mut shares, &viewer(2)).unwrap();
        assert_eq!(shares.viewer.as_ref().unwrap().user(), &viewer(2).viewer());
        assert_eq!(pools.viewers.taken(), 1);
    }

    #[test]
    fn flow_counts_once_for_a_viewer_that_is_named_again() {
        let pools = pools(64);
        let mut taken: Vec<_> = take_all(&pools, &viewer(1)).0;
        let count = taken.len();
        for shares in &mut taken {
            pools.set_viewer(shares, &viewer(1)).unwrap();
        }
        assert_eq!(pools.viewers.taken(), count);
    }

    #[test]
    fn viewer_that_a_header_names_is_refused_beyond_its_share() {
        let pools = pools(1600);
        let (_greedy, _) = take_all(&pools, &viewer(1));
        let mut shares = pools.join(&viewer(2)).unwrap();
        let refusal = pools.set_viewer(&mut shares, &viewer(1)).unwrap_err();
        assert_eq!(refusal, FlowRefusal::ViewerShare);
        assert_eq!(shares.viewer.as_ref().unwrap().user(), &viewer(2).viewer());
    }

    #[test]
    fn flows_without_an_owner_are_admitted_up_to_the_limit_of_the_process() {
        let pools = pools(3);
        assert!(!pools.is_full());
        let (taken, refusal) = take_all(&pools, &FlowOwner::default());
        assert_eq!((taken.len(), refusal), (3, FlowRefusal::Full));
        assert!(pools.is_full());
        pools.leave();
        assert!(!pools.is_full());
        assert!(pools.join(&FlowOwner::default()).is_ok());
    }

    #[test]
    fn reload_changes_all_limits() {
        let pools = FlowPools::new(FlowLimits::default());
        let owner = FlowOwner {
            viewer: Some([198, 18, 1, 1].into()),
            listener: Some(1),
            client: Some("edge".into()),
        };
        let _admitted: Vec<_> = (0..100).map(|_| pools.join(&owner).unwrap()).collect();
        let limits = FlowLimits {
            max_flows: 128,
            share_per_viewer: 1,
            share_per_listener: 1,
            share_per_client: 1,
            max_rtsp_port_pairs: 1,
            rtsp_share_per_viewer: 1,
        };
        let refusal_of = |owner: &FlowOwner| {
            let (taken, refusal) = take_all(&pools, owner);
            taken.iter().for_each(|_| pools.leave());
            refusal
        };
        pools.set(limits);
        assert_eq!(refusal_of(&owner), FlowRefusal::ViewerShare);
        let listener = FlowOwner { viewer: None, client: None, ..owner.clone() };
        assert_eq!(refusal_of(&listener), FlowRefusal::ListenerShare);
        let client = FlowOwner { viewer: None, listener: None, ..owner.clone() };
        assert_eq!(refusal_of(&client), FlowRefusal::ClientShare);
        pools.set(FlowLimits { max_flows: 100, ..limits });
        assert_eq!(pools.join(&FlowOwner::default()).unwrap_err(), FlowRefusal::Full);
    }

    #[test]
    fn pairs_of_ports_are_limited_and_none_are_taken_without_rtsp() {
        let pools = FlowPools::new(FlowLimits { max_rtsp_port_pairs: 0, ..FlowLimits::default() });
        assert!(!pools.has_port_pairs());
        let take = |last| pools.take_port_pair(viewer(last).viewer());
        assert_eq!(take(1).unwrap_err(), PlaceRefusal::Full);
        let limits = FlowLimits {
            max_rtsp_port_pairs: 64,
            rtsp_share_per_viewer: 2,
            ..FlowLimits::default()
        };
        pools.set(limits);
        assert!(pools.has_port_pairs());
        let places: Vec<_> = std::iter::from_fn(|| take(1).ok()).take(65).collect();
        assert_eq!(places.len(), 48);
        assert_eq!(take(1).unwrap_err(), PlaceRefusal::Share);
        assert!(take(2).is_ok());
    }
}
