//! The frames of a scenario: what each algorithm's viewer saw at the same second, beside the source.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::document::{Gallery, Seen, View};
use super::samples::Setting;
use super::summary::{StoredCell, StoredSummary};
use super::units::{quantity, shown};
use super::viewers::{self, Picture, ReportedPlayer};

/// Bounds the page, which is a single file.
pub(crate) const MAX_IMAGE_BYTES: usize = 1_500_000;

/// All viewers at one instant, in one place.
struct Found<'a> {
    place: String,
    t: f64,
    seen: Vec<(ReportedPlayer<'a>, Picture)>,
}

/// Images of at most so many bytes; `None` where no frames were drawn.
///
/// # Errors
/// When frames can't be read.
pub(super) fn gallery(summary: &StoredSummary, at_most_bytes: usize) -> Result<Option<Gallery>> {
    let mut found: Vec<Found<'_>> = Vec::new();
    let mut credit = None;
    for viewer in viewers::viewers(summary) {
        let Some(pictures) = viewers::pictures(&viewer.directory)? else { continue };
        credit = credit.or(pictures.credit);
        let place = place(viewer.cell);
        for picture in pictures.pictures {
            let t = picture.t;
            let same = found.iter_mut().find(|it| it.place == place && it.t == t);
            match same {
                Some(same) => same.seen.push((viewer.clone(), picture)),
                None => {
                    let seen = vec![(viewer.clone(), picture)];
                    found.push(Found { place: place.clone(), t, seen });
                }
            }
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    let mut times: Vec<f64> = found.iter().map(|it| it.t).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    // Where room is short, the middle of each place comes first.
    let from_middle = |t: f64| {
        let at = times.iter().position(|known| *known == t).unwrap_or(0);
        at.abs_diff(times.len() / 2)
    };
    let mut order: Vec<&Found<'_>> = found.iter().collect();
    order.sort_by_key(|it| from_middle(it.t));
    let mut images = Images { all: Vec::new(), known: HashMap::new(), left_bytes: at_most_bytes };
    let (mut views, mut omitted) = (Vec::new(), Vec::new());
    for it in order {
        match images.take(it)? {
            Some(view) => views.push(view),
            None => omitted.push(format!("{} s{}", it.t, within(&it.place))),
        }
    }
    let at = |view: &View| found.iter().position(|it| it.place == view.place).unwrap_or(usize::MAX);
    views.sort_by(|a, b| at(a).cmp(&at(b)).then(a.t.total_cmp(&b.t)));
    let mut notes = Vec::new();
    if !omitted.is_empty() {
        let limit = shown(at_most_bytes as f64, "bytes");
        notes.push(format!(
            "Omitted beyond {limit} of frames: {}. They are beside the sessions.",
            omitted.join("; ")
        ));
    }
    Ok(Some(Gallery { credit, notes, views, images: images.all }))
}

fn within(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" ({place})") }
}

/// What is swept but for the algorithm: `Trace fcc-1mbps, random loss 3 %`.
pub(super) fn place(cell: &StoredCell) -> String {
    let is_algorithm =
        |key: &str| ["cc", "label", "parameters"].iter().any(|it| key.ends_with(&format!(".{it}")));
    let words =
        cell.at.iter().filter(|(key, _)| !is_algorithm(key) && *key != super::comparison::KEY);
    let words = words.map(|(key, value)| {
        format!("{} {}", quantity(key).name.to_lowercase(), Setting::from_json(value).shown(key))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Images as data URLs, each once.
struct Images {
    all: Vec<String>,
    known: HashMap<Vec<u8>, usize>,
    left_bytes: usize,
}

impl Images {
    /// All of a view, or nothing where there is no room for all.
    fn take(&mut self, found: &Found<'_>) -> Result<Option<View>> {
        let mut files = Vec::new();
        for (viewer, picture) in &found.seen {
            let Some(names) = &picture.files else { continue };
            let read = |name: &String| read(&viewer.directory, name);
            // The source of the first viewer stands for all.
            let source = if files.is_empty() { Some(read(&names.source)?) } else { None };
            let rest = [read(&names.whole)?, read(&names.part)?, read(&names.source_part)?];
            files.push((source, rest));
        }
        let new = files.iter().flat_map(|(source, rest)| source.iter().chain(rest));
        let needed: usize = new.filter(|it| !self.known.contains_key(*it)).map(Vec::len).sum();
        if needed > self.left_bytes {
            return Ok(None);
        }
        self.left_bytes -= needed;
        let mut source = None;
        let mut files = files.into_iter();
        let mut seen = Vec::new();
        for (viewer, picture) in &found.seen {
            let images = match picture.files.as_ref().and_then(|_| files.next()) {
                None => [None; 3],
                Some((first, rest)) => {
                    source = source.or_else(|| first.map(|bytes| self.add(bytes)));
                    rest.map(|bytes| Some(self.add(bytes)))
                }
            };
            let [whole, part, source_part] = images;
            seen.push(Seen {
                name: super::comparison::named(viewer.part.label.clone(), &viewer.sample()),
                rung_kbps: picture.rung_kbps,
                media_s: picture.media_s,
                frozen_s: picture.frozen_s,
                psnr_db: picture.psnr_db,
                buffer_s: picture.buffer_s,
                whole,
                part,
                source_part,
            });
        }
        Ok(Some(View { place: found.place.clone(), t: found.t, source, seen }))
    }

    fn add(&mut self, bytes: Vec<u8>) -> usize {
        if let Some(at) = self.known.get(&bytes) {
            return *at;
        }
        let at = self.all.len();
        self.all.push(format!("data:image/webp;base64,{}", base64(&bytes)));
        self.known.insert(bytes, at);
        at
    }
}

fn read(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let path = directory.join(name);
    fs::read(&path).with_context(|| path.display().to_string())
}

/// RFC 4648, Section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { ALPHABET[value as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648, Section 10.
    #[test]
    fn base64_is_that_of_the_rfc() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let of = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(all.map(|it| base64(it.as_bytes())), of);
    }
}
