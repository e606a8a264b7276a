//! From which addresses an origin may send its media, beside that of its RTSP connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The allow-list as far as it says where media may come from.
#[derive(Clone)]
pub struct MediaSources(Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>);

impl MediaSources {
    /// Permits the addresses that `permits` selects; the port is 0 where the origin has announced none.
    pub fn new(permits: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(permits))
    }

    pub(crate) fn permit(&self, source: SocketAddr) -> bool {
        (self.0)(source)
    }
}

impl fmt::Debug for MediaSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MediaSources")
    }
}
