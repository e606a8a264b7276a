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

use super::places::{Place, Places};
use super::players::Room;
use super::telemetry::Payload;
use super::traffic::Flow;
use super::view::{Guard, View};
use crate::player::{Player, Seat, Second, Session, Showing, Viewer};
use crate::process::require;
use crate::results::series::Screen;
use crate::scenario::{App, Group, Scenario};
use crate::site::{Content, Site};
use crate::step::Step;
use crate::topology::{PLAYER, Topology};

/// What players run, and the Debian packages that have it.
const PROGRAMS: [(&str, &str); 5] = [
    ("ss", "iproute2"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("ffmpeg", "ffmpeg"),
    ("chromium", "chromium"),
];

/// As long as presentations are that nobody asks to be longer: none is made again for less.
const USUAL: Duration = Duration::from_secs(90);

/// What is shown, and by what.
#[derive(Debug, Clone)]
pub struct Theatre {
    player: Player,
    media: PathBuf,
    presentation: Duration,
}

/// What is read of `media.json`.
#[derive(Debug, Deserialize)]
struct Media {
    presentation_s: f64,
}

impl Theatre {
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
        let player = Player::locate(player)?;
        fs::create_dir_all(media).with_context(|| media.display().to_string())?;
        let media = media.canonicalize().with_context(|| media.display().to_string())?;
        let step = Step::begin("preparing the video (kept for the next time)", None)?;
        let log = media.with_extension("log");
        player.media(&media, source, Some(longest.max(USUAL)), &log, |elapsed| {
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
    /// What of it can't be shown.
    pub fn can_show(&self, scenario: &Scenario) -> Result<(), String> {
        let lasts = |group: &&Group| group.stop_s - group.start_s;
        let longest_s = scenario.groups.iter().filter(|group| group.is_dash()).map(|it| lasts(&it));
        let longest_s = longest_s.fold(0.0, f64::max);
        let most_s = self.presentation.as_secs_f64();
        if longest_s > most_s {
            return Err(format!("a session of {longest_s} s; the presentation has {most_s} s"));
        }
        Ok(())
    }
}

/// Browsers with the page in them, and the web servers that they play from.
#[derive(Debug)]
pub struct Viewers {
    /// In the order of the flows; `None` of those that nobody watches.
    pub seats: Vec<Option<Viewer>>,
    /// They serve as long as this is there.
    pub sites: Vec<Site>,
}

impl Viewers {
    /// Opens a browser for each flow that is watched, and waits until every page is there.
    ///
    /// # Errors
    /// When a server or a browser does not start; with its log.
    pub fn open(
        theatre: Option<&Theatre>,
        scenario: &Scenario,
        places: &Places,
        topology: &Topology,
        room: Room<'_>,
    ) -> Result<Self> {
        let Room { scratch, directory, .. } = room;
        let group = |place: &Place| &scenario.groups[place.group];
        let mut all =
            Self { seats: places.flows.iter().map(|_| None).collect(), sites: Vec::new() };
        let origins: Vec<SocketAddr> =
            places.flows.iter().filter(|it| group(it).is_dash()).map(|it| it.origin).collect();
        if origins.is_empty() {
            return Ok(all);
        }
        let theatre = theatre.context("nobody has prepared the player")?;
        // nginx takes relative paths from its own directory.
        let directory =
            &directory.canonicalize().with_context(|| directory.display().to_string())?;
        let logs = directory.join("logs");
        let content = Content {
            name: "origin",
            listen: &origins,
            page: None,
            media: Some(&theatre.media),
            logs: &logs,
        };
        all.sites.push(Site::start(&topology.origin, content, scratch)?);
        let here = [SocketAddr::new(PLAYER.parse()?, 80)];
        let page = theatre.player.page();
        let content =
            Content { name: "page", listen: &here, page: Some(&page), media: None, logs: &logs };
        all.sites.push(Site::start(&topology.player, content, scratch)?);
        for (flow, (place, seat)) in places.flows.iter().zip(&mut all.seats).enumerate() {
            let group = group(place);
            let App::Dash { abr, buffer_s, fast_switch } = group.app else { continue };
            let directory = directory.join(format!("player-{flow}"));
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            let query = format!(
                "mpd=http://{}/media/manifest.mpd&abr={}&buffer_s={buffer_s}&fast_switch={}",
                place.door,
                abr.name(),
                if fast_switch { "on" } else { "off" }
            );
            let showing = Showing {
                url: &format!("http://{PLAYER}/"),
                query: &query,
                duration: Duration::from_secs_f64(group.stop_s - place.start_s),
                directory: &directory,
                media: &theatre.media,
            };
            *seat =
                Some(theatre.player.open(Seat { namespace: &topology.player, scratch }, showing)?);
        }
        for viewer in all.seats.iter_mut().flatten() {
            viewer.ready()?;
        }
        Ok(all)
    }
}

/// Lets a viewer watch its flow from the beginning to the end.
///
/// # Errors
/// When nothing could be measured, or a connection did not use the congestion control that it should.
pub fn watch(viewer: Viewer, flow: &Flow<'_>, began: Instant) -> Result<Option<View>> {
    let mut guard = Guard::of(flow, began);
    if !flow.sleep_until(guard.start) {
        return Ok(None);
    }
    viewer.play()?;
    let left = guard.stop.saturating_duration_since(Instant::now());
    let session = viewer.finish(left, || guard.look())?;
    Ok(Some(view(&session, flow.place.start_s)))
}

/// Of a session that began at `start_s`.
fn view(session: &Session, start_s: f64) -> View {
    let qoe = &session.qoe;
    let figures = [
        ("startup_s", qoe.startup_s),
        ("stalls", Some(f64::from(qoe.stalls))),
        ("rebuffer_ratio", Some(qoe.rebuffer_ratio)),
        ("bitrate_kbps", qoe.bitrate_kbps),
        ("switches", Some(f64::from(qoe.switches))),
        ("psnr_db", qoe.psnr_db),
        ("ssim", qoe.ssim),
        ("vmaf", qoe.vmaf),
        ("dropped_frames", Some(session.dropped_frames as f64)),
        ("watched_s", Some(session.session_s)),
    ];
    let screen = |second: &Second| Screen {
        shown_kbps: second.rung_kbps,
        psnr_db: second.psnr_db,
        buffer_s: second.buffer_s,
    };
    View {
        figures: figures.to_vec(),
        seconds: session.seconds.iter().map(screen).collect(),
        arrivals: arrivals(session, start_s),
        doubts: doubts(session),
        account: json!({
            "error": qoe.error,
            "frozen_outside_stalls_s": session.frozen_outside_stalls_s,
        }),
    }
}

/// When the payload of a session that began at `start_s` arrived. A segment's bytes are taken for
/// evenly spread from its first to its last.
fn arrivals(session: &Session, start_s: f64) -> Vec<Payload> {
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

/// Why a session says more about this machine than about the link.
fn doubts(session: &Session) -> Vec<String> {
    let mut doubts = Vec::new();
    let dropped = session.dropped_undisturbed;
    if dropped > 0 {
        doubts.push(format!("the browser dropped {dropped} frames while it played"));
    }
    if session.frozen_outside_stalls_s > 0.0 {
        let still_s = session.frozen_outside_stalls_s;
        doubts.push(format!("the picture stood still for {still_s} s of playing"));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
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
    fn a_view_has_what_was_seen_and_what_never_came_is_no_figure() {
        let view = view(&session(), 10.0);
        assert_eq!(view.seconds[0].buffer_s, Some(0.0));
        assert_eq!(view.seconds[1].shown_kbps, Some(620.0));
        assert!(view.figures.contains(&("bitrate_kbps", None)));
        assert!(view.figures.contains(&("stalls", Some(1.0))));
        assert!(view.doubts.is_empty());
    }
}
