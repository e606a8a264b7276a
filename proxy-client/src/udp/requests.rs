//! UDP flows: request, response, end.

use super::flows::{
    InterceptedUdpFlow, MAX_WAITING_BYTES, REFUSAL_HOLD_DOWN, UdpFlowState, UdpFlows, UdpOpen,
};
use crate::connection_group::RequestSource;
use crate::flow_context::FlowContext;
use crate::pool::Availability;
use crate::server_set::ServerSet;
use millrace_admission::flow_owner::FlowOwner;
use millrace_tunnel::admitted::Admitted;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::datagrams::{DatagramsStart, Queue, QueueLimit};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::streams::{failure_metric, fields_of};
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics::{Drop, Label, Parser};
use millrace_wire::ConnectFailure;
use millrace_wire::h3_connect::{self, Carries, Response};
use millrace_wire::repair::RepairMethods;
use quiche::h3;
use std::time::Instant;

impl UdpFlows {
    /// Requests a UDP flow and returns its key; `None` when the limit is reached.
    pub(crate) fn open(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        open: UdpOpen,
    ) -> Option<u64> {
        // Flows that were refused after a response count too: only this bounds their table.
        let most = context.limits.max_flows.saturating_add(context.limits.max_unanswered_udp_flows);
        if self.draining || self.flows.len() >= most {
            return None;
        }
        let UdpOpen { destination, socket, client, group, medium, content, source } = open;
        let key = context.new_key();
        let accounted = source.and_then(|it| context.accounted_udp_listener(it.listener));
        let owner = FlowOwner { viewer: Some(client.ip()), listener: accounted, client: None };
        let mut trace = core.shared.begin_trace(None, core.now());
        if let Some(trace) = &mut trace {
            trace.describe(context.groups[group].class, destination.port());
        }
        let mut admission = match &medium {
            // Its RTSP flow has shown that the source address is not forged.
            Some(_) => {
                let admitted = core.shared.admit_flow(&owner).inspect_err(|refusal| {
                    if let Some(trace) = &mut trace {
                        trace.finish(Some(Drop::from(*refusal).as_str()), core.now());
                    }
                });
                let mut admission = admitted.ok()?;
                admission.trace = trace;
                Admitted::Flow(admission)
            }
            None => {
                let (place, evicted) = core.admit_unanswered(owner, key);
                if let Some(evicted) = evicted {
                    self.close(context, core, evicted);
                }
                Admitted::Unanswered { place, trace }
            }
        };
        admission.begin_step(SetupStep::Tunnel, core.now());
        let flow = InterceptedUdpFlow {
            state: UdpFlowState::Waiting,
            destination,
            client,
            group,
            socket: Some(socket),
            admission: Some(admission),
            medium,
            content,
            source,
            queue: Queue::default(),
            deadline: core.now() + context.connect_timeout,
        };
        self.insert(key, flow);
        self.request(context, core, key);
        Some(key)
    }

    /// Ends a flow in any state.
    pub(crate) fn close(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(flow) = self.flows.get(&key) else { return };
        match flow.state {
            // `TunnelEvent::DatagramsEnded` removes the flow.
            UdpFlowState::Open(id) => return core.stop_datagrams(id),
            UdpFlowState::Requested { conn, stream } => {
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                context.pool.flow_ends(core, conn);
            }
            UdpFlowState::Waiting | UdpFlowState::Refused => {}
        }
        self.remove(key);
    }

    /// Opens the streams of the waiting flows.
    pub(crate) fn request_waiting(&mut self, context: &mut FlowContext, core: &mut Core) {
        let waiting = |(key, it): (&u64, &InterceptedUdpFlow)| {
            matches!(it.state, UdpFlowState::Waiting).then_some(*key)
        };
        let mut keys: Vec<_> = self.flows.iter().filter_map(waiting).collect();
        keys.sort_unstable();
        for key in keys {
            self.request(context, core, key);
        }
    }

    fn request(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let pinned = flow.medium.as_ref().map(|medium| medium.id);
        if pinned.is_none() && context.pool.availability(core.now()) == Availability::Down {
            let failure = context.pool.unavailable(core.now());
            return self.fail(context, core, key, failure);
        }
        let conn = match pinned {
            Some(medium) => medium.conn,
            None => match context.pool.choose(core, flow.group, ServerSet::default()) {
                Some(conn) => conn,
                None => return,
            },
        };
        match core.conn(conn).and_then(|conn| conn.carries_udp()) {
            Some(true) => {}
            // The server's SETTINGS have not arrived yet.
            None => return,
            Some(false) => {
                if !std::mem::replace(&mut self.failure_logged, true) {
                    tracing::warn!("a server does not carry UDP (RFC 9298); logged once");
                }
                return self.fail(context, core, key, ConnectFailure::Internal);
            }
        }
        let group = &context.groups[flow.group];
        let rtsp_stream = pinned.map(|medium| medium.stream);
        let repair = core.repair_methods(conn, flow.content);
        let carries = Carries::Udp { proxy: context.pool.authority(conn), rtsp_stream, repair };
        let trace = flow.admission.as_mut().and_then(|it| it.trace().as_ref());
        let trace_parent = trace.and_then(|it| it.parent_for_peer());
        let source = RequestSource { client: Some(flow.client), trace_parent };
        match group.request(core, conn, carries, &flow.destination, source, key) {
            Ok(stream) => {
                flow.state = UdpFlowState::Requested { conn, stream };
                context.pool.flow_begins(conn);
            }
            // `TunnelEvent::Writable` comes when the stream can be opened.
            Err(h3::Error::StreamBlocked) => {}
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => {
                self.fail(context, core, key, ConnectFailure::Overloaded);
            }
            Err(error) => tracing::debug!(%error, "request requeued"),
        }
    }

    /// The response to a request.
    pub(crate) fn on_response(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream, key): (ConnId, u64, u64),
        fields: &[h3::Header],
    ) {
        let Some(flow) = self.requested_flow(conn, stream, key) else { return };
        let failure = match h3_connect::parse_response(fields_of(fields)) {
            Ok(Response::Interim) => return,
            Ok(Response::Established) => {
                let repair = RepairMethods::of_answer(fields_of(fields));
                return self.start(context, core, (conn, stream, key), repair);
            }
            Ok(Response::Failed { failure, .. }) => {
                tracing::info!(destination = %flow.destination, %failure, "UDP flow refused");
                failure
            }
            Err(error) => {
                tracing::warn!(%error, "malformed response");
                core.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                ConnectFailure::Internal
            }
        };
        core.reset_stream(conn, stream, H3_CONNECT_ERROR);
        if failure == ConnectFailure::ServerFull {
            context.pool.on_full(core, conn);
        }
        self.fail(context, core, key, failure);
    }

    fn requested_flow(
        &mut self,
        conn: ConnId,
        stream: u64,
        key: u64,
    ) -> Option<&mut InterceptedUdpFlow> {
        let current = |flow: &&mut InterceptedUdpFlow| {
            matches!(flow.state, UdpFlowState::Requested { conn: its, stream: own }
                if (its, own) == (conn, stream))
        };
        self.flows.get_mut(&key).filter(current)
    }

    fn start(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream, key): (ConnId, u64, u64),
        accepted: RepairMethods,
    ) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let (Some(socket), Some(mut admission)) = (flow.socket.take(), flow.admission.take())
        else {
            return;
        };
        admission.begin_step(SetupStep::FirstByte, core.now());
        let label = FlowLabel {
            client: Some(flow.client),
            destination: flow.destination.to_string(),
            class: context.groups[flow.group].class,
        };
        let (finished, medium) = (false, flow.medium.take());
        let repair = core.repair_methods(conn, flow.content).common(accepted);
        let start = DatagramsStart {
            conn,
            stream,
            socket,
            label,
            admission,
            key,
            finished,
            medium,
            repair,
        };
        let Some(id) = core.start_datagrams(start) else {
            return self.fail(context, core, key, ConnectFailure::Internal);
        };
        flow.state = UdpFlowState::Open(id);
        while let Some(payload) = flow.queue.pop() {
            core.send_datagram(id, &payload);
        }
    }

    /// The stream of a request ended without a response.
    pub(crate) fn on_stream_lost(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream, key): (ConnId, u64, u64),
    ) {
        if self.requested_flow(conn, stream, key).is_some() {
            self.fail(context, core, key, ConnectFailure::Internal);
        }
    }

    /// A flow has ended: its client's next datagram begins another.
    pub(crate) fn on_ended(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, key): (ConnId, u64),
        end: FlowEnd,
    ) {
        context.pool.flow_ends(core, conn);
        match (end, self.flows.get_mut(&key)) {
            // Not requested again at once: the client may be gone or forged.
            (FlowEnd::Refused(_), Some(flow)) if flow.medium.is_none() => {
                flow.state = UdpFlowState::Refused;
                flow.deadline = core.now() + REFUSAL_HOLD_DOWN;
            }
            _ => self.remove(key),
        }
    }

    /// Moves the requests on failed connections to others, and ends their flows if another connection is known to work:
    /// the next datagram of each begins a flow there.
    pub(crate) fn leave(&mut self, context: &mut FlowContext, core: &mut Core, lost: &[ConnId]) {
        for conn in lost {
            if context.pool.has_working_alternative(*conn, core.now()) {
                core.lose_datagrams(*conn);
            }
            let on_it = |it: &&mut InterceptedUdpFlow| {
                let here =
                    matches!(it.state, UdpFlowState::Requested { conn: its, .. } if its == *conn);
                here && it.medium.is_none()
            };
            for flow in self.flows.values_mut().filter(on_it) {
                if let UdpFlowState::Requested { conn, stream } = flow.state {
                    core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                    flow.state = UdpFlowState::Waiting;
                    if let Some(trace) = flow.admission.as_mut().and_then(|it| it.trace().as_mut())
                    {
                        trace.fail_step(FlowEnd::TunnelLost.as_str(), core.now());
                        trace.begin(SetupStep::Tunnel, core.now());
                    }
                    context.pool.flow_ends(core, conn);
                }
            }
        }
        self.request_waiting(context, core);
    }

    /// Ends flows whose state has timed out.
    pub(crate) fn expire(&mut self, context: &mut FlowContext, core: &mut Core, now: Instant) {
        let late = |(key, it): (&u64, &InterceptedUdpFlow)| {
            (!matches!(it.state, UdpFlowState::Open(_)) && it.deadline <= now).then_some(*key)
        };
        let late: Vec<_> = self.flows.iter().filter_map(late).collect();
        for key in late {
            match self.flows.get(&key).map(|flow| &flow.state) {
                Some(UdpFlowState::Waiting) => {
                    self.fail(context, core, key, ConnectFailure::TunnelUnavailable);
                }
                Some(UdpFlowState::Requested { conn, stream }) => {
                    core.reset_stream(*conn, *stream, H3_CONNECT_ERROR);
                    self.fail(context, core, key, ConnectFailure::TimedOut);
                }
                _ => self.remove(key),
            }
        }
    }

    /// Refuses a flow. UDP has no failure reply.
    fn fail(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        failure: ConnectFailure,
    ) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let counted = failure_metric(failure);
        core.shared.metrics.flows_finished.of(counted.into()).inc();
        if let Some(admission) = &mut flow.admission {
            admission.end_set_up(Some(counted.as_str()), core.now());
        }
        let state = std::mem::replace(&mut flow.state, UdpFlowState::Refused);
        core.shared.metrics.drops.of(Drop::DatagramFlow).inc_by(flow.queue.len() as u64);
        (flow.socket, flow.queue) = (None, Queue::default());
        if flow.admission.as_ref().is_some_and(|admission| !admission.is_unanswered()) {
            flow.admission = None;
        }
        flow.medium = None;
        flow.deadline = core.now() + REFUSAL_HOLD_DOWN;
        if let UdpFlowState::Requested { conn, .. } = state {
            context.pool.flow_ends(core, conn);
        }
    }

    /// Sends a datagram of a flow that [`UdpFlows::open`] opened.
    pub(crate) fn send(&mut self, core: &mut Core, key: u64, payload: &[u8]) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let drops = &core.shared.metrics.drops;
        match flow.state {
            UdpFlowState::Waiting | UdpFlowState::Requested { .. } => {
                let limit = QueueLimit::of_bytes(MAX_WAITING_BYTES);
                let old = flow.queue.push(payload.to_vec(), limit, core.now());
                drops.of(Drop::DatagramQueue).inc_by(old);
            }
            UdpFlowState::Open(id) => {
                if !core.send_datagram(id, payload) {
                    core.shared.metrics.drops.of(Drop::DatagramFlow).inc();
                }
            }
            UdpFlowState::Refused => drops.of(Drop::DatagramFlow).inc(),
        }
    }
}
