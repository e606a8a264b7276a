//! The streams that are served, with the sizes and the quality of their frames.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::annex_b::count_units;

/// live555 truncates units that are longer than its buffer, at least 60 kB.
const LONGEST_UNIT_BYTES: u64 = 60_000;

/// A stream as `npm run streams` made it.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its file's name.
    pub file: String,
    about: About,
    /// Of each frame of the clip the bytes of its slices.
    slice_bytes: Vec<u64>,
}

/// What is read of `stream-RATE.json`; PSNR in dB.
#[derive(Debug, Clone, Deserialize)]
struct About {
    source: SourceClip,
    clip_bytes: u64,
    loops: u64,
    /// Of each frame of the clip.
    frame_db: Vec<f64>,
    /// Of the last frame of each second, so many seconds later.
    freeze_db: Vec<Vec<f64>>,
}

#[derive(Debug, Clone, Deserialize)]
struct SourceClip {
    fps: f64,
    clip_s: f64,
}

impl Stream {
    /// Reads what there is of the stream with this rate in `directory`.
    ///
    /// # Errors
    /// When it is not there, or its file is not what its description says, or has a NAL unit that live555
    /// would cut off.
    pub fn load(directory: &Path, mbps: u64) -> Result<Self> {
        let path = directory.join(format!("stream-{mbps}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let about: About =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let file = format!("stream-{mbps}.264");
        let path = directory.join(&file);
        let clip = File::open(&path).with_context(|| path.display().to_string())?;
        // The rest repeats it.
        let clip = count_units(std::io::BufReader::new(clip.take(about.clip_bytes)))
            .with_context(|| path.display().to_string())?;
        if clip.longest_bytes >= LONGEST_UNIT_BYTES {
            let longest = clip.longest_bytes;
            bail!("{}: a NAL unit of {longest} bytes; live555 would cut it off", path.display());
        }
        let frames = about.source.fps * about.source.clip_s;
        let described = about.frame_db.len();
        if clip.pictures.len() as f64 != frames || described != clip.pictures.len() {
            let found = clip.pictures.len();
            bail!("{}: {found} pictures, {frames} frames, {described} described", path.display());
        }
        if about.freeze_db.len() as f64 != about.source.clip_s {
            bail!("{}: not every second is described", path.display());
        }
        Ok(Self { file, about, slice_bytes: clip.pictures })
    }

    /// Frames a second.
    #[must_use]
    pub fn fps(&self) -> f64 {
        self.about.source.fps
    }

    /// How long it is.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.about.source.clip_s * self.about.loops as f64)
    }

    /// From one picture that refers to no other to the next.
    #[must_use]
    pub fn frames_of_group(&self) -> usize {
        self.fps().round() as usize
    }

    /// How many bytes the slices of a frame have in the file.
    #[must_use]
    pub fn slice_bytes(&self, frame: usize) -> u64 {
        self.slice_bytes[frame % self.slice_bytes.len()]
    }

    /// PSNR of a frame that has been on the screen for `for_s`, against what should be there by then. Up to
    /// the next frame's time that is itself; after that as `docs/research/qoe.md` has it of DASH.
    #[must_use]
    pub fn psnr_db(&self, frame: usize, for_s: f64) -> f64 {
        let within = frame % self.about.frame_db.len();
        let media_s = within as f64 / self.fps();
        let second = media_s as usize;
        let lag = (media_s + for_s) as usize - second;
        let later = &self.about.freeze_db[second];
        match lag {
            0 => self.about.frame_db[within],
            _ => later.get(lag.min(later.len()) - 1).copied().unwrap_or(f64::NAN),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two seconds of two frames each, as often as `loops` says; each frame a slice of its number of bytes
    /// and three more.
    pub fn stream(directory: &Path, loops: u64) -> Stream {
        let picture = |number: u8| {
            let header = if number.is_multiple_of(2) { 0x65 } else { 0x41 };
            let data = std::iter::repeat_n(7, usize::from(number) + 1);
            [0, 0, 0, 1, header, 0x88].into_iter().chain(data).collect::<Vec<u8>>()
        };
        let clip: Vec<u8> = (0..4).flat_map(picture).collect();
        std::fs::write(directory.join("stream-15.264"), clip.repeat(loops as usize)).unwrap();
        let about = serde_json::json!({
            "source": { "fps": 2, "clip_s": 2 }, "clip_bytes": clip.len(), "loops": loops,
            "frame_db": [40, 41, 42, 43], "freeze_db": [[30, 20], [31, 21]],
        });
        std::fs::write(directory.join("stream-15.json"), about.to_string()).unwrap();
        Stream::load(directory, 15).unwrap()
    }

    #[test]
    fn frames_have_the_quality_of_the_clip_whatever_the_loop() {
        let directory = tempfile::tempdir().unwrap();
        let stream = stream(directory.path(), 3);
        assert_eq!((stream.duration().as_secs(), stream.frames_of_group()), (6, 2));
        assert_eq!((stream.slice_bytes(0), stream.slice_bytes(7)), (3, 6));
        assert_eq!((stream.psnr_db(1, 0.0), stream.psnr_db(5, 0.4)), (41.0, 41.0));
        assert_eq!(
            [0.5, 1.0, 1.6, 9.0].map(|for_s| stream.psnr_db(1, for_s)),
            [30.0, 30.0, 20.0, 20.0]
        );
    }

    #[test]
    fn a_file_that_is_not_as_described_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        stream(directory.path(), 1);
        let path = directory.path().join("stream-15.264");
        let mut file = std::fs::read(&path).unwrap();
        let last = file.len() - 1;
        file.truncate(last - 8);
        std::fs::write(&path, &file).unwrap();
        let error = Stream::load(directory.path(), 15).unwrap_err().to_string();
        assert!(error.contains("3 pictures, 4 frames"), "{error}");

        let long = [&[0, 0, 1, 0x65, 0x88][..], &[7; LONGEST_UNIT_BYTES as usize]].concat();
        std::fs::write(&path, &long).unwrap();
        let about = directory.path().join("stream-15.json");
        let text = std::fs::read_to_string(&about).unwrap();
        let whole = text.replace(&format!("\"clip_bytes\":{}", last + 1), "\"clip_bytes\":99999");
        std::fs::write(&about, whole).unwrap();
        let error = Stream::load(directory.path(), 15).unwrap_err().to_string();
        assert!(error.contains("60002 bytes; live555 would cut it off"), "{error}");
    }
}
