//! `app` of a `[[flow]]`, and the keys that belong to it.

use super::model::{Abr, App, Encoder, STREAM_MBPS, StreamTransport};
use super::ranges::RATE_MBPS;
use super::reader::TableReader;
use super::tree::ScenarioResult;

/// # Errors
/// A key is out of range, missing, or belongs to another `app`.
pub(super) fn read(reader: &mut TableReader<'_>) -> ScenarioResult<App> {
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        Bulk,
        OnOff,
        Encoder,
        Dash,
        Rtsp,
    }
    let words = [
        ("bulk", Word::Bulk),
        ("on_off", Word::OnOff),
        ("encoder", Word::Encoder),
        ("dash", Word::Dash),
        ("rtsp", Word::Rtsp),
    ];
    let word = reader.choice("app", &words)?;
    let segment_bytes = reader.maybe_integer("segment_bytes", 1..=1_000_000_000)?;
    let every_s = reader.maybe_number("every_s", 0.001..=1000.0)?;
    let frames_per_s = reader.number("frames_per_s", 1.0..=1000.0, 30.0)?;
    let rate_share = reader.number("rate_share", 0.01..=1.0, 0.9)?;
    let min_mbps = reader.number("min_mbps", RATE_MBPS, 0.1)?;
    let max_mbps = reader.number("max_mbps", RATE_MBPS, 8.0)?;
    let key_frame_every = reader.integer("key_frame_every", 1..=10_000, 1)?;
    let key_frame_ratio = reader.number("key_frame_ratio", 1.0..=100.0, 1.0)?;
    if min_mbps > max_mbps {
        return Err(reader.error("min_mbps", format!("{min_mbps} is above max_mbps, {max_mbps}")));
    }
    let all = [Abr::Throughput, Abr::Bola, Abr::Dynamic, Abr::L2a, Abr::Lolp];
    let abr = reader.choice("abr", &all.map(|abr| (abr.name(), abr)))?;
    // The Iris paper's.
    let buffer_s = reader.number("buffer_s", 1.0..=120.0, 15.0)?;
    // dash.js's.
    let fast_switch = reader.boolean("fast_switch", true)?;
    let rate_cap = reader.boolean("rate_cap", false)?;
    let media_mbps = reader.maybe_integer("media_mbps", 1..=1000)?;
    // What players of live streams have, such as VLC's network cache.
    let client_buffer_s = reader.number("client_buffer_s", 0.0..=120.0, 1.0)?;
    let transport = reader
        .choice("transport", &[("tcp", StreamTransport::Tcp), ("udp", StreamTransport::Udp)])?;
    for (key, of, app) in [
        ("segment_bytes", Word::OnOff, "on_off"),
        ("every_s", Word::OnOff, "on_off"),
        ("frames_per_s", Word::Encoder, "encoder"),
        ("rate_share", Word::Encoder, "encoder"),
        ("min_mbps", Word::Encoder, "encoder"),
        ("max_mbps", Word::Encoder, "encoder"),
        ("key_frame_every", Word::Encoder, "encoder"),
        ("key_frame_ratio", Word::Encoder, "encoder"),
        ("abr", Word::Dash, "dash"),
        ("buffer_s", Word::Dash, "dash"),
        ("fast_switch", Word::Dash, "dash"),
        ("rate_cap", Word::Dash, "dash"),
        ("media_mbps", Word::Rtsp, "rtsp"),
        ("client_buffer_s", Word::Rtsp, "rtsp"),
        ("transport", Word::Rtsp, "rtsp"),
    ] {
        if word != of && reader.has(key) {
            return Err(reader.error(key, format!("is only for app = \"{app}\"")));
        }
    }
    match (word, segment_bytes, every_s) {
        (Word::OnOff, Some(segment_bytes), Some(every_s)) => {
            Ok(App::OnOff { segment_bytes, every_s })
        }
        (Word::OnOff, _, _) => Err(reader.error("app", "on_off needs segment_bytes and every_s")),
        (Word::Bulk, _, _) => Ok(App::Bulk),
        (Word::Encoder, _, _) => Ok(App::Encoder(Encoder {
            frames_per_s,
            rate_share,
            min_mbps,
            max_mbps,
            key_frame_every,
            key_frame_ratio,
        })),
        (Word::Dash, _, _) => Ok(App::Dash { abr, buffer_s, fast_switch, rate_cap }),
        (Word::Rtsp, _, _) => match media_mbps {
            Some(media_mbps) if STREAM_MBPS.contains(&media_mbps) => {
                Ok(App::Rtsp { media_mbps, client_buffer_s, transport })
            }
            given => {
                let given = given.map_or("is missing".to_owned(), |it| it.to_string());
                let problem = format!("{given}: there are streams of {STREAM_MBPS:?} Mbit/s");
                Err(reader.error("media_mbps", problem))
            }
        },
    }
}
