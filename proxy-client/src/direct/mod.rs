//! Flows that bypass the tunnel: while no server can take them, the client connects flows to their
//! destination itself, if the configuration allows it.
//!
//! The client never is an open proxy: where clients name the destination, `[[direct.allow]]` must list
//! the address to dial. Intercepted flows are connected to any destination except addresses that mean
//! another host for the client (this host's own, loopback, link-local, metadata services).

mod relay;
mod relay_agent;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millrace_config::{Acl, Class, ClientConfig, ClientLimits, DeniedReason, Dial, Protocol};
use millrace_tunnel::dial::{DialProgress, Dialer, interleave};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::flow_info::{FlowInfo, FlowSeen, FlowState};
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::metrics::{FlowFailure, FlowOutcome, Label};
use millrace_tunnel::own_addresses::InterfaceAddresses;
use millrace_tunnel::resolve::{Asker, Name, Question, Resolved, Resolver};
use millrace_tunnel::socket::Socket;
use millrace_tunnel::tcp_liveness::TcpLivenessChecks;
use millrace_wire::{ConnectFailure, Destination};
use tracing::field;

use crate::accepted::Accepted;
use relay::{Pumped, Relay};

/// Marks the keys of bypassed flows.
pub const KEY_BIT: u64 = 1 << 48;
/// Lower bits of a key, for the sockets of one flow.
const SOCKET_BITS: u32 = 5;
/// Lower bits of the key of a relay's socket to the client; below it are attempts to connect.
const CLIENT_SOCKET: u64 = 16;
/// Lower bits of the key of a relay's socket to the destination.
const DESTINATION_SOCKET: u64 = 17;
/// Delay between the attempts to two addresses (RFC 8305, Section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Source of a flow's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The interception or the configuration.
    Interception,
    /// The client.
    Client,
}

/// Where flows may bypass the tunnel to, and how they are dialled. Shared by all workers.
#[derive(Clone)]
pub struct Policy {
    listed: Arc<Acl>,
    intercepted: Arc<Acl>,
    own: InterfaceAddresses,
    resolver: Resolver,
    resolve_timeout: Duration,
    dial: Dial,
    mark: Option<u32>,
}

impl Policy {
    /// The policy of a configuration; `mark` is that of the tunnel's own sockets.
    ///
    /// # Errors
    /// The interfaces can't be read.
    pub fn new(config: &ClientConfig, mark: Option<u32>, resolver: Resolver) -> io::Result<Self> {
        let own = InterfaceAddresses::read()?;
        Ok(Self {
            listed: Arc::new(Acl::new(config.direct.clone(), own.addresses())),
            intercepted: Arc::new(Acl::everywhere(config.direct.clone(), own.addresses())),
            own,
            resolver,
            resolve_timeout: config.resolver.timeout,
            dial: Dial {
                timeout: config.tunnel.connect_timeout,
                per_address_timeout: config.tunnel.connect_timeout,
                attempt_delay: ATTEMPT_DELAY,
                bind_source: Vec::new(),
            },
            mark,
        })
    }

    fn acl(&self, named_by: NamedBy) -> &Acl {
        match named_by {
            NamedBy::Interception => &self.intercepted,
            NamedBy::Client => &self.listed,
        }
    }
}

enum DirectFlowState {
    /// The question, once it is asked; dropping it withdraws it.
    Resolving {
        _question: Option<Question>,
    },
    Dialing(Dialer),
}

struct Dialing {
    accepted: Accepted,
    label: FlowLabel,
    opened: Instant,
    named_by: NamedBy,
    deadline: Instant,
    state: DirectFlowState,
}

impl Dialing {
    fn seen(&self, number: u64) -> FlowSeen<'_> {
        FlowSeen {
            number,
            protocol: Protocol::Tcp,
            label: &self.label,
            opened: self.opened,
            sent_bytes: 0,
            received_bytes: 0,
            rate_mbps: 0.0,
            state: FlowState::Connecting,
            player: None,
            rate_cap_mbps: None,
            queue: None,
        }
    }
}

/// A flow that could not be connected directly.
pub type Failed = (Accepted, ConnectFailure);

/// The bypassed flows of a worker.
pub struct Direct {
    policy: Policy,
    limits: ClientLimits,
    dialing: HashMap<u64, Dialing>,
    relays: HashMap<u64, Relay>,
    /// Relays with more data than one turn allows, and since when there are any.
    busy: VecDeque<u64>,
    busy_since: Option<Instant>,
    metered: Instant,
    tcp_liveness: TcpLivenessChecks,
    /// Bytes in all relays at the last count.
    held_bytes: u64,
    answers: Receiver<Resolved>,
    answer_to: Sender<Resolved>,
    handle: WorkerHandle,
}

impl Direct {
    /// No flow yet.
    pub fn new(policy: Policy, limits: ClientLimits, handle: WorkerHandle) -> Self {
        let (answer_to, answers) = channel();
        let tcp_liveness = TcpLivenessChecks::new(limits.tcp_timeouts);
        Self {
            policy,
            limits,
            dialing: HashMap::new(),
            relays: HashMap::new(),
            busy: VecDeque::new(),
            busy_since: None,
            metered: Instant::now(),
            tcp_liveness,
            held_bytes: 0,
            answers,
            answer_to,
            handle,
        }
    }

    /// Applies limits to existing and new flows.
    pub fn set_limits(&mut self, limits: ClientLimits) {
        self.tcp_liveness.set_timeouts(limits.tcp_timeouts);
        self.limits = limits;
    }

    /// Number of flows that are connected or being connected.
    pub fn len(&self) -> usize {
        self.dialing.len() + self.relays.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The flows as the admin listener shows them.
    pub fn flows(&self) -> Vec<FlowInfo> {
        let now = Instant::now();
        let dialing = self.dialing.iter().map(|(number, dialing)| dialing.seen(*number));
        let relays = self.relays.iter().map(|(number, relay)| relay.seen(*number));
        dialing.chain(relays).map(|flow| FlowInfo::bypassed(flow, now)).collect()
    }

    /// Begins to connect a flow. Returns `Some` if that fails at once.
    pub fn start(
        &mut self,
        core: &Core,
        mut accepted: Accepted,
        destination: Destination,
        class: Class,
        named_by: NamedBy,
    ) -> Option<Failed> {
        let number = core.shared.new_number();
        let opened = core.now();
        let deadline = opened + self.policy.resolve_timeout;
        let label =
            FlowLabel { client: accepted.client, destination: destination.to_string(), class };
        let viewer = accepted.client.map(|client| client.ip());
        let state = DirectFlowState::Resolving { _question: None };
        accepted.admission.begin_step(SetupStep::Resolve, opened);
        let dialing = Dialing { accepted, label, opened, named_by, deadline, state };
        self.dialing.insert(number, dialing);
        match destination {
            Destination::Address(address) => self.dial(core, number, &[address]),
            Destination::Name { host, port } => self.resolve(core, number, viewer, (&host, port)),
        }
    }

    /// Resolves a name, unless none of its addresses could be permitted.
    fn resolve(
        &mut self,
        core: &Core,
        number: u64,
        viewer: Option<IpAddr>,
        (host, port): (&str, u16),
    ) -> Option<Failed> {
        let dialing = self.dialing.get_mut(&number)?;
        if let Err(reason) = self.policy.acl(dialing.named_by).may_permit_name(host, port) {
            return self.deny(core, number, reason);
        }
        let asker = Asker { client: None, viewer };
        let name = Name { host, port, uncached: false };
        let resolver = &self.policy.resolver;
        match resolver.ask(asker, name, number, &self.answer_to, &self.handle) {
            Ok(question) => {
                dialing.state = DirectFlowState::Resolving { _question: Some(question) };
                None
            }
            Err(error) => self.give_up(number, ConnectFailure::from(&error)),
        }
    }

    /// Refuses a flow whose destination may not be connected to directly.
    fn deny(&mut self, core: &Core, number: u64, reason: DeniedReason) -> Option<Failed> {
        let dialing = self.dialing.get(&number)?;
        tracing::warn!(
            destination = dialing.label.destination,
            reason = reason.as_str(),
            "flow not bypassed: destination is not in [[direct.allow]]"
        );
        core.shared.metrics.destinations_denied.of(reason).inc();
        self.give_up(number, ConnectFailure::Forbidden)
    }

    /// Answers of the resolver.
    pub fn on_wake(&mut self, core: &Core) -> Vec<Failed> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        let handle = |Resolved { key, result }| {
            let waits = |it: &Dialing| matches!(it.state, DirectFlowState::Resolving { .. });
            self.dialing.get(&key).filter(|it| waits(it))?;
            match result {
                Ok(resolved) => self.dial(core, key, &resolved.addresses),
                Err(error) => self.give_up(key, ConnectFailure::from(&error)),
            }
        };
        answers.into_iter().filter_map(handle).collect()
    }

    /// A socket has an event.
    pub fn on_event(&mut self, core: &Core, key: u64) -> Option<Failed> {
        let (number, socket) = ((key & !KEY_BIT) >> SOCKET_BITS, key & ((1 << SOCKET_BITS) - 1));
        if socket >= CLIENT_SOCKET {
            self.pump(core, number);
            return None;
        }
        let Dialing { state: DirectFlowState::Dialing(dialer), .. } =
            self.dialing.get_mut(&number)?
        else {
            return None;
        };
        match dialer.on_event(socket as usize, core.now()) {
            DialProgress::Waiting => self.advance(core, number),
            progress => self.on_progress(core, number, progress),
        }
    }

    /// Begins and ends attempts, and ends idle flows.
    pub fn on_tick(&mut self, core: &Core) -> Vec<Failed> {
        let now = core.now();
        self.busy_since = None;
        for number in std::mem::take(&mut self.busy) {
            self.pump(core, number);
        }
        let interval = now.saturating_duration_since(self.metered);
        if interval >= Core::TICK {
            self.metered = now;
            self.relays.values_mut().for_each(|relay| relay.tick(interval));
            let round = self.tcp_liveness.next_round();
            let of_round = |(number, _): &(&u64, &mut Relay)| round.includes(**number as usize);
            let checked = self.relays.iter_mut().filter(of_round);
            let vanished = checked.filter_map(|(number, relay)| {
                relay.has_vanished(&round, now).then_some((*number, FlowFailure::TcpTimeout))
            });
            let vanished = vanished.collect::<Vec<_>>();
            self.end_relays(core, vanished);
            self.account_memory(core);
        }
        let silent = self.relays.iter().filter(|(_, relay)| relay.is_silent(now, &self.limits));
        let silent = silent.map(|(number, _)| (*number, FlowFailure::IdleTimeout));
        let silent = silent.collect::<Vec<_>>();
        self.end_relays(core, silent);
        let numbers: Vec<_> = self.dialing.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.advance(core, number)).collect()
    }

    /// Counts the bytes in relays. While the process exceeds its memory cap, resets the relays that have been
    /// idle for longest.
    fn account_memory(&mut self, core: &Core) {
        let held = self.relays.values().map(Relay::held_bytes).sum();
        let memory = &core.shared.memory;
        memory.replace_bytes(std::mem::replace(&mut self.held_bytes, held), held);
        let mut excess = memory.share_of_excess(held);
        if excess == 0 {
            return;
        }
        let waiting = self.relays.iter().filter(|(_, relay)| relay.held_bytes() > 0);
        let mut waiting: Vec<_> =
            waiting.map(|(number, relay)| (relay.active(), *number)).collect();
        waiting.sort_unstable();
        for (_, number) in waiting {
            if excess == 0 {
                break;
            }
            let Some(relay) = self.relays.remove(&number) else { continue };
            excess = excess.saturating_sub(relay.held_bytes());
            record_end(core, number, &relay, FlowFailure::Memory.into());
            relay.reset();
        }
    }

    /// When [`Direct::on_tick`] has something to do before the next tick.
    pub fn next_deadline(&self) -> Option<Instant> {
        let dials = self.dialing.values().map(|dialing| match &dialing.state {
            DirectFlowState::Dialing(dialer) => {
                dialer.next_deadline().map_or(dialing.deadline, |at| at.min(dialing.deadline))
            }
            DirectFlowState::Resolving { .. } => dialing.deadline,
        });
        dials.chain(self.busy_since).min()
    }

    /// Dials the permitted addresses.
    fn dial(&mut self, core: &Core, number: u64, addresses: &[SocketAddr]) -> Option<Failed> {
        let dialing = self.dialing.get_mut(&number)?;
        self.policy.own.refresh(core.now());
        dialing.deadline = core.now() + self.policy.dial.timeout;
        let acl = self.policy.acl(dialing.named_by);
        let mut allowed = Vec::new();
        let mut denied = None;
        for address in addresses {
            // The kernel dials an IPv4-mapped address as IPv4.
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            match acl.permits(address.ip(), address.port()) {
                Ok(()) => allowed.push(address),
                Err(error) => denied = denied.or(Some(error)),
            }
        }
        if allowed.is_empty() {
            let Some(denied) = denied else {
                return self.give_up(number, ConnectFailure::NameNotResolved);
            };
            return self.deny(core, number, denied.reason);
        }
        dialing.accepted.admission.begin_step(SetupStep::Dial, core.now());
        let dialer = Dialer::new(interleave(&allowed), core.now()).with_mark(self.policy.mark);
        dialing.state = DirectFlowState::Dialing(dialer);
        self.advance(core, number)
    }

    fn advance(&mut self, core: &Core, number: u64) -> Option<Failed> {
        let now = core.now();
        let dialing = self.dialing.get_mut(&number)?;
        if now >= dialing.deadline {
            let failure = match dialing.state {
                DirectFlowState::Resolving { .. } => ConnectFailure::NameNotResolved,
                DirectFlowState::Dialing(_) => ConnectFailure::TimedOut,
            };
            return self.give_up(number, failure);
        }
        let DirectFlowState::Dialing(dialer) = &mut dialing.state else { return None };
        let token = |attempt: usize| Core::role_token(key(number, attempt as u64));
        let progress = dialer.advance(core.registry(), &self.policy.dial, token, now);
        self.on_progress(core, number, progress)
    }

    fn on_progress(&mut self, core: &Core, number: u64, progress: DialProgress) -> Option<Failed> {
        match progress {
            DialProgress::Waiting => None,
            DialProgress::Failed(failure) => self.give_up(number, failure),
            DialProgress::Connected(stream) => {
                let Dialing { mut accepted, label, opened, .. } = self.dialing.remove(&number)?;
                accepted.admission.begin_step(SetupStep::FirstByte, core.now());
                let sockets = [CLIENT_SOCKET, DESTINATION_SOCKET];
                let tokens = sockets.map(|socket| Core::role_token(key(number, socket)));
                let client = label.client.map(field::display);
                tracing::info!(client, destination = label.destination, "flow bypassed");
                let (socket, checks) = (Socket::tcp(stream), &self.tcp_liveness);
                match Relay::start(core, accepted, socket, (label, opened), tokens, checks) {
                    Ok(relay) => {
                        core.shared.metrics.flows_direct.inc();
                        self.relays.insert(number, relay);
                        self.pump(core, number);
                    }
                    Err(error) => {
                        tracing::error!(%error, "a flow's socket can't be watched");
                        core.shared.metrics.flows_finished.of(FlowFailure::Internal.into()).inc();
                    }
                }
                None
            }
        }
    }

    fn pump(&mut self, core: &Core, number: u64) {
        let Some(relay) = self.relays.get_mut(&number) else { return };
        let pumped = relay.pump(core.now());
        for reason in relay.refused_setups() {
            core.shared.metrics.rtsp_setups_refused.of(reason).inc();
            let (destination, reason) = (relay.destination(), reason.as_str());
            tracing::info!(
                destination,
                reason,
                "RTP over UDP can't be carried by a bypassed flow; the player is told to use the RTSP connection"
            );
        }
        match pumped {
            Pumped::Wait => {}
            Pumped::More => {
                self.busy.push_back(number);
                self.busy_since.get_or_insert(core.now());
            }
            Pumped::Complete => {
                if let Some(relay) = self.relays.remove(&number) {
                    record_end(core, number, &relay, FlowOutcome::Complete);
                }
            }
            Pumped::Failed(failure) => self.end_relays(core, [(number, failure)]),
        }
    }

    /// Ends relays with a reset.
    fn end_relays(&mut self, core: &Core, ended: impl IntoIterator<Item = (u64, FlowFailure)>) {
        for (number, failure) in ended {
            if let Some(relay) = self.relays.remove(&number) {
                record_end(core, number, &relay, failure.into());
                relay.reset();
            }
        }
    }

    fn give_up(&mut self, number: u64, failure: ConnectFailure) -> Option<Failed> {
        self.dialing.remove(&number).map(|dialing| (dialing.accepted, failure))
    }
}

/// Counts a flow that has ended, and keeps its last values.
fn record_end(core: &Core, number: u64, relay: &Relay, outcome: FlowOutcome) {
    core.shared.metrics.flows_finished.of(outcome).inc();
    let flow = FlowInfo::bypassed(relay.seen(number), core.now());
    core.shared.ended_flows.add(flow, outcome, core.now());
}

fn key(number: u64, socket: u64) -> usize {
    (KEY_BIT | number << SOCKET_BITS | socket) as usize
}
