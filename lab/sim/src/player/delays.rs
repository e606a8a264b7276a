//! Delays of browser and machine, without those of the link: medians of sessions in Chromium 156
//! (docs/research/virtual-player.md, Model), but for [`CONNECT_DELAY`].

use std::time::Duration;

/// From the play request to the connection, such that start-ups are those of docs/research/results/qoe-check and
/// qoe-outage.
pub(super) const CONNECT_DELAY: Duration = Duration::from_millis(60);
/// From the manifest to the next request: parsing it, and attaching a media source.
pub(super) const MANIFEST_DELAY: Duration = Duration::from_millis(45);
/// What a request takes: browser, client edge, server edge, origin.
pub(crate) const REQUEST_DELAY: Duration = Duration::from_millis(7);
/// From a segment's last byte to the next request: its append.
pub(super) const APPEND_DELAY: Duration = Duration::from_millis(4);
/// From a segment's append to its first frame after a wait. With [`APPEND_DELAY`] 20 ms from the last byte on.
pub(super) const RENDER_DELAY: Duration = Duration::from_millis(16);
