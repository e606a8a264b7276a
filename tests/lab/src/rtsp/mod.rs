//! RTSP: what arrives at a player, packet by packet, and what a viewer would have seen of it.

pub mod annex_b;
pub mod interleaved;
pub mod playout;
