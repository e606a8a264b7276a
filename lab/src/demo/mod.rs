//! The demo: one video over one bad link, carried in three ways.

mod options;
mod report;
mod results;
mod times;
mod tunnel;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::options::{DemoOptions, DemoVariant, LinkOptions};
use self::report::SessionsReport;
use self::results::{DemoSession, DemoSessions};
use self::times::DemoTimes;
use self::tunnel::{DemoTunnel, TunnelSetup};
use crate::checkout;
use crate::emulator::{EmulatorReport, LinkConfig};
use crate::host::{self, CpuTime};
use crate::output;
use crate::player::{BrowserHost, BuiltPlayer, PlayRequest};
use crate::process::require;
use crate::proxies::Binaries;
use crate::run::{Run, require_root};
use crate::site::{self, Site, SiteContent};
use crate::step::ProgressStep;
use crate::topology::{self, Topology};

/// Programs that the demo runs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 9] = [
    ("ip", "iproute2"),
    ("ss", "iproute2"),
    ("sysctl", "procps"),
    ("ethtool", "ethtool"),
    ("nft", "nftables"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("ffmpeg", "ffmpeg"),
    ("chromium", "chromium"),
];

/// Plays the video once for each variant, again where a session was invalid, and writes the results.
///
/// # Errors
/// When something is missing (before anything is started), a part fails, or on Ctrl-C.
pub fn run(options: &DemoOptions) -> Result<()> {
    require_root()?;
    require(&PROGRAMS)?;
    let link = options.link.config()?;
    let player = BuiltPlayer::locate(&options.player_dir)?;
    let page = SessionsReport::locate(&options.report_program)?;
    let binaries = match options.variants.contains(&DemoVariant::Millrace) {
        true => Some(Binaries::locate()?),
        false => None,
    };
    let demo = Demo {
        duration: Duration::from_secs(options.duration_s),
        out: directory(&options.out)?,
        media: directory(&options.media_dir)?,
        link,
        player,
        binaries,
        rules: checkout::existing(&options.tproxy_rules),
    };
    let mut times = DemoTimes::begin();
    demo.prepare(options)?;
    times.end_part("video");

    let mut sessions = DemoSessions::default();
    for (index, &variant) in options.variants.iter().enumerate() {
        if sessions.counted.iter().any(|session| session.variant == variant) {
            continue;
        }
        let what = format!("[{}/{}] {}", index + 1, options.variants.len(), variant.label());
        for attempt in 1..=options.attempts {
            let session = demo.play(&what, variant).with_context(|| variant.label())?;
            let Some(reason) = session.invalid_reason().filter(|_| attempt < options.attempts)
            else {
                sessions.counted.push(session);
                break;
            };
            let _step = ProgressStep::begin(&format!("again, invalid: {reason}"), None)?;
            sessions.discarded.push(session);
            host::wait_until_quiet()?;
        }
    }

    times.end_part("sessions");

    let results = demo.out.join("results.json");
    results::write(&results, options, link, &sessions)?;
    let report = demo.out.join("report.html");
    {
        let _step = ProgressStep::begin("drawing the report", None)?;
        page.draw(&demo.out, &report)?;
    }
    times.end_part("report");
    output::line(results::table(&sessions.counted))?;
    for reason in sessions.counted.iter().filter_map(DemoSession::invalid_reason) {
        output::line(format_args!("invalid: {reason}"))?;
    }
    output::line(format_args!("time:    {}", times.text()))?;
    output::line(format_args!("report:  {}\nfigures: {}", report.display(), results.display()))?;
    Ok(())
}

struct Demo {
    duration: Duration,
    out: PathBuf,
    media: PathBuf,
    link: LinkConfig,
    player: BuiltPlayer,
    binaries: Option<Binaries>,
    rules: PathBuf,
}

impl Demo {
    /// Removes the figures of the last time and encodes the video.
    fn prepare(&self, options: &DemoOptions) -> Result<()> {
        for stale in ["results.json", "report.html"] {
            fs::remove_file(self.out.join(stale)).ok();
        }
        let step = ProgressStep::begin("preparing the video (kept for the next time)", None)?;
        let log = self.out.join("media.log");
        self.player.media(&self.media, options.media.as_deref(), None, &log, |elapsed| {
            step.at(elapsed);
            Ok(())
        })
    }

    fn play(&self, what: &str, variant: DemoVariant) -> Result<DemoSession> {
        let out = self.out.join(variant.name());
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
        }
        fs::create_dir_all(&out)?;

        // In the order of their ends: players and servers stop before the namespaces go.
        let run = Run::start()?;
        let topology = Topology::build(&run, variant.kernel_cc())?;
        let emulator = topology.start_link(self.link)?;
        let page = self.player.page();
        let content = SiteContent {
            name: "origin",
            listen: &[format!("{}:80", topology::ORIGIN).parse()?],
            page: Some(&page),
            media: Some(&self.media),
            logs: &out,
        };
        let _origin = Site::start(&topology.origin, content, run.scratch())?;
        let tunnel = match (variant, &self.binaries) {
            (DemoVariant::Millrace, Some(binaries)) => {
                let (rules, scratch) = (&self.rules, run.scratch());
                Some(DemoTunnel::start(
                    &topology,
                    TunnelSetup { binaries, rules, scratch, logs: &out },
                )?)
            }
            _ => None,
        };

        let step = ProgressStep::begin(what, Some(self.duration))?;
        let browser_host = BrowserHost { namespace: &topology.player, scratch: run.scratch() };
        let request = PlayRequest {
            url: &format!("http://{}/", topology::ORIGIN),
            query: "",
            duration: self.duration,
            directory: &out,
            media: &self.media,
        };
        let mut seen = None;
        let before = CpuTime::now()?;
        let watched = self.player.measure(browser_host, request, |elapsed| {
            step.at(elapsed);
            if seen.is_none() && elapsed >= self.duration / 2 {
                seen = Some(match &tunnel {
                    Some(tunnel) => tunnel.look(&topology, &out)?,
                    None => site::congestion_control(&topology.origin, &["dst", topology::PLAYER])?,
                });
            }
            Ok(())
        })?;
        let host = CpuTime::now()?.since(before);
        drop(tunnel);
        let report = emulator.finish()?;
        must_have_crossed(variant, &report)?;
        fs::write(out.join("emulator.json"), serde_json::to_string_pretty(&report)?)?;
        let seen = seen.context("the session ended before its middle")?;
        Ok(DemoSession::new(variant, watched.qoe, seen, host, &report))
    }
}

/// Plain TCP and the tunnel may not be mistaken for each other: the one crosses the link as TCP,
/// the other as UDP.
fn must_have_crossed(variant: DemoVariant, report: &EmulatorReport) -> Result<()> {
    let [tcp, udp] = [&report.down, &report.up].iter().fold([0, 0], |[tcp, udp], pipe| {
        [tcp + pipe.transports.tcp_packets, udp + pipe.transports.udp_packets]
    });
    let tunnelled = match variant {
        DemoVariant::Millrace => true,
        DemoVariant::Cubic | DemoVariant::Bbr => false,
    };
    match (tunnelled, tcp, udp) {
        (true, 0, 1..) | (false, 1.., 0) => Ok(()),
        _ => bail!("{tcp} TCP and {udp} UDP packets crossed the link"),
    }
}

fn directory(path: &Path) -> Result<PathBuf> {
    fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    path.canonicalize().with_context(|| path.display().to_string())
}
