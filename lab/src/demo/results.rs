//! The demo's results: `results.json` and the table.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use nix::sys::utsname::uname;
use serde::{Serialize, Serializer};

use super::options::{DemoOptions, DemoVariant};
use crate::emulator::{EmulatorReport, LinkConfig};
use crate::host::CpuShares;
use crate::player::Qoe;

/// The emulated link in the units of the command line.
#[derive(Debug, Clone, Serialize)]
pub struct DemoLink {
    rate_mbps: f64,
    rtt_ms: f64,
    loss: f64,
    loss_reverse: f64,
    buffer_bytes: u64,
    seed: u64,
}

impl From<LinkConfig> for DemoLink {
    fn from(link: LinkConfig) -> Self {
        Self {
            rate_mbps: link.down.rate_bps as f64 / 1e6,
            rtt_ms: (link.down.delay_ns + link.up.delay_ns) as f64 / 1e6,
            loss: link.down.loss,
            loss_reverse: link.up.loss,
            buffer_bytes: link.down.buffer_bytes,
            seed: link.seed,
        }
    }
}

/// The emulator's figures of a session, in the direction of the data.
#[derive(Debug, Clone, Serialize)]
pub struct DemoLinkReport {
    delivered_mbps: f64,
    delivered_mb: f64,
    loss_rate: f64,
    lost_packets: u64,
    queue_drops: u64,
    queue_wait_p50_ms: f64,
    queue_wait_p95_ms: f64,
    tcp_packets: u64,
    udp_packets: u64,
    lateness_p50_us: f64,
    lateness_p99_us: f64,
    lateness_max_us: f64,
    kernel_drops: u64,
    send_errors: u64,
    cpu_s: f64,
    duration_s: f64,
    priority: &'static str,
}

impl From<&EmulatorReport> for DemoLinkReport {
    fn from(report: &EmulatorReport) -> Self {
        let (down, late) = (report.down, report.lateness);
        Self {
            delivered_mbps: down.counters.delivered_bytes as f64 * 8e-6 / report.duration_s,
            delivered_mb: down.counters.delivered_bytes as f64 / 1e6,
            loss_rate: down.loss_rate,
            lost_packets: down.counters.lost_packets,
            queue_drops: down.counters.dropped_packets,
            queue_wait_p50_ms: down.waited.p50_us / 1e3,
            queue_wait_p95_ms: down.waited.p95_us / 1e3,
            tcp_packets: down.transports.tcp_packets,
            udp_packets: down.transports.udp_packets,
            lateness_p50_us: late.p50_us,
            lateness_p99_us: late.p99_us,
            lateness_max_us: late.max_us,
            kernel_drops: report.kernel_drops,
            send_errors: report.send_errors,
            cpu_s: report.cpu_s,
            duration_s: report.duration_s,
            priority: report.priority,
        }
    }
}

/// One finished session.
#[derive(Debug, Clone, Serialize)]
pub struct DemoSession {
    #[serde(skip)]
    pub(super) variant: DemoVariant,
    label: &'static str,
    #[serde(flatten)]
    qoe: Qoe,
    /// What carried the data across the link, as seen on the sending host.
    pub(super) congestion_control: String,
    /// Whether neither the link nor the machine fell behind.
    valid: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid_because: Vec<String>,
    host: CpuShares,
    emulator: DemoLinkReport,
}

impl DemoSession {
    /// Joins the results of the player, the machine and the emulator.
    #[must_use]
    pub fn new(
        variant: DemoVariant,
        qoe: Qoe,
        congestion_control: String,
        host: CpuShares,
        report: &EmulatorReport,
    ) -> Self {
        let mut invalid_because = report.invalid.clone();
        invalid_because.extend(host.invalid_reason());
        Self {
            variant,
            label: variant.label(),
            qoe,
            congestion_control,
            valid: invalid_because.is_empty(),
            invalid_because,
            host,
            emulator: DemoLinkReport::from(report),
        }
    }

    fn name(&self) -> &'static str {
        self.variant.name()
    }

    /// Why it is invalid, if it is.
    #[must_use]
    pub fn invalid_reason(&self) -> Option<String> {
        (!self.valid).then(|| format!("{}: {}", self.label, self.invalid_because.join("; ")))
    }
}

/// All sessions, in the order in which they were played.
#[derive(Debug, Default)]
pub struct DemoSessions {
    /// One for each variant.
    pub counted: Vec<DemoSession>,
    /// Those that were played again, because the link or the machine fell behind.
    pub discarded: Vec<DemoSession>,
}

#[derive(Serialize)]
struct DemoConfig<'a> {
    duration_s: u64,
    media: String,
    command: Vec<&'a str>,
}

#[derive(Serialize)]
struct DemoMachine {
    kernel: String,
    architecture: String,
    cpus: usize,
    millrace_lab: &'static str,
}

#[derive(Serialize)]
struct DemoDocument<'a> {
    title: &'a str,
    link: DemoLink,
    config: DemoConfig<'a>,
    machine: DemoMachine,
    #[serde(serialize_with = "by_name")]
    variants: &'a [DemoSession],
    #[serde(serialize_with = "with_names")]
    discarded: &'a [DemoSession],
}

/// As an object whose keys are in the order of the sessions.
fn by_name<S: Serializer>(sessions: &[DemoSession], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sessions.iter().map(|session| (session.name(), session)))
}

/// As a list, in which a variant may be several times.
fn with_names<S: Serializer>(sessions: &[DemoSession], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        variant: &'static str,
        #[serde(flatten)]
        session: &'a DemoSession,
    }
    let named = |session| Named { variant: DemoSession::name(session), session };
    serializer.collect_seq(sessions.iter().map(named))
}

/// Writes `results.json`.
///
/// # Errors
/// When it can't be written.
pub fn write(
    path: &Path,
    options: &DemoOptions,
    link: LinkConfig,
    all: &DemoSessions,
) -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let system = uname()?;
    let media = match &options.media {
        Some(file) => file.display().to_string(),
        None => "Big Buck Bunny".to_owned(),
    };
    let document = DemoDocument {
        title: "Millrace beside plain TCP",
        link: link.into(),
        config: DemoConfig {
            duration_s: options.duration_s,
            media,
            command: arguments.iter().map(String::as_str).collect(),
        },
        machine: DemoMachine {
            kernel: system.release().to_string_lossy().into_owned(),
            architecture: system.machine().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            millrace_lab: env!("CARGO_PKG_VERSION"),
        },
        variants: &all.counted,
        discarded: &all.discarded,
    };
    let text = serde_json::to_string_pretty(&document)?;
    fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

/// The table that the demo prints.
#[must_use]
pub fn table(all: &[DemoSession]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header([
        "",
        "start-up s",
        "stalls",
        "rebuffer ratio",
        "bitrate kbit/s",
        "switches",
        "QoE Mbit/s",
        "PSNR dB",
    ]);
    for session in all {
        let qoe = &session.qoe;
        let shown = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        table.add_row([
            session.label.to_owned(),
            shown(qoe.startup_s, 2),
            qoe.stalls.to_string(),
            format!("{:.3}", qoe.rebuffer_ratio),
            shown(qoe.bitrate_kbps, 0),
            qoe.switches.to_string(),
            shown(qoe.qoe_lin, 2),
            shown(qoe.psnr_db, 1),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(variant: DemoVariant, valid: bool) -> DemoSession {
        let qoe = Qoe {
            startup_s: None,
            stalls: 2,
            rebuffer_ratio: 0.125,
            bitrate_kbps: Some(1570.4),
            switches: 3,
            qoe_lin: Some(1.02),
            qoe_lin_without_switches: Some(1.03),
            psnr_db: Some(38.26),
            ssim: None,
            vmaf: None,
            error: None,
        };
        let emulator = DemoLinkReport {
            delivered_mbps: 0.0,
            delivered_mb: 0.0,
            loss_rate: 0.0,
            lost_packets: 0,
            queue_drops: 0,
            queue_wait_p50_ms: 0.0,
            queue_wait_p95_ms: 0.0,
            tcp_packets: 0,
            udp_packets: 0,
            lateness_p50_us: 0.0,
            lateness_p99_us: 0.0,
            lateness_max_us: 0.0,
            kernel_drops: 0,
            send_errors: 0,
            cpu_s: 0.0,
            duration_s: 0.0,
            priority: "normal",
        };
        let (label, congestion_control) = (variant.label(), String::new());
        DemoSession {
            variant,
            label,
            qoe,
            congestion_control,
            valid,
            invalid_because: if valid { Vec::new() } else { vec!["late".into(), "busy".into()] },
            host: CpuShares { cpu_busy: 0.5, cpu_steal: 0.0 },
            emulator,
        }
    }

    #[test]
    fn a_table_row_has_every_figure_and_a_dash_for_what_never_came() {
        let text = table(&[session(DemoVariant::Bbr, true)]);
        let row = text.lines().find(|line| line.contains("BBR")).unwrap();
        let cells: Vec<_> = row.trim_matches('│').split(['┆', '│']).map(str::trim).collect();
        assert_eq!(cells, ["plain TCP, BBR", "-", "2", "0.125", "1570", "3", "1.02", "38.3"]);
    }

    #[test]
    fn variants_keep_their_order_and_flat_figures() {
        let sessions = [session(DemoVariant::Millrace, true), session(DemoVariant::Cubic, false)];
        let mut out = Vec::new();
        by_name(&sessions, &mut serde_json::Serializer::new(&mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.find("\"millrace\":").unwrap() < text.find("\"cubic\":").unwrap());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["cubic"]["stalls"], 2);
        assert_eq!(value["cubic"]["psnr_db"], 38.26);
        assert!(value["cubic"]["startup_s"].is_null());
    }

    #[test]
    fn a_discarded_session_is_kept_with_its_variant() {
        let discarded = [session(DemoVariant::Bbr, false), session(DemoVariant::Bbr, false)];
        let mut out = Vec::new();
        with_names(&discarded, &mut serde_json::Serializer::new(&mut out)).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value[1]["variant"], "bbr");
        assert_eq!((&value[1]["valid"], &value[1]["stalls"]), (&false.into(), &2.into()));
    }

    #[test]
    fn an_invalid_session_is_named() {
        let reason = session(DemoVariant::Cubic, false).invalid_reason();
        assert_eq!(reason.as_deref(), Some("plain TCP, CUBIC: late; busy"));
        assert_eq!(session(DemoVariant::Bbr, true).invalid_reason(), None);
    }
}
