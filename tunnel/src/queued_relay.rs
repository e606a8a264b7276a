//! Relay from the socket to the stream of a flow with a queue of media ([`SendQueue`]).
//!
//! The stream gets no more than the congestion window allows: what is in the queue can be dropped, what is in the stream
//! can't. How much is read from the socket depends on the queue and not on the stream.

use std::io::{self, Read};
use std::time::Instant;

use crate::flow::{FRAME_OVERHEAD_BYTES, Flow, MIN_READ_BYTES, Pump};
use crate::flow_end::FlowEnd;
use crate::rtsp::send_queue::SendQueue;

/// Most of one read into the queue. More keeps the event loop from sending for longer than the pacer makes up for.
const MAX_FILL_BYTES: usize = 64 << 10;

/// Moves one read from the socket towards the stream, and what the stream takes into it.
pub(crate) fn pump_to_stream(
    flow: &mut Flow,
    quic: &mut quiche::Connection,
    h3: &mut quiche::h3::Connection,
    scratch: &mut [u8],
    now: Instant,
) -> Pump {
    if !flow.uses_queue() {
        return flow.pump_to_stream(quic, h3, scratch, now);
    }
    if flow.state.sent_end {
        return Pump::Wait;
    }
    let Ok(room) = quic.stream_capacity(flow.stream) else {
        // The peer has no use for the rest: its TCP connection is gone.
        return Pump::Failed(FlowEnd::RemoteReset);
    };
    // `room` is that of the window, which does not know of what waits in the stream.
    let waiting = quic.stream_bytes_waiting_of(flow.stream);
    let free = room.saturating_sub(waiting).saturating_sub(FRAME_OVERHEAD_BYTES);
    let filled = fill(flow, free, scratch, now);
    if let Pump::Failed(_) = filled {
        return filled;
    }
    if room < FRAME_OVERHEAD_BYTES + MIN_READ_BYTES {
        return match quic.stream_writable(flow.stream, FRAME_OVERHEAD_BYTES + MIN_READ_BYTES) {
            Ok(_) => filled,
            Err(_) => Pump::Failed(FlowEnd::RemoteReset),
        };
    }
    let stream = flow.stream;
    let Some(queue) = queue(flow) else { return Pump::More };
    if !queue.has_output() {
        return if flow.state.socket_ended { end(flow, quic, h3, now) } else { more(flow, filled) };
    }
    if free < MIN_READ_BYTES {
        // There is room once the stream has sent what waits in it.
        return Pump::More;
    }
    let most = scratch.len().min(free);
    let length = queue.copy_to(&mut scratch[..most]);
    match h3.send_body(quic, stream, &scratch[..length], false) {
        Ok(sent) => {
            queue.advance(sent, now);
            flow.traffic.sent_bytes += sent as u64;
            flow.traffic.active = now;
            Pump::More
        }
        Err(quiche::h3::Error::Done) => Pump::Wait,
        Err(_) => Pump::Failed(FlowEnd::RemoteReset),
    }
}

/// Moves one read from the socket to the queue, if the queue takes it while the stream has `stream_room`.
pub(crate) fn fill(flow: &mut Flow, stream_room: usize, scratch: &mut [u8], now: Instant) -> Pump {
    if !flow.state.socket_readable || flow.state.socket_ended {
        return Pump::Wait;
    }
    if flow.has_unread_answers() {
        return Pump::Failed(FlowEnd::LocalReset);
    }
    let room = queue(flow).map_or(0, |queue| queue.room_bytes(stream_room, now));
    if room < MIN_READ_BYTES {
        return Pump::Wait;
    }
    let most = scratch.len().min(room).min(MAX_FILL_BYTES);
    let read = flow.socket.read(&mut scratch[..most]);
    let Some(rtsp) = &mut flow.rtsp else { return Pump::Wait };
    match read {
        Ok(0) => {
            // All that was held is in the queue.
            let _ = rtsp.end_of_socket(now);
            flow.state.socket_ended = true;
            Pump::More
        }
        Ok(read) => {
            // Not a sign of an active flow before it is sent: otherwise a paused player's flow would never be idle.
            let _ = rtsp.on_socket_bytes(&scratch[..read], now);
            Pump::More
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            flow.state.socket_readable = false;
            Pump::Wait
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Pump::More,
        Err(error) => Pump::Failed(FlowEnd::of_socket_error(&error)),
    }
}

fn queue(flow: &mut Flow) -> Option<&mut SendQueue> {
    flow.rtsp.as_mut()?.queue.as_mut()
}

/// With nothing to send: what the socket has waits until there is room for it.
fn more(flow: &Flow, filled: Pump) -> Pump {
    if flow.state.socket_readable { Pump::More } else { filled }
}

/// All has been sent.
fn end(
    flow: &mut Flow,
    quic: &mut quiche::Connection,
    h3: &mut quiche::h3::Connection,
    now: Instant,
) -> Pump {
    match h3.send_body(quic, flow.stream, &[], true) {
        Ok(_) => {
            flow.state.sent_end = true;
            flow.traffic.active = now;
            Pump::Wait
        }
        Err(quiche::h3::Error::Done) => Pump::Wait,
        Err(_) => Pump::Failed(FlowEnd::RemoteReset),
    }
}
