//! `millrace-bench profile`: where the CPU time of both proxies goes during bulk flows.
//!
//! `perf` samples by the CPU clock, because virtual machines often have no cycle counter. Each
//! sample counts for the kind of work that its innermost function, or for the kernel also the
//! functions around it, are known for. Inlined functions count for those that they are in.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use millrace_lab::process::{Running, output_of, require, tail};
use serde_json::json;

use crate::arena::{Arena, SERVER};
use crate::data_path::allow_descriptors;
use crate::idle;
use crate::machine::Machine;
use crate::measure::pause;
use crate::options::Options;
use crate::origin::{Origin, UNLIMITED_BYTES};
use crate::report;
use crate::sink::Bulk;
use crate::variant::{BenchVariant, Way};

/// Samples a second and CPU: not a multiple of the timer's rate, so that it isn't in step with it.
const FREQUENCY_HZ: &str = "1999";
/// The share of functions that are listed by name.
const LISTED: usize = 12;

/// `millrace-bench profile`
#[derive(Debug, Args)]
pub struct Profile {
    #[command(flatten)]
    common: Options,
    /// What to look into
    #[arg(long, value_enum, default_value = "millrace")]
    variant: BenchVariant,
    /// Bulk flows at a time; with `--connections per_flow` each has a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    flows: u32,
    /// Where the results go
    #[arg(long, default_value = "target/bench/profile.json")]
    output: PathBuf,
}

/// Parts of all samples of a program.
type ProgramShares = BTreeMap<String, f64>;

/// Runs it, prints the table and writes the file.
///
/// # Errors
/// Without perf, or when the variant doesn't run.
pub fn run(options: &Profile) -> Result<()> {
    require(&[("perf", "linux-perf")])?;
    let machine = Machine::describe();
    let arena = Arena::build()?;
    let origin = Origin::start(&arena.server, SERVER)?;
    let settings = options.common.settings();
    let mut way = Way::start(options.variant, &arena, &origin, &settings)?;
    ensure!(!way.parts.is_empty(), "{} has no program to look into", options.variant.name());
    let flows = options.flows as usize;
    allow_descriptors(flows * 3)?;
    // All handshakes are over before the load begins.
    let mut streams = idle::open(flows, &arena, &way)?;
    for stream in &mut streams {
        stream.write_all(&UNLIMITED_BYTES.to_le_bytes()).context("request")?;
    }
    let bulk = Bulk::start(streams)?;
    pause(options.common.warmup())?;
    let before: u64 = bulk.received().iter().sum();
    let mut recordings = Vec::new();
    for part in &way.parts {
        let data = arena.run.scratch().join(format!("{}.perf", part.role));
        let log = arena.run.scratch().join(format!("{}.perf.log", part.role));
        let mut command = Command::new("perf");
        command.args(["record", "-e", "cpu-clock", "-F", FREQUENCY_HZ, "-g"]);
        command.args(["-p", &part.process.pid().to_string(), "-o"]).arg(&data);
        command.args(["--", "sleep", &options.common.seconds.to_string()]);
        recordings.push((part.role, Running::start("perf", &mut command, &log)?, data, log));
    }
    pause(options.common.duration())?;
    let gbps = (bulk.received().iter().sum::<u64>() - before) as f64 * 8e-9
        / options.common.duration().as_secs_f64();
    let mut kinds = BTreeMap::new();
    let mut functions = BTreeMap::new();
    for (role, recording, data, log) in &mut recordings {
        let ended = millrace_lab::interrupt::wait_for(std::time::Duration::from_secs(20), || {
            recording.ended()
        })?;
        ensure!(ended.is_some_and(|status| status.success()), "perf failed\n{}", tail(log));
        let (by_kind, by_function) = evaluate(data)?;
        kinds.insert(*role, by_kind);
        functions.insert(*role, by_function);
    }
    way.must_run()?;
    bulk.finish()?;
    println!("{flows} flow(s), {gbps:.2} Gbit/s while sampled");
    println!("{}", table(&kinds));
    for (role, shares) in &functions {
        println!("\n{role}:\n{}", top(shares));
    }
    let results = json!({
        "variant": options.variant, "flows": flows, "gbps": gbps, "kinds": kinds, "functions": functions,
        "machine": machine, "options": options.common,
    });
    report::write(&options.output, &results)
}

fn evaluate(data: &Path) -> Result<(ProgramShares, ProgramShares)> {
    let mut command = Command::new("perf");
    command.args(["script", "-F", "ip,sym,dso", "-i"]).arg(data).stderr(Stdio::null());
    let text = output_of(&mut command)?;
    let (mut kinds, mut functions) = (ProgramShares::new(), ProgramShares::new());
    let mut total = 0.0;
    for sample in text.split("\n\n") {
        let frames: Vec<StackFrame<'_>> = sample.lines().filter_map(StackFrame::parse).collect();
        let Some(leaf) = frames.first() else { continue };
        total += 1.0;
        *kinds.entry(kind(&frames).to_owned()).or_default() += 1.0;
        *functions.entry(leaf.symbol.to_owned()).or_default() += 1.0;
    }
    ensure!(total > 0.0, "{}: perf took no samples", data.display());
    for share in kinds.values_mut().chain(functions.values_mut()) {
        *share /= total;
    }
    functions.retain(|_, share| *share >= 0.002);
    Ok((kinds, functions))
}

/// One function on the stack.
#[derive(Debug)]
struct StackFrame<'a> {
    symbol: &'a str,
    kernel: bool,
}

impl<'a> StackFrame<'a> {
    /// `  ffffffff81a0b1c2 tcp_sendmsg ([kernel.kallsyms])`
    fn parse(line: &'a str) -> Option<Self> {
        let (_address, rest) = line.trim_start().split_once(' ')?;
        let (symbol, object) = rest.trim().rsplit_once(" (")?;
        Some(Self { symbol, kernel: object.starts_with("[kernel") || object.contains(".ko") })
    }
}

/// The kind of work of a sample, its innermost function first.
fn kind(frames: &[StackFrame<'_>]) -> &'static str {
    let Some(leaf) = frames.first() else { return "unknown" };
    if leaf.kernel { kernel_kind(frames) } else { user_kind(leaf.symbol) }
}

fn kernel_kind(frames: &[StackFrame<'_>]) -> &'static str {
    let around = |names: &[&str]| {
        frames.iter().any(|frame| names.iter().any(|name| frame.symbol.starts_with(name)))
    };
    let copies = [
        "_copy_to_iter",
        "_copy_from_iter",
        "copy_user",
        "rep_movs",
        "csum_partial_copy",
        "__memcpy",
        "memcpy",
        "simple_copy_to_iter",
        "skb_copy_datagram",
    ];
    let copies = copies.iter().any(|name| frames[0].symbol.starts_with(name));
    let tcp = around(&["tcp_sendmsg", "tcp_recvmsg"]);
    let udp_send = around(&["udp_sendmsg", "udpv6_sendmsg"]);
    let udp_receive = around(&["udp_recvmsg", "udpv6_recvmsg"]);
    if copies && tcp {
        "kernel: copy, TCP"
    } else if copies && (udp_send || udp_receive) {
        "kernel: copy, UDP"
    } else if around(&[
        "asm_exc_page_fault",
        "__x64_sys_madvise",
        "__x64_sys_brk",
        "__x64_sys_mprotect",
    ]) {
        "kernel: page faults and heap"
    } else if tcp {
        "kernel: TCP"
    } else if udp_send {
        "kernel: UDP send, with delivery over the veth"
    } else if udp_receive || around(&["__sys_recvmmsg", "do_recvmmsg"]) {
        "kernel: UDP receive"
    } else if around(&["net_rx_action", "handle_softirqs"]) {
        "kernel: softirq, other"
    } else if around(&["do_epoll_wait", "__x64_sys_epoll", "__x64_sys_timerfd", "ep_"]) {
        "kernel: epoll, timer, sleeping"
    } else {
        "kernel: other"
    }
}

fn user_kind(symbol: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| symbol.contains(part));
    let starts = |parts: &[&str]| parts.iter().any(|part| symbol.starts_with(part));
    let crypto =
        ["aes_", "AES_", "gcm_", "bssl::", "CRYPTO_", "EVP_", "aead_", "vpaes_", "OPENSSL_"];
    if starts(&["__memmove", "__memcpy", "__memset"]) {
        "copies in user space"
    } else if starts(&crypto)
        || has(&["quiche::crypto::", "encrypt_pkt", "decrypt_pkt", "decrypt_hdr"])
    {
        "crypto"
    } else if starts(&[
        "malloc",
        "_int_",
        "cfree",
        "unlink_chunk",
        "sysmalloc",
        "realloc",
        "calloc",
    ]) || has(&["free@", "malloc_consolidate", "systrim", "__rust_alloc"])
    {
        "allocator"
    } else if has(&["clock_gettime", "Timespec", "time::Instant"]) {
        "clock"
    } else if has(&["::recovery::", "millrace_cc::"]) {
        "quiche: loss recovery, congestion control"
    } else if has(&["millrace_"]) {
        "own code"
    } else if has(&["quinn_udp", "mio::"]) || starts(&["__libc_send", "__libc_recv", "epoll_"]) {
        "socket libraries"
    } else if has(&["quiche::"])
        && has(&["send", "encode", "to_bytes", "wire_len", "emit"])
        && !has(&["recv_buf"])
    {
        "quiche: sending"
    } else if has(&["quiche::"]) && has(&["recv", "from_bytes", "parse", "process_frame", "ranges"])
    {
        "quiche: receiving"
    } else if has(&["quiche::", "octets::"]) {
        "quiche: other"
    } else if has(&[
        "btree",
        "hashbrown",
        "BuildHasher",
        "Hasher",
        "intrusive_",
        "vec_deque",
        "smallvec",
    ]) {
        "collections, mostly quiche's"
    } else if has(&["tokio", "futures", "foundations", "crossbeam"]) {
        "async runtime"
    } else {
        "other"
    }
}

fn table(kinds: &BTreeMap<&'static str, ProgramShares>) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    let roles: Vec<&str> = kinds.keys().copied().collect();
    table.set_header([vec!["kind of work"], roles].concat());
    let mut all: Vec<(&String, f64)> = Vec::new();
    for (kind, share) in kinds.values().flatten() {
        match all.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += share,
            None => all.push((kind, *share)),
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (kind, _) in all {
        let mut row = vec![kind.clone()];
        for shares in kinds.values() {
            row.push(format!("{:.1} %", shares.get(kind).copied().unwrap_or_default() * 100.0));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn top(shares: &ProgramShares) -> String {
    let mut sorted: Vec<_> = shares.iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(a.1));
    let line = |(symbol, share): &(&String, &f64)| format!("{:5.1} %  {symbol}", **share * 100.0);
    sorted.iter().take(LISTED).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sample: &str) -> &'static str {
        kind(&sample.lines().filter_map(StackFrame::parse).collect::<Vec<_>>())
    }

    #[test]
    fn a_copy_counts_for_the_protocol_around_it() {
        let sample = "\t ffffffff81 _copy_from_iter ([kernel.kallsyms])\n\
                      \t ffffffff82 udp_sendmsg ([kernel.kallsyms])\n\
                      \t 7f0011 __libc_sendmsg (/usr/lib/libc.so.6)\n";
        assert_eq!(of(sample), "kernel: copy, UDP");
        assert_eq!(of(&sample.replace("udp_", "tcp_")), "kernel: copy, TCP");
        let sample = sample.replace("_copy_from_iter", "fib_table_lookup");
        assert_eq!(of(&sample), "kernel: UDP send, with delivery over the veth");
    }

    #[test]
    fn functions_of_user_space_count_by_name() {
        let cases = [
            ("aes_gcm_enc_update_vaes_avx2", "crypto"),
            ("quiche::crypto::boringssl::PacketKey::seal_with_u64_counter", "crypto"),
            (
                "<quiche::recovery::gcongestion::recovery::GRecovery>::on_ack",
                "quiche: loss recovery, congestion control",
            ),
            ("quiche::Connection<F>::send_single", "quiche: sending"),
            ("quiche::stream::recv_buf::RecvBuf::emit_or_discard", "quiche: receiving"),
            ("millrace_tunnel::event_loop::Core::drive", "own code"),
            ("__memmove_avx_unaligned_erms", "copies in user space"),
        ];
        for (symbol, expected) in cases {
            assert_eq!(user_kind(symbol), expected, "{symbol}");
        }
    }
}
