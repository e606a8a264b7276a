//! Players in browsers: the flows with `app = "dash"`.
//!
//! Each has a browser of its own in the player's namespace. The page comes from there too, so that
//! nothing but the video crosses the link; the origins are one nginx with an address for each flow.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use super::address_plan::{AddressPlan, FlowAddresses};
use super::run_paths::RunPaths;
use super::session::{SessionGuard, SessionResult};
use super::telemetry::Payload;
use super::traffic::EmulatedFlow;
use crate::player::{
    BrowserHost, BrowserSession, BuiltPlayer, DashSecond, DashSession, PlayRequest,
};
use crate::process::require;
use crate::results::series::Screen;
use crate::scenario::{App, FlowGroup, Scenario};
use crate::site::{Site, SiteContent};
use crate::step::ProgressStep;
use crate::topology::{PLAYER, Topology};

/// Programs that players run, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 5] = [
    ("ss", "iproute2"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("ffmpeg", "ffmpeg"),
    ("chromium", "chromium"),
];

/// Minimum length of a presentation, so that it is not encoded again for shorter sessions.
const MIN_PRESENTATION: Duration = Duration::from_secs(90);

/// The encoded video, and the built player.
#[derive(Debug, Clone)]
pub struct MediaLibrary {
    player: BuiltPlayer,
    media: PathBuf,
    presentation: Duration,
}

/// What is read of `media.json`.
#[derive(Debug, Deserialize)]
struct Media {
    presentation_s: f64,
}

impl MediaLibrary {
    /// Finds the built player and encodes the video into `media`, unless it is there already and long
    /// enough for sessions of `longest`.
    ///
    /// # Errors
    /// When a program or the player is missing, or the video can't be encoded.
    pub fn prepare(
        player: &Path,
        media: &Path,
        source: Option<&Path>,
        longest: Duration,
    ) -> Result<Self> {
        require(&PROGRAMS)?;
        let player = BuiltPlayer::locate(player)?;
        fs::create_dir_all(media).with_context(|| media.display().to_string())?;
        let media = media.canonicalize().with_context(|| media.display().to_string())?;
        let step = ProgressStep::begin("preparing the video (kept for the next time)", None)?;
        let log = media.with_extension("log");
        player.media(&media, source, Some(longest.max(MIN_PRESENTATION)), &log, |elapsed| {
            step.at(elapsed);
            Ok(())
        })?;
        let path = media.join("media.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let made: Media =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let presentation = Duration::from_secs_f64(made.presentation_s);
        Ok(Self { player, media, presentation })
    }

    /// # Errors
    /// What of it can't be played.
    pub fn can_play(&self, scenario: &Scenario) -> Result<(), String> {
        let lasts = |group: &&FlowGroup| group.stop_s - group.start_s;
        let longest_s = scenario.groups.iter().filter(|group| group.is_dash()).map(|it| lasts(&it));
        let longest_s = longest_s.fold(0.0, f64::max);
        let max_s = self.presentation.as_secs_f64();
        if longest_s > max_s {
            return Err(format!("a session of {longest_s} s; the presentation has {max_s} s"));
        }
        Ok(())
    }
}

/// Browsers with the page in them, and the web servers that they play from.
#[derive(Debug)]
pub struct BrowserPlayers {
    /// In the order of the flows; `None` for flows without a browser.
    pub browsers: Vec<Option<BrowserSession>>,
    /// The web servers, which stop when they are dropped.
    pub sites: Vec<Site>,
}

impl BrowserPlayers {
    /// Opens a browser for each flow with `app = "dash"`, and waits until every page is loaded.
    ///
    /// # Errors
    /// When a server or a browser does not start; with its log.
    pub fn open(
        media: Option<&MediaLibrary>,
        scenario: &Scenario,
        address_plan: &AddressPlan,
        topology: &Topology,
        paths: RunPaths<'_>,
    ) -> Result<Self> {
        let RunPaths { scratch, directory, .. } = paths;
        let group = |addresses: &FlowAddresses| &scenario.groups[addresses.group];
        let mut all =
            Self { browsers: address_plan.flows.iter().map(|_| None).collect(), sites: Vec::new() };
        let origins: Vec<SocketAddr> = address_plan
            .flows
            .iter()
            .filter(|it| group(it).is_dash())
            .map(|it| it.origin)
            .collect();
        if origins.is_empty() {
            return Ok(all);
        }
        let library = media.context("the player is not prepared")?;
        // nginx takes relative paths from its own directory.
        let directory =
            &directory.canonicalize().with_context(|| directory.display().to_string())?;
        let logs = directory.join("logs");
        let content = SiteContent {
            name: "origin",
            listen: &origins,
            page: None,
            media: Some(&library.media),
            logs: &logs,
        };
        all.sites.push(Site::start(&topology.origin, content, scratch)?);
        let here = [SocketAddr::new(PLAYER.parse()?, 80)];
        let page = library.player.page();
        let content = SiteContent {
            name: "page",
            listen: &here,
            page: Some(&page),
            media: None,
            logs: &logs,
        };
        all.sites.push(Site::start(&topology.player, content, scratch)?);
        let flows = address_plan.flows.iter().zip(&mut all.browsers);
        for (flow, (addresses, browser)) in flows.enumerate() {
            let group = group(addresses);
            let App::Dash { abr, buffer_s, fast_switch, .. } = group.app else { continue };
            let directory = directory.join(format!("player-{flow}"));
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            let query = format!(
                "mpd=http://{}/media/manifest.mpd&abr={}&buffer_s={buffer_s}&fast_switch={}",
                addresses.entry,
                abr.name(),
                if fast_switch { "on" } else { "off" }
            );
            let request = PlayRequest {
                url: &format!("http://{PLAYER}/"),
                query: &query,
                duration: Duration::from_secs_f64(group.stop_s - addresses.start_s),
                directory: &directory,
                media: &library.media,
            };
            let host = BrowserHost { namespace: &topology.player, scratch };
            *browser = Some(library.player.open(host, request)?);
        }
        for browser in all.browsers.iter_mut().flatten() {
            browser.ready()?;
        }
        Ok(all)
    }
}

/// Plays a flow in its browser from the beginning to the end.
///
/// # Errors
/// When nothing could be measured, or a connection used another congestion control than configured.
pub fn play(
    browser: BrowserSession,
    flow: &EmulatedFlow<'_>,
    began: Instant,
) -> Result<Option<SessionResult>> {
    let mut guard = SessionGuard::of(flow, began);
    if !flow.sleep_until(guard.start) {
        return Ok(None);
    }
    browser.play()?;
    let left = guard.stop.saturating_duration_since(Instant::now());
    let session = browser.finish(left, || guard.check())?;
    Ok(Some(session_result(&session, flow.addresses.start_s)))
}

/// The result of a session that began at `start_s`.
fn session_result(session: &DashSession, start_s: f64) -> SessionResult {
    let qoe = &session.qoe;
    let figures = [
        ("startup_s", qoe.startup_s),
        ("stalls", Some(f64::from(qoe.stalls))),
        ("rebuffer_ratio", Some(qoe.rebuffer_ratio)),
        ("bitrate_kbps", qoe.bitrate_kbps),
        ("switches", Some(f64::from(qoe.switches))),
        ("qoe_lin", qoe.qoe_lin),
        ("qoe_lin_without_switches", qoe.qoe_lin_without_switches),
        ("psnr_db", qoe.psnr_db),
        ("ssim", qoe.ssim),
        ("vmaf", qoe.vmaf),
        ("dropped_frames", Some(session.dropped_frames as f64)),
        ("watched_s", Some(session.session_s)),
    ];
    let screen = |second: &DashSecond| Screen {
        shown_kbps: second.rung_kbps,
        psnr_db: second.psnr_db,
        buffer_s: second.buffer_s,
    };
    SessionResult {
        figures: figures.to_vec(),
        seconds: session.seconds.iter().map(screen).collect(),
        arrivals: arrivals(session, start_s),
        invalid_reasons: invalid_reasons(session),
        account: json!({
            "error": qoe.error,
            "frozen_outside_stalls_s": session.frozen_outside_stalls_s,
        }),
    }
}

/// When the payload of a session that began at `start_s` arrived. The bytes of a segment count as spread
/// evenly over its download.
fn arrivals(session: &DashSession, start_s: f64) -> Vec<Payload> {
    let mut downloads = session.downloads.clone();
    downloads.sort_by(|a, b| a.end_s.total_cmp(&b.end_s));
    let mut all = vec![Payload { at_s: start_s, bytes: 0 }];
    let mut bytes = 0;
    for download in downloads {
        let after = all.last().map_or(start_s, |last| last.at_s);
        let first_s = (start_s + download.first_byte_s).max(after);
        all.push(Payload { at_s: first_s, bytes });
        bytes += download.bytes;
        all.push(Payload { at_s: (start_s + download.end_s).max(first_s), bytes });
    }
    all
}

/// Why a session is invalid: faults of this machine, not of the link.
fn invalid_reasons(session: &DashSession) -> Vec<String> {
    let mut reasons = Vec::new();
    let dropped = session.dropped_undisturbed;
    if dropped > 0 {
        reasons.push(format!("the browser dropped {dropped} frames while it played"));
    }
    if session.frozen_outside_stalls_s > 0.0 {
        let still_s = session.frozen_outside_stalls_s;
        reasons.push(format!("the picture stood still for {still_s} s of playing"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> DashSession {
        serde_json::from_value(json!({
            "startup_s": 0.5, "stalls": 1, "rebuffer_ratio": 0.25, "bitrate_kbps": null, "switches": 2,
            "psnr_db": 34.5, "dropped_frames": 3,
            "dropped_undisturbed": 0, "frozen_outside_stalls_s": 0.0, "session_s": 2.0,
            "seconds": [
                { "rung_kbps": null, "psnr_db": null, "buffer_s": 0.0 },
                { "rung_kbps": 620.0, "psnr_db": 34.5, "buffer_s": 3.0 },
            ],
            "downloads": [
                { "first_byte_s": 0.1, "end_s": 0.3, "bytes": 1000 },
                { "first_byte_s": 0.2, "end_s": 1.0, "bytes": 500 },
            ],
        }))
        .unwrap()
    }

    #[test]
    fn bytes_arrive_from_the_first_to_the_last_and_time_never_goes_back() {
        let all = arrivals(&session(), 10.0);
        let pairs: Vec<(f64, u64)> = all.iter().map(|it| (it.at_s, it.bytes)).collect();
        assert_eq!(pairs, [(10.0, 0), (10.1, 0), (10.3, 1000), (10.3, 1000), (11.0, 1500)]);
    }

    #[test]
    fn a_result_has_the_figures_of_the_session_and_none_for_what_never_came() {
        let result = session_result(&session(), 10.0);
        assert_eq!(result.seconds[0].buffer_s, Some(0.0));
        assert_eq!(result.seconds[1].shown_kbps, Some(620.0));
        assert!(result.figures.contains(&("bitrate_kbps", None)));
        assert!(result.figures.contains(&("stalls", Some(1.0))));
        assert!(result.invalid_reasons.is_empty());
    }
}
