//! What HTTP/3 and the transport have to say after packets came in.

use millrace_wire::ConnectFailure;
use millrace_wire::h3_connect::{self, Response};
use quiche::h3::NameValue;
use quiche::{PathEvent, h3};

use crate::conn::key_exchange;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::flow_trace::SetupStep;
use crate::h3_errors::H3_CONNECT_ERROR;
use crate::metrics::{ConnectionState, FlowFailure, Parser};
use crate::stream_owner::Owner;
use crate::tls_words;
use crate::tunnel_event::TunnelEvent;

impl Core {
    /// Handles all events that a connection has.
    pub(crate) fn handle_streams(&mut self, slot: usize) {
        self.handle_transport(slot);
        loop {
            let Some(conn) = self.conns.get_mut(slot) else { return };
            let Some(h3) = conn.http.h3.as_mut() else { return };
            match h3.poll(&mut conn.quic) {
                Ok((stream, event)) => self.handle_event(slot, stream, event),
                Err(h3::Error::Done) => break,
                Err(error) => {
                    // The HTTP/3 layer has closed the connection with the right code.
                    tracing::warn!(peer = %conn.address.peer, %error, "HTTP/3 protocol error");
                    self.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                    break;
                }
            }
        }
        self.note_established(slot);
        self.receive_datagrams(slot);
        self.queue_writable(slot);
    }

    /// Handshake, connection IDs and paths.
    fn handle_transport(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.http.h3.is_none() {
            if let Err(error) = conn.start_h3(&self.tunnel.http3) {
                tracing::warn!(peer = %conn.address.peer, %error, "failed to start HTTP/3");
                let _ = conn.quic.close(true, 0x102, b"no HTTP/3");
            } else if conn.http.h3.is_some() {
                self.pending.events.push_back(TunnelEvent::Open(conn.id));
            }
        }
        if let Some(token) = conn.quic.take_new_token() {
            self.pending.events.push_back(TunnelEvent::Token { conn: conn.id, token });
        }
        self.issue_token(slot);
        self.maintain_cids(slot);
    }

    /// The handshake's end. A client has it only when it is confirmed (RFC 9001, Section 4.1.2) and
    /// it knows the server's settings: TLS 1.3 lets it finish before the server has looked at its
    /// certificate, and some servers send their settings before that too.
    fn note_established(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let proven = conn.quic.is_server()
            || conn.http.h3.as_ref().is_some_and(|h3| h3.peer_settings_raw().is_some());
        if proven && conn.quic.is_handshake_confirmed() && !conn.handshake.established {
            conn.handshake.established = true;
            conn.handshake.key_exchange = key_exchange(&mut conn.quic);
            if let Some(place) = conn.handshake.handshake_place.take() {
                place.succeed();
            }
            tracing::info!(
                peer = %conn.address.peer,
                resumed = conn.quic.is_resumed(),
                early_data = tls_words::early_data(conn.quic.early_data_reason()),
                key_exchange = conn.handshake.key_exchange,
                "connection established"
            );
            let connections = &self.shared.metrics.connections;
            connections.of(ConnectionState::Connecting).dec();
            connections.of(ConnectionState::Established).inc();
            self.pending.events.push_back(TunnelEvent::Established(conn.id));
            if !self.admit_peer(slot) {
                return;
            }
            let Some(conn) = self.conns.get_mut(slot) else { return };
            // What came as early data may go out now.
            let flows: Vec<_> = conn.http.streams.values().copied().collect();
            for owner in flows {
                match owner {
                    Owner::Flow(flow) => drop(self.pump_to_socket(flow)),
                    Owner::Datagrams(flow) => self.read_capsules(flow),
                    Owner::Role(_) | Owner::Probe | Owner::PendingRequest { .. } => {}
                }
            }
        }
    }

    fn maintain_cids(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        while let Some(retired) = conn.quic.retired_scid_next() {
            self.routes.by_cid.remove(retired.as_ref());
            conn.address.cids.retain(|cid| cid.as_slice() != retired.as_ref());
        }
        while let Some(event) = conn.quic.path_event_next() {
            match event {
                PathEvent::PeerMigrated(_, peer) => {
                    tracing::info!(from = %conn.address.peer, to = %peer, "peer migrated");
                    conn.address.peer = peer;
                }
                PathEvent::PmtuUpdated { peer, pmtu, .. } if peer == conn.address.peer => {
                    conn.on_path_mtu(
                        pmtu,
                        &self.shared.metrics,
                        &mut self.admission.path_mtu_budget,
                    );
                }
                _ => {}
            }
        }
        conn.log_path_mtu(&mut self.admission.path_mtu_budget);
        if !conn.handshake.established {
            return;
        }
        while self.conns.get(slot).is_some_and(|conn| conn.quic.scids_left() > 0) {
            let cid = self.new_cid();
            let token = match &self.tunnel.reset {
                Some(reset) => reset.token(&cid),
                None => self.random_token(),
            };
            let added =
                self.conns[slot].quic.new_scid(&quiche::ConnectionId::from_ref(&cid), token, false);
            if added.is_err() {
                return;
            }
            self.conns[slot].address.cids.push(cid.clone());
            self.routes.by_cid.insert(cid, slot);
        }
    }

    fn handle_event(&mut self, slot: usize, stream: u64, event: h3::Event) {
        let conn = &mut self.conns[slot];
        let id = conn.id;
        match (event, conn.http.streams.get(&stream).copied()) {
            (event, Some(Owner::Probe)) => self.on_probe_event(slot, stream, &event),
            (h3::Event::Headers { list, .. }, None) => {
                if conn.quic.is_server() {
                    conn.http.streams.insert(stream, Owner::PendingRequest { finished: false });
                    conn.http.next_peer_stream = conn.http.next_peer_stream.max(stream + 4);
                    self.pending.events.push_back(TunnelEvent::Request {
                        conn: id,
                        stream,
                        fields: list,
                    });
                }
            }
            (h3::Event::Headers { list, .. }, Some(Owner::Role(key))) => {
                self.pending.events.push_back(TunnelEvent::Response {
                    conn: id,
                    stream,
                    key,
                    fields: list,
                });
            }
            (h3::Event::Headers { list, .. }, Some(Owner::Flow(flow))) => {
                self.on_flow_answer(flow, &list);
            }
            (h3::Event::Data, Some(Owner::Flow(flow))) => {
                if let Some(flow) = self.flows.get_mut(flow) {
                    flow.state.stream_readable = true;
                }
                self.pump_to_socket(flow);
            }
            (h3::Event::Finished, Some(Owner::Flow(flow))) => {
                if let Some(flow) = self.flows.get_mut(flow) {
                    flow.state.stream_readable = true;
                    flow.state.stream_finished = true;
                }
                self.pump_to_socket(flow);
            }
            (h3::Event::Reset(_), Some(Owner::Flow(flow))) => {
                self.end_flow(flow, FlowEnd::RemoteReset);
            }
            (h3::Event::Data, Some(Owner::Datagrams(flow))) => self.read_capsules(flow),
            (h3::Event::Finished, Some(Owner::Datagrams(flow))) => self.datagrams_finished(flow),
            (h3::Event::Reset(_), Some(Owner::Datagrams(flow))) => {
                self.end_datagrams(flow, FlowEnd::RemoteReset);
            }
            (h3::Event::Finished, Some(Owner::Role(key))) => {
                self.pending.events.push_back(TunnelEvent::StreamFinished {
                    conn: id,
                    stream,
                    key,
                });
            }
            (h3::Event::Reset(_), Some(Owner::Role(key))) => {
                conn.reset(stream, H3_CONNECT_ERROR);
                self.pending.events.push_back(TunnelEvent::StreamLost { conn: id, stream, key });
            }
            (h3::Event::Finished, Some(Owner::PendingRequest { .. })) => {
                conn.http.streams.insert(stream, Owner::PendingRequest { finished: true });
            }
            (h3::Event::Reset(_), None | Some(Owner::PendingRequest { .. })) => {
                conn.reset(stream, H3_CONNECT_ERROR)
            }
            (h3::Event::GoAway, _) => {
                conn.http.peer_goaway = true;
                self.pending.events.push_back(TunnelEvent::GoingAway(id));
            }
            // Trailers mean nothing here. Data waits for its flow, or the flow has ended.
            (
                h3::Event::Headers { .. },
                Some(Owner::PendingRequest { .. } | Owner::Datagrams(_)),
            ) => {}
            (h3::Event::Data | h3::Event::Finished, _) | (h3::Event::PriorityUpdate, _) => {}
        }
    }

    /// The answer to the request of a flow that did not wait for it.
    fn on_flow_answer(&mut self, slot: usize, fields: &[h3::Header]) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        match h3_connect::parse_response(fields_of(fields)) {
            Ok(Response::Established) => {
                flow.state.confirmed = true;
                flow.admission.begin_step(SetupStep::FirstByte, self.now);
                self.on_server_follows_rtsp(slot, h3_connect::follows_rtsp(fields_of(fields)));
            }
            Ok(Response::Interim) => {}
            Ok(Response::Failed { failure, .. }) => {
                tracing::info!(destination = %flow.label.destination, %failure, "flow refused");
                self.end_flow(slot, FlowEnd::Refused(failure_metric(failure)));
            }
            Err(error) => {
                tracing::warn!(%error, "malformed response");
                self.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                self.end_flow(slot, FlowEnd::Refused(FlowFailure::Protocol));
            }
        }
    }

    /// Flows whose stream has room again take their turn.
    fn queue_writable(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        while let Some(stream) = conn.quic.stream_writable_next() {
            // UDP flows that have something to send are in a list already.
            let Some(Owner::Flow(flow_slot)) = conn.http.streams.get(&stream) else { continue };
            if let Some(flow) = self.flows.get_mut(*flow_slot).filter(|flow| !flow.state.queued) {
                flow.state.queued = true;
                conn.pending.flows.push_back(*flow_slot);
            }
        }
    }
}

/// The metric of a flow that could not be connected.
pub fn failure_metric(failure: ConnectFailure) -> FlowFailure {
    match failure {
        ConnectFailure::Refused => FlowFailure::Refused,
        ConnectFailure::NetworkUnreachable | ConnectFailure::HostUnreachable => {
            FlowFailure::Unreachable
        }
        ConnectFailure::TimedOut => FlowFailure::DialTimeout,
        ConnectFailure::NameNotResolved => FlowFailure::NameNotResolved,
        ConnectFailure::Forbidden => FlowFailure::Denied,
        ConnectFailure::ServerFull => FlowFailure::ServerFull,
        ConnectFailure::ClientLimitReached => FlowFailure::ClientLimit,
        ConnectFailure::Overloaded => FlowFailure::Overloaded,
        ConnectFailure::LocalResources => FlowFailure::LocalResources,
        ConnectFailure::TunnelUnavailable => FlowFailure::TunnelUnavailable,
        ConnectFailure::Internal => FlowFailure::Internal,
    }
}

/// Fields as the parsers take them.
pub fn fields_of(fields: &[h3::Header]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|field| (field.name(), field.value()))
}
