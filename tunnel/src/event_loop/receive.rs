//! Datagrams on their way to their connection, and new connections.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use quiche::{Header, RecvInfo, Type};

use crate::datagrams;
use crate::event_loop::accept::Arrival;
use crate::event_loop::core::{CONN_ID_BYTES, Core};
use crate::fault::Fault;
use crate::flow_info::FlowInfo;
use crate::h3_errors::H3_NO_ERROR;
use crate::metrics::Drop;
use crate::stateless_reset;
use crate::udp::{RecvBuffers, UdpPort};
use crate::version;

/// Connections to one peer that are asked whether a packet is the end of one of them.
const MAX_RESET_CANDIDATES: usize = 64;

impl Core {
    /// Takes one batch from a port; whether there may be more.
    pub(crate) fn receive(&mut self, port: usize, buffers: &mut RecvBuffers) -> bool {
        let (mut packets, mut bytes) = (0, 0);
        let received = self.with_port(port, |core, socket| {
            socket.receive(buffers, |from, to, datagram| {
                packets += 1;
                bytes += datagram.len() as u64;
                let arrival = Arrival { port, socket, from, to, len: datagram.len() };
                core.on_datagram(&arrival, datagram);
            })
        });
        self.counters.packets_received.add(packets);
        self.counters.tunnel_bytes_received.add(bytes);
        match received {
            Ok(more) => more,
            // ICMP errors of earlier packets come this way too; the sockets stay good.
            Err(error) if is_report(&error) => true,
            Err(error) => {
                tracing::warn!(%error, "failed to receive from the tunnel socket");
                false
            }
        }
    }

    /// Lends a port to `action`, together with all that is not a port.
    pub(crate) fn with_port<T>(
        &mut self,
        port: usize,
        action: impl FnOnce(&mut Self, &UdpPort) -> T,
    ) -> T {
        let socket = self.sockets.ports.swap_remove(port);
        let result = action(self, &socket);
        // Back to its own place.
        self.sockets.ports.push(socket);
        let last = self.sockets.ports.len() - 1;
        self.sockets.ports.swap(port, last);
        result
    }

    pub(crate) fn on_datagram(&mut self, arrival: &Arrival<'_>, datagram: &mut [u8]) {
        // What is known of its connection is isolated below; the rest drops this datagram only.
        let taken = catch_unwind(AssertUnwindSafe(|| self.take_datagram(arrival, datagram)));
        if taken.is_err() {
            self.on_panic(None);
        }
    }

    fn take_datagram(&mut self, arrival: &Arrival<'_>, datagram: &mut [u8]) {
        let Arrival { socket, from, to, .. } = *arrival;
        // A short header has its connection ID at a fixed place (RFC 9000, Section 17.3.1).
        let known = match &*datagram {
            [first, rest @ ..] if first & 0x80 == 0 && rest.len() >= CONN_ID_BYTES => {
                self.routes.by_cid.get(&rest[..CONN_ID_BYTES]).copied()
            }
            _ => None,
        };
        let slot = match known {
            Some(slot) => slot,
            None => {
                // Of other versions only the invariants are known.
                if let Some(invariants) = version::unsupported(datagram) {
                    return self.negotiate_version(socket, (from, to), &invariants, datagram.len());
                }
                let Ok(header) = Header::from_slice(datagram, CONN_ID_BYTES) else {
                    self.shared.metrics.drops.of(Drop::Malformed).inc();
                    return;
                };
                match self.routes.by_cid.get(header.dcid.as_ref()).copied() {
                    Some(slot) => slot,
                    None if self.pass_on(socket.local(), (from, to), &header.dcid, datagram) => {
                        return;
                    }
                    None if header.ty == Type::Short => {
                        let cid = header.dcid.to_vec();
                        self.on_unknown(socket, from, to, &cid, datagram);
                        return;
                    }
                    None => match self.accept(arrival, &header) {
                        Some(slot) => slot,
                        None => return,
                    },
                }
            }
        };
        self.isolated(slot, |core| core.on_packet(slot, from, to, datagram));
    }

    /// A datagram of the connection in `slot`.
    fn on_packet(&mut self, slot: usize, from: SocketAddr, to: SocketAddr, datagram: &mut [u8]) {
        self.inject_fault(slot, Fault::Receive);
        let Some(conn) = self.conns.get_mut(slot) else { return };
        (conn.pending.had_input, conn.activity.has_new_datagrams) = (true, true);
        let info = RecvInfo { from, to: conn.address.local.unwrap_or(to) };
        if let Err(error) = conn.quic.recv(datagram, info) {
            tracing::debug!(peer = %from, %error, "QUIC packet rejected");
        }
        let many = conn.quic.dgram_recv_queue_len() >= datagrams::RECEIVE_THRESHOLD_FRAMES;
        let shutting_down = self.admission.refusing.then_some(&b"shutting down"[..]);
        if let Some(reason) =
            shutting_down.or(conn.handshake.refusal).filter(|_| !conn.handshake.established)
        {
            // CONNECTION_REFUSED (RFC 9000, Section 20.1), so that the client tries elsewhere
            // at once; an error only says that it is closed already.
            let _ = conn.quic.close(false, 0x2, reason);
        }
        if many {
            self.receive_datagrams(slot);
        }
        self.mark_pending(slot);
    }

    /// A packet with none of our connection IDs: of a connection that is gone, as after a
    /// restart, or the answer to one that we sent (RFC 9000, Section 10.3.1).
    fn on_unknown(
        &mut self,
        socket: &UdpPort,
        from: SocketAddr,
        to: SocketAddr,
        cid: &[u8],
        datagram: &mut [u8],
    ) {
        let len = datagram.len();
        if len <= stateless_reset::ANSWER_BYTES {
            let from_peer = self.conns.iter_mut().filter(|(_, conn)| conn.address.peer == from);
            let mut closed = None;
            for (slot, conn) in from_peer.take(MAX_RESET_CANDIDATES) {
                let info = RecvInfo { from, to: conn.address.local.unwrap_or(to) };
                // What is no reset for a connection does nothing to it.
                let _ = conn.quic.recv(&mut datagram.to_vec(), info);
                if conn.quic.is_closed() {
                    closed = Some(slot);
                    break;
                }
            }
            if let Some(slot) = closed {
                self.mark_pending(slot);
                return;
            }
        }
        self.shared.metrics.drops.of(Drop::UnknownConnection).inc();
        if let Some(answer) = self.tunnel.reset.as_mut().and_then(|reset| reset.answer(cid, len)) {
            // Lost, it is sent again for the peer's next packet.
            let _ = socket.send(from, to.ip(), &answer, answer.len());
        }
    }

    /// Keeps connections alive that have sent nothing for `interval`.
    pub(crate) fn keep_alive(&mut self, interval: Duration) {
        let now = self.now;
        let silent: Vec<_> = self
            .conns
            .iter_mut()
            .filter(|(_, conn)| {
                conn.handshake.established
                    && now.saturating_duration_since(conn.activity.last_sent) >= interval
            })
            .filter_map(|(slot, conn)| conn.quic.send_ack_eliciting().ok().map(|()| slot))
            .collect();
        for slot in silent {
            self.mark_pending(slot);
        }
    }

    /// Gives up handshakes that take longer than `timeout`.
    pub(crate) fn end_handshakes(&mut self, timeout: Duration) {
        let now = self.now;
        let late: Vec<_> = self
            .conns
            .iter()
            .filter(|(_, conn)| {
                !conn.handshake.established
                    && now.saturating_duration_since(conn.activity.opened) > timeout
            })
            .map(|(_, conn)| conn.id)
            .collect();
        for id in late {
            self.close(id, H3_NO_ERROR, b"handshake took too long");
        }
    }

    /// Called once a tick: rates of flows, and new allowances.
    pub(crate) fn on_tick(&mut self) {
        self.admission.refusal_logged = false;
        self.admission.refusals_told = 0;
        if let Some(reset) = &mut self.tunnel.reset {
            reset.tick();
        }
        for (_, flow) in &mut self.flows {
            flow.tick(Self::TICK);
        }
        self.account_memory();
        self.tick_datagrams();
        self.tick_path_mtu();
    }

    /// Whether a connection still has something that the peer has not acknowledged.
    pub(crate) fn unsent(&self) -> bool {
        self.conns.iter().any(|(_, conn)| {
            // What is in flight before the handshake's end is no flow's.
            conn.handshake.established
                && (conn.quic.stream_bytes_waiting() > 0 || conn.quic.bytes_in_flight() > 0)
        })
    }

    /// What the admin listener shows.
    pub(crate) fn flow_infos(&self) -> Vec<FlowInfo> {
        let now = Instant::now();
        let tcp = self.flows.iter().filter_map(|(slot, flow)| {
            let conn = self.conn(flow.conn)?;
            Some(conn.describe(flow.seen(slot, conn.quic.is_server(), now), now))
        });
        let udp = self
            .udp_flows
            .iter()
            .filter_map(|(slot, flow)| Some(self.conn(flow.conn)?.describe(flow.seen(slot), now)));
        tcp.chain(udp).collect()
    }
}

/// Whether an error of a socket is that of a packet sent earlier, which ICMP has reported (RFC 1122,
/// Section 4.1.3.3); the names are those that Linux maps ICMP's codes to.
fn is_report(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EMSGSIZE
                | libc::EOPNOTSUPP
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::EACCES
        )
    )
}
