//! The keys of a scenario file, their ranges and defaults.

use std::collections::BTreeMap;

use millrace_config::Class;

use crate::report::Plot;

use super::model::{
    Convergence, Driver, FlowChange, FlowGroup, GroupConnections, GroupPath, Ip, Measure,
    SavedParameters, Scenario, ScenarioHead, Series, Sim, Via,
};
use super::programs::{ExternalProgram, PeerPrograms};
use super::ranges::{RATE_MBPS, RTT_MS, SAVED_WINDOW_BYTES, TIME_S};
use super::reader::TableReader;
use super::tree::{Node, ScenarioResult, ScenarioText, TreeValue};
use super::variant::AlgorithmVariant;
use super::{algorithm, app, external, link_schema, peer, spread};

const MAX_FLOWS: u64 = 10_000;
/// As many as `player/src/cli/pictures.ts` draws per session.
const MAX_FRAMES: usize = 12;

/// Keys of the file that are the same for all cells.
const HEAD_KEYS: [&str; 12] = [
    "name",
    "title",
    "figure",
    "about",
    "drivers",
    "repeat",
    "seed",
    "series",
    "pictures_s",
    "sweep",
    "claim",
    "plot",
];

/// Keys of the file itself that are not the run's; those of the run are known here too.
pub(super) fn head(reader: &mut TableReader<'_>) -> ScenarioResult<ScenarioHead> {
    let name = reader.text("name")?;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(allowed) || name.len() > 60 || name.starts_with('-') {
        let problem = "allowed are up to 60 small letters, digits and hyphens";
        return Err(reader.error("name", problem));
    }
    let series = [("first", Series::First), ("all", Series::All), ("none", Series::None)];
    Ok(ScenarioHead {
        name,
        title: reader.text("title")?,
        figure: reader.maybe_text("figure")?,
        about: reader.maybe_text("about")?,
        drivers: drivers(reader)?,
        repeat: reader.integer("repeat", 1..=10_000, 1)?,
        seed: reader.integer("seed", 0..=1 << 53, 1)?,
        series: reader.choice("series", &series)?,
        pictures_s: reader.numbers("pictures_s", TIME_S, MAX_FRAMES)?,
        variant: AlgorithmVariant::default(),
    })
}

/// Both where the file does not say.
fn drivers(reader: &mut TableReader<'_>) -> ScenarioResult<Vec<Driver>> {
    let known = [Driver::Simulator, Driver::Emulator];
    let Some(node) = reader.node("drivers") else { return Ok(known.to_vec()) };
    let driver = |item: &Node| match &item.value {
        TreeValue::Text(name) => known.into_iter().find(|driver| driver.name() == name),
        _ => None,
    };
    let found: Option<Vec<_>> = match &node.value {
        TreeValue::List(items) => items.iter().map(driver).collect(),
        _ => None,
    };
    let found = found.filter(|found| !found.is_empty());
    let problem = "expected a list with \"simulator\", \"emulator\" or both";
    found.ok_or_else(|| reader.error("drivers", problem))
}

/// The report's own form, so that it takes what it can draw.
pub(super) fn plots(reader: &mut TableReader<'_>) -> ScenarioResult<Vec<Plot>> {
    let plot = |table: TableReader<'_>| {
        serde_json::from_value(table.to_json())
            .map_err(|error| table.table_error(error.to_string()))
    };
    reader.tables("plot")?.into_iter().map(plot).collect()
}

/// One cell's run.
pub(super) fn scenario(text: &ScenarioText<'_>, root: &Node) -> ScenarioResult<Scenario> {
    let mut reader = TableReader::new(text, "", root)?;
    // Read before, once for all cells.
    for key in HEAD_KEYS {
        reader.node(key);
    }
    let duration_s = reader.needed_number("duration_s", 0.1..=100_000.0)?;
    let warmup_s = reader.number("warmup_s", TIME_S, 0.0)?;
    if warmup_s >= duration_s {
        return Err(reader.error("warmup_s", format!("must be below duration_s, {duration_s}")));
    }
    let ip = match reader.integer("ip", 4..=6, 4)? {
        4 => Ip::V4,
        6 => Ip::V6,
        other => return Err(reader.error("ip", format!("{other}, expected 4 or 6"))),
    };
    let sim = sim(reader.table("sim")?)?;
    let Some(link_table) = reader.table("link")? else {
        return Err(reader.error("link", "is missing: the table of the bottleneck"));
    };
    let link = link_schema::read(link_table, sim.packet_bytes, duration_s)?;
    let measure = measure(reader.table("measure")?)?;
    let spread = spread::read(reader.table("spread")?)?;
    let peers = peer::read(&mut reader, text)?;
    let externals = external::read(&mut reader, text)?;
    let programs = Programs { peers: &peers, externals: &externals };
    let tables = reader.tables("flow")?;
    if tables.is_empty() {
        return Err(reader.error("flow", "is missing: a [[flow]] for each kind of sender"));
    }
    let groups: Vec<FlowGroup> = tables
        .into_iter()
        .map(|table| group(table, duration_s, programs))
        .collect::<ScenarioResult<_>>()?;
    let flows: u64 = groups.iter().map(|group| group.count).sum();
    if flows > MAX_FLOWS {
        return Err(reader.error("flow", format!("{flows} flows; allowed are {MAX_FLOWS}")));
    }
    external::check(&reader, &groups)?;
    reader.finish()?;
    Ok(Scenario { duration_s, warmup_s, ip, link, sim, measure, peers, externals, spread, groups })
}

fn sim(reader: Option<TableReader<'_>>) -> ScenarioResult<Sim> {
    // RFC 9000, Sections 13.2.2 and 18.2; RFC 9002, Section 7.2.
    let mut sim = Sim {
        ack_every: 2,
        ack_delay_ms: 25.0,
        ack_aggregation_ms: 0.0,
        initial_window_packets: 10,
        packet_bytes: 1500,
    };
    let Some(mut reader) = reader else { return Ok(sim) };
    sim.ack_every = reader.integer("ack_every", 1..=1000, sim.ack_every)?;
    sim.ack_delay_ms = reader.number("ack_delay_ms", 0.0..=1000.0, sim.ack_delay_ms)?;
    sim.ack_aggregation_ms =
        reader.number("ack_aggregation_ms", 0.0..=1000.0, sim.ack_aggregation_ms)?;
    let window = reader.integer("initial_window_packets", 1..=1000, sim.initial_window_packets)?;
    sim.initial_window_packets = window;
    sim.packet_bytes = reader.integer("packet_bytes", 200..=65_535, sim.packet_bytes)?;
    reader.finish()?;
    Ok(sim)
}

fn measure(reader: Option<TableReader<'_>>) -> ScenarioResult<Measure> {
    // Vivace, Section 5.2.1: within 25 % for 5 s; Iris, Section VI-B5: over 0.9 for 5 s.
    let mut measure = Measure {
        convergence: Convergence::None,
        share_tolerance: 0.25,
        jain_above: 0.9,
        hold_s: 5.0,
        follow_tolerance: 0.2,
        settle_s: 20.0,
        epoch_s: None,
    };
    let Some(mut reader) = reader else { return Ok(measure) };
    let words =
        [("none", Convergence::None), ("share", Convergence::Share), ("jain", Convergence::Jain)];
    measure.convergence = reader.choice("convergence", &words)?;
    measure.share_tolerance =
        reader.number("share_tolerance", 0.001..=1.0, measure.share_tolerance)?;
    measure.jain_above = reader.number("jain_above", 0.01..=1.0, measure.jain_above)?;
    measure.hold_s = reader.number("hold_s", 1.0..=1000.0, measure.hold_s)?;
    measure.follow_tolerance =
        reader.number("follow_tolerance", 0.001..=1.0, measure.follow_tolerance)?;
    measure.settle_s = reader.number("settle_s", TIME_S, measure.settle_s)?;
    measure.epoch_s = reader.maybe_number("epoch_s", 0.001..=10.0)?;
    reader.finish()?;
    Ok(measure)
}

/// Programs that a flow may name.
#[derive(Clone, Copy)]
struct Programs<'a> {
    peers: &'a BTreeMap<String, PeerPrograms>,
    externals: &'a BTreeMap<String, ExternalProgram>,
}

/// The way that follows from an algorithm.
fn natural_via(reader: &TableReader<'_>, cc: &str, programs: Programs<'_>) -> ScenarioResult<Via> {
    let missing = |table: &str, name: &str| {
        Err(reader.error("cc", format!("{cc:?}, but there is no [{table}.{name}]")))
    };
    match cc.split_once(':') {
        Some(("kernel", "cubic" | "bbr" | "reno")) => Ok(Via::Direct),
        Some(("kernel", _)) => {
            let problem = format!("{cc:?}, of the kernel's there are cubic, bbr and reno");
            Err(reader.error("cc", problem))
        }
        Some(("peer", name)) if programs.peers.contains_key(name) => Ok(Via::Peer),
        Some(("peer", name)) => missing("peer", name),
        Some(("external", name)) if programs.externals.contains_key(name) => Ok(Via::External),
        Some(("external", name)) => missing("external", name),
        _ => Ok(Via::Proxy),
    }
}

fn group(
    mut reader: TableReader<'_>,
    duration_s: f64,
    programs: Programs<'_>,
) -> ScenarioResult<FlowGroup> {
    let cc = reader.text("cc")?;
    let parameters = parameters(&mut reader)?;
    let natural = natural_via(&reader, &cc, programs)?;
    if natural == Via::Proxy {
        algorithm::check(&reader, &cc, &parameters)?;
    }
    let via = via(&mut reader, natural)?;
    let group = FlowGroup {
        label: reader.maybe_text("label")?.unwrap_or_else(|| cc.clone()),
        cc,
        parameters,
        app: app::read(&mut reader)?,
        class: class(&mut reader)?,
        count: reader.integer("count", 1..=MAX_FLOWS, 1)?,
        start_s: reader.number("start_s", TIME_S, 0.0)?,
        start_every_s: reader.number("start_every_s", TIME_S, 0.0)?,
        stop_s: reader.number("stop_s", TIME_S, duration_s)?,
        path: GroupPath {
            extra_rtt_ms: reader.number("extra_rtt_ms", RTT_MS, 0.0)?,
            saved: saved(&mut reader)?,
        },
        via,
        connections: reader.choice(
            "connections",
            &[("per_flow", GroupConnections::PerFlow), ("shared", GroupConnections::Shared)],
        )?,
        upwards: reader.choice("direction", &[("down", false), ("up", true)])?,
        change: reader
            .tables("change")?
            .into_iter()
            .map(|table| flow_change(table, duration_s))
            .collect::<ScenarioResult<_>>()?,
        late_s: Vec::new(),
    };
    if group.stop_s > duration_s {
        return Err(reader.error("stop_s", format!("is after the end, at {duration_s} s")));
    }
    let last_s = group.start_of_s(group.count - 1);
    if last_s >= group.stop_s {
        let problem = format!("the last flow starts at {last_s} s, not before {} s", group.stop_s);
        return Err(reader.error("start_s", problem));
    }
    reader.finish()?;
    Ok(group)
}

fn parameters(
    reader: &mut TableReader<'_>,
) -> ScenarioResult<serde_json::Map<String, serde_json::Value>> {
    match reader.node("parameters").map(|node| (&node.value, node.to_json())) {
        None => Ok(serde_json::Map::new()),
        Some((TreeValue::Table(_), serde_json::Value::Object(map))) => Ok(map),
        Some(_) => Err(reader.error("parameters", "expected a table of settings")),
    }
}

/// Both of the saved parameters, or none.
fn saved(reader: &mut TableReader<'_>) -> ScenarioResult<Option<SavedParameters>> {
    let window_bytes = reader.maybe_integer("saved_window_bytes", SAVED_WINDOW_BYTES)?;
    let rtt_ms = reader.maybe_number("saved_rtt_ms", RTT_MS)?;
    match (window_bytes, rtt_ms) {
        (Some(window_bytes), Some(rtt_ms)) => Ok(Some(SavedParameters { window_bytes, rtt_ms })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(reader.error("saved_window_bytes", "needs saved_rtt_ms too")),
        (None, Some(_)) => Err(reader.error("saved_rtt_ms", "needs saved_window_bytes too")),
    }
}

/// Follows from the algorithm: the kernel's drive its own TCP from end to end, a peer's is its own, all
/// others drive the tunnel; an external controller drives a simulated sender. Saying it again is allowed.
fn via(reader: &mut TableReader<'_>, natural: Via) -> ScenarioResult<Via> {
    let words = [
        ("proxy", Via::Proxy),
        ("direct", Via::Direct),
        ("peer", Via::Peer),
        ("external", Via::External),
    ];
    let given = reader.has("via");
    let via = reader.choice("via", &words)?;
    if given && via != natural {
        let problem = "doesn't go with cc: kernel:... is direct, peer:... is peer, external:... is external, all else is proxy";
        return Err(reader.error("via", problem));
    }
    Ok(natural)
}

fn class(reader: &mut TableReader<'_>) -> ScenarioResult<Option<Class>> {
    let given = reader.has("class");
    let class = reader.choice("class", &Class::ALL.map(|class| (class.as_str(), class)))?;
    Ok(given.then_some(class))
}

fn flow_change(mut reader: TableReader<'_>, duration_s: f64) -> ScenarioResult<FlowChange> {
    let change = FlowChange {
        at_s: reader.needed_number("at_s", TIME_S)?,
        cc: reader.maybe_text("cc")?,
        parameters: parameters(&mut reader)?,
        share: reader.maybe_number("share", 0.0001..=1.0)?,
        yield_above_mbps: reader.maybe_number("yield_above_mbps", RATE_MBPS)?,
    };
    let FlowChange { cc, parameters, share, yield_above_mbps, .. } = &change;
    if cc.is_none() && share.is_none() && yield_above_mbps.is_none() {
        return Err(reader.table_error("changes nothing: set cc, share or yield_above_mbps"));
    }
    if let Some(cc) = cc.as_ref().filter(|cc| cc.contains(':')) {
        let problem = format!("{cc:?}, only algorithms of the tunnel take over from each other");
        return Err(reader.error("cc", problem));
    }
    match cc {
        Some(cc) => algorithm::check(&reader, cc, parameters)?,
        None if parameters.is_empty() => {}
        None => return Err(reader.error("parameters", "are of no use without cc")),
    }
    if change.at_s >= duration_s {
        return Err(reader.error("at_s", format!("is not before the end, at {duration_s} s")));
    }
    reader.finish()?;
    Ok(change)
}
