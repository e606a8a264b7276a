//! RTSP: streams, the packets that arrive at a player, and the playout that follows from them.

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
