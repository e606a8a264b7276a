//! Telemetry on a disk without room.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const DISK_BYTES: usize = 64 << 10;

/// A file system of its own that is full.
struct FullDisk(TempDir);

impl FullDisk {
    fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={DISK_BYTES}");
        let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
        mount(kind, directory.path(), kind, flags, Some(size.as_str())).unwrap();
        let disk = Self(directory);
        let mut file = File::create(disk.filler()).unwrap();
        assert!(file.write_all(&vec![0; 2 * DISK_BYTES]).is_err(), "the disk is full");
        disk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> std::path::PathBuf {
        self.path().join("filler")
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).ok();
    }
}

fn dropped_rows(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum("millrace_telemetry_rows_dropped_total", &[])
}

/// A connection with a flow, from its beginning to its end: one row.
fn one_connection(pair: &mut Pair, origin: &Origin) {
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.write_all(&[7; 100_000]).unwrap();
    flow.read_exact(&mut vec![0; 100_000]).unwrap();
    drop(flow);
    pair.client.signal(Signal::SIGTERM);
    assert!(pair.client.wait(wait::DEFAULT_TIMEOUT).success());
}

#[test]
#[ignore = "needs root, for a file system of its own; run by make test"]
fn rows_that_a_full_disk_does_not_take_are_counted() {
    let (disk, origin) = (FullDisk::mount(), Origin::echo());
    let directory = format!("{:?}", disk.path().display().to_string());
    let mut pair = Pair::builder()
        .server("telemetry.dir", directory)
        .server("telemetry.flush_interval_s", 1)
        .start();
    one_connection(&mut pair, &origin);
    wait::for_true("a dropped row", wait::DEFAULT_TIMEOUT, || dropped_rows(&pair) > 0.0);
    pair.server.expect_log("the full disk", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("No space left on device").then_some(())
    });
    let files = fs::read_dir(disk.path()).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["filler"], "no part of a file stays");

    // With room again rows are kept.
    fs::remove_file(disk.filler()).unwrap();
    pair.start_client_again();
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    one_connection(&mut pair, &origin);
    wait::for_true("a file", wait::DEFAULT_TIMEOUT, || {
        fs::read_dir(disk.path()).unwrap().count() > 0
    });
}
