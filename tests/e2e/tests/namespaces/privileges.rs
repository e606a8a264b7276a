//! Started as root, both programs change to another user once they have bound their addresses.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::Program;
use millrace_e2e::wait;
use nix::sys::signal::Signal;
use nix::unistd::User;

const CAP_NET_ADMIN: u64 = 1 << 12;

/// A field of `/proc/PID/status`, of each thread.
fn of_threads(program: &Program, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let value = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    tasks.map(|task| value(task.unwrap())).collect()
}

fn capabilities(program: &Program, field: &str) -> Vec<u64> {
    let sets = of_threads(program, field);
    sets.iter().map(|set| u64::from_str_radix(set, 16).unwrap()).collect()
}

fn give(path: &Path, user: &User) {
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
}

#[test]
#[ignore = "needs root; run by make test"]
fn no_thread_keeps_more_than_it_needs() {
    let user = User::from_name("nobody").unwrap().expect("Debian has a user nobody");
    let origin = Origin::echo();
    let mut pair =
        Pair::builder().both("runtime.user", "\"nobody\"").client("tunnel.mark", 0x4d52).start();
    for (program, most) in [(&pair.server, 0), (&pair.client, CAP_NET_ADMIN)] {
        let ids = vec![user.uid.to_string(); 4].join(" ");
        assert!(of_threads(program, "Uid").iter().all(|it| *it == ids));
        let ids = vec![user.gid.to_string(); 4].join(" ");
        assert!(of_threads(program, "Gid").iter().all(|it| *it == ids));
        assert!(of_threads(program, "Groups").iter().all(|it| *it == user.gid.to_string()));
        for field in ["CapEff", "CapPrm"] {
            let sets = capabilities(program, field);
            assert!(sets.iter().all(|set| *set == 0 || *set == most), "{field}: {sets:x?}");
            assert!(sets.contains(&most), "{field}: {sets:x?}");
        }
        for field in ["CapInh", "CapAmb"] {
            assert!(capabilities(program, field).iter().all(|set| *set == 0), "{field}");
        }
        // Of the threads that serve; the one that waits for signals came before.
        assert!(capabilities(program, "CapBnd").iter().filter(|set| **set == 0).count() >= 2);
        assert!(of_threads(program, "NoNewPrivs").iter().filter(|it| *it == "1").count() >= 2);
    }
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let mut echoes = || {
        flow.write_all(b"ping").unwrap();
        flow.read_exact(&mut [0; 4]).unwrap();
    };
    echoes();
    // What it may not read it can't take, and says so.
    let reload = |result: &str| {
        pair.server.signal(Signal::SIGHUP);
        wait::for_true(result, wait::DEFAULT_TIMEOUT, || {
            let metrics = Metrics::fetch(pair.addresses.server_admin);
            metrics.sum("millrace_reloads_total", &[("result", result)]) == 1.0
        });
    };
    reload("refused");
    pair.server.expect_log("why", wait::DEFAULT_TIMEOUT, |line| {
        (line.contains("not reloaded") && line.contains("Permission denied")).then_some(())
    });
    give(pair.dir(), &user);
    give(&pair.certificates.server.private_key, &user);
    reload("done");
    echoes();
    fs::set_permissions(pair.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(flow);
    for program in [&mut pair.client, &mut pair.server] {
        program.signal(Signal::SIGTERM);
        assert_eq!(program.wait(wait::DEFAULT_TIMEOUT).code(), Some(0));
    }
}
