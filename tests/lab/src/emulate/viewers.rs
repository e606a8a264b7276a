//! Players in browsers: the flows with `app = "dash"`.
//!
//! Each has a browser of its own in the player's namespace. The page comes from there too, so that
//! nothing but the video crosses the link; the origins are one nginx with an address for each flow.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::places::{Place, Places};
use super::telemetry::Payload;
use super::traffic::Flow;
use crate::player::{Player, Seat, Session, Showing, Viewer};
use crate::process::require;
use crate::results::Figures;
use crate::results::series::Screen;
use crate::scenario::{App, Group, Scenario};
use crate::site::{self, Content, Site};
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

/// The first routing table of the flows that choose their congestion control by route.
const FIRST_TABLE: u32 = 1000;

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
    /// Finds the built player and encodes the video into `media`, unless it is there already.
    ///
    /// # Errors
    /// When a program or the player is missing, or the video can't be encoded.
    pub fn prepare(player: &Path, media: &Path, source: Option<&Path>) -> Result<Self> {
        require(&PROGRAMS)?;
        let player = Player::locate(player)?;
        fs::create_dir_all(media).with_context(|| media.display().to_string())?;
        let media = media.canonicalize().with_context(|| media.display().to_string())?;
        let step = Step::begin("preparing the video (kept for the next time)", None)?;
        let log = media.with_extension("log");
        player.media(&media, source, &log, |elapsed| {
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
        scratch: &Path,
        directory: &Path,
    ) -> Result<Self> {
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
        for (flow, place) in (0..).zip(&places.flows) {
            if let (true, Some(cc)) = (group(place).is_dash(), group(place).kernel_cc()) {
                topology.route_from(place.origin.ip(), FIRST_TABLE + flow, cc)?;
            }
        }
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
            let App::Dash { abr, buffer_s } = group.app else { continue };
            let directory = directory.join(format!("player-{flow}"));
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            let query = format!(
                "mpd=http://{}/media/manifest.mpd&abr={}&buffer_s={buffer_s}",
                place.door,
                abr.name()
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
pub fn watch(
    viewer: Viewer,
    flow: &Flow<'_>,
    topology: &Topology,
    began: Instant,
) -> Result<Option<Session>> {
    let at = |time_s| began + Duration::from_secs_f64(time_s);
    let (start, stop) = (at(flow.place.start_s), at(flow.group.stop_s));
    if !flow.sleep_until(start) {
        return Ok(None);
    }
    viewer.play()?;
    let middle = start + (stop - start) / 2;
    let mut unchecked = flow.group.kernel_cc();
    let left = stop.saturating_duration_since(Instant::now());
    let session = viewer.finish(left, || {
        let now = Instant::now();
        if flow.over.load(Ordering::Relaxed) && now < stop {
            bail!("the run ended before its time");
        }
        if let Some(wanted) = unchecked.filter(|_| now >= middle) {
            unchecked = None;
            let host = flow.place.origin.ip().to_string();
            let used = site::congestion_control(&topology.origin, &["src", &host])?;
            if used != wanted {
                bail!("the origin's kernel uses {used}, not {wanted}");
            }
        }
        Ok(())
    })?;
    Ok(Some(session))
}

/// When the payload of a session that began at `start_s` arrived. A segment's bytes are taken for
/// evenly spread from its first to its last.
pub fn arrivals(session: &Session, start_s: f64) -> Vec<Payload> {
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

/// What was on the screen `at_s` seconds into the session.
pub fn screen(session: &Session, at_s: f64) -> Screen {
    let second = (at_s >= 0.0).then(|| session.seconds.get(at_s as usize)).flatten();
    second.map_or_else(Screen::default, |second| Screen {
        shown_kbps: second.rung_kbps,
        psnr_db: second.psnr_db,
        buffer_s: second.buffer_s,
    })
}

/// Adds what a viewer saw to the figures of the flow.
pub fn add(figures: &mut Figures, session: &Session) {
    let qoe = &session.qoe;
    figures.set_if("startup_s", qoe.startup_s);
    figures.set("stalls", f64::from(qoe.stalls));
    figures.set("rebuffer_ratio", qoe.rebuffer_ratio);
    figures.set_if("bitrate_kbps", qoe.bitrate_kbps);
    figures.set("switches", f64::from(qoe.switches));
    figures.set_if("psnr_db", qoe.psnr_db);
    figures.set("dropped_frames", session.dropped_frames as f64);
    figures.set("watched_s", session.session_s);
}

/// Why a session says more about this machine than about the link.
pub fn doubts(flow: usize, session: &Session) -> Vec<String> {
    let mut doubts = Vec::new();
    let dropped = session.dropped_undisturbed;
    if dropped > 0 {
        doubts.push(format!("the browser of flow {flow} dropped {dropped} frames while it played"));
    }
    if session.frozen_outside_stalls_s > 0.0 {
        let still_s = session.frozen_outside_stalls_s;
        doubts.push(format!("the picture of flow {flow} stood still for {still_s} s of playing"));
    }
    doubts
}

/// What is kept of a session beside its figures.
pub fn account(session: &Session) -> Value {
    json!({
        "error": session.qoe.error,
        "frozen_outside_stalls_s": session.frozen_outside_stalls_s,
    })
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
    fn the_screen_is_that_of_the_second() {
        let session = session();
        assert_eq!(screen(&session, -0.1), Screen::default());
        assert_eq!(screen(&session, 0.9).buffer_s, Some(0.0));
        assert_eq!(screen(&session, 1.0).shown_kbps, Some(620.0));
        assert_eq!(screen(&session, 2.0), Screen::default());
    }

    #[test]
    fn what_never_came_is_no_figure() {
        let mut figures = Figures::default();
        add(&mut figures, &session());
        assert_eq!(figures.0.get("bitrate_kbps"), None);
        assert_eq!(figures.0["stalls"], 1.0);
        assert!(doubts(0, &session()).is_empty());
    }
}
