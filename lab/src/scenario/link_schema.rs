//! `[link]`: the keys of the bottleneck and of its changes, their ranges and defaults.

use super::link::{Link, RandomChange, Rate, TimedLinkChange, TraceFormat};
use super::ranges::{BUFFER_BYTES, LOSS, RATE_MBPS, RTT_MS, TIME_S};
use super::reader::{TableReader, reference};
use super::tree::ScenarioResult;

/// The bottleneck of packets of `packet_bytes`, for `duration_s`.
pub(super) fn read(
    mut reader: TableReader<'_>,
    packet_bytes: u64,
    duration_s: f64,
) -> ScenarioResult<Link> {
    let timed = |table| change(table, packet_bytes, duration_s);
    let link = Link {
        rate: rate(&mut reader)?,
        rtt_ms: reader.needed_number("rtt_ms", RTT_MS)?,
        buffer_bytes: match buffer(&mut reader, packet_bytes)? {
            Some(bytes) => bytes,
            None => return Err(reader.error("buffer_bytes", "is missing: an integer")),
        },
        loss: reader.number("loss", LOSS, 0.0)?,
        loss_reverse: reader.number("loss_reverse", LOSS, 0.0)?,
        jitter_ms: reader.number("jitter_ms", RTT_MS, 0.0)?,
        reorder: reader.boolean("reorder", false)?,
        random_change: reader.table("random_change")?.map(random_change).transpose()?,
        change: reader.tables("change")?.into_iter().map(timed).collect::<ScenarioResult<_>>()?,
    };
    let redraws = link.random_change.as_ref().is_some_and(|change| change.loss.is_some());
    if link.loss >= 1.0 && !redraws && link.change.iter().all(|change| change.loss.is_none()) {
        return Err(reader.error("loss", "1 is the loss of every packet; 0.01 is 1 %"));
    }
    if link.loss_reverse >= 1.0 {
        let problem = "1 is the loss of every acknowledgement; 0.01 is 1 %";
        return Err(reader.error("loss_reverse", problem));
    }
    reader.finish()?;
    Ok(link)
}

/// A buffer has room for a packet.
fn buffer(reader: &mut TableReader<'_>, packet_bytes: u64) -> ScenarioResult<Option<u64>> {
    let found = reader.maybe_integer("buffer_bytes", BUFFER_BYTES)?;
    match found.filter(|bytes| *bytes < packet_bytes) {
        None => Ok(found),
        Some(bytes) => {
            let problem = format!(
                "{bytes} is less than a packet, which is {packet_bytes} bytes: no packet can wait; at least \
                 {packet_bytes}"
            );
            Err(reader.error("buffer_bytes", problem))
        }
    }
}

fn rate(reader: &mut TableReader<'_>) -> ScenarioResult<Rate> {
    let constant = reader.maybe_number("rate_mbps", RATE_MBPS)?;
    let trace = reader.maybe_text("trace")?;
    let words = [("mahimahi", TraceFormat::Mahimahi), ("throughput", TraceFormat::Throughput)];
    let given = reader.has("trace_format");
    let trace_format = reader.choice("trace_format", &words)?;
    match (constant, trace) {
        (Some(rate_mbps), None) if !given => Ok(Rate::Constant { rate_mbps }),
        (Some(_), None) => Err(reader.error("trace_format", "is of no use without trace")),
        (None, Some(trace)) => {
            Ok(Rate::Trace { trace, trace_format, reference: reference(reader, "trace") })
        }
        (Some(_), Some(_)) => Err(reader.error("trace", "either rate_mbps or trace, not both")),
        (None, None) => Err(reader.error("rate_mbps", "is missing: rate_mbps, or trace")),
    }
}

fn random_change(mut reader: TableReader<'_>) -> ScenarioResult<RandomChange> {
    let change = RandomChange {
        every_s: reader.needed_number("every_s", 0.001..=100_000.0)?,
        rate_mbps: reader.span("rate_mbps", RATE_MBPS)?,
        rtt_ms: reader.span("rtt_ms", RTT_MS)?,
        loss: reader.span("loss", LOSS)?,
    };
    if change.rate_mbps.is_none() && change.rtt_ms.is_none() && change.loss.is_none() {
        return Err(reader.table_error("changes nothing: set rate_mbps, rtt_ms or loss"));
    }
    reader.finish()?;
    Ok(change)
}

fn change(
    mut reader: TableReader<'_>,
    packet_bytes: u64,
    duration_s: f64,
) -> ScenarioResult<TimedLinkChange> {
    let change = TimedLinkChange {
        at_s: reader.needed_number("at_s", TIME_S)?,
        rate_mbps: reader.maybe_number("rate_mbps", RATE_MBPS)?,
        rtt_ms: reader.maybe_number("rtt_ms", RTT_MS)?,
        buffer_bytes: buffer(&mut reader, packet_bytes)?,
        loss: reader.maybe_number("loss", LOSS)?,
    };
    let nothing =
        TimedLinkChange { rate_mbps: None, rtt_ms: None, buffer_bytes: None, loss: None, ..change };
    if change == nothing {
        let problem = "changes nothing: set rate_mbps, rtt_ms, buffer_bytes or loss";
        return Err(reader.table_error(problem));
    }
    if change.at_s >= duration_s {
        return Err(reader.error("at_s", format!("is not before the end, at {duration_s} s")));
    }
    reader.finish()?;
    Ok(change)
}
