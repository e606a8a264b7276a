//! RTSP: streams, what arrives of them at a player, packet by packet, and what a viewer would have seen.

pub mod annex_b;
pub mod capture;
pub mod frames;
pub mod interleaved;
pub mod live555;
pub mod playout;
pub mod relay;
pub mod rtp;
pub mod session;
pub mod stream;
