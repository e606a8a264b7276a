//! Cables: pairs of virtual Ethernet interfaces between namespaces, and TAP devices, with a file as the other
//! end.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::netns::Namespace;
use crate::process::{ip, output_of};

/// One end of a cable.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Where it is.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub name: &'a str,
    /// Its address with prefix length, or none (the emulator's ends have none).
    pub address: Option<&'a str>,
}

/// Joins two namespaces. Both ends are up when this returns; they go with either namespace.
///
/// # Errors
/// When `ip` fails.
pub fn join(left: VethEnd<'_>, right: VethEnd<'_>) -> Result<()> {
    ip(&format!(
        "link add {} netns {} type veth peer name {} netns {}",
        left.name,
        left.namespace.name(),
        right.name,
        right.namespace.name()
    ))?;
    set_up(left)?;
    set_up(right)
}

/// Makes a TAP device, which is there until its namespace goes. It is up when this returns, and
/// carries frames while a process has it open.
///
/// # Errors
/// When `ip` fails.
pub fn tap(end: VethEnd<'_>) -> Result<()> {
    /// Frames that may wait to be read: a quarter of a second at 500 Mbit/s.
    const QUEUE_FRAMES: u32 = 10_000;
    end.namespace.ip(&format!("tuntap add dev {} mode tap", end.name))?;
    end.namespace.ip(&format!("link set {} txqueuelen {QUEUE_FRAMES}", end.name))?;
    set_up(end)
}

fn set_up(end: VethEnd<'_>) -> Result<()> {
    if let Some(address) = end.address {
        end.namespace.ip(&format!("addr add {address} dev {}", end.name))?;
    }
    end.namespace.ip(&format!("link set {} up", end.name))?;
    Ok(())
}

/// Turns off segmentation, aggregation and checksum offloads: what leaves this interface are the
/// packets that a wire would carry, none above the MTU, each with its checksum filled in.
///
/// # Errors
/// When `ethtool` fails or an offload stays on.
pub fn offloads_off(end: VethEnd<'_>) -> Result<()> {
    let ethtool = |arguments: &[&str]| {
        let mut command: Command = end.namespace.command("ethtool");
        output_of(command.args(arguments))
    };
    let off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off", "sg", "off"];
    ethtool(&[&["-K", end.name], off.as_slice()].concat())?;
    let features = ethtool(&["-k", end.name]).context("offloads")?;
    for feature in [
        "tcp-segmentation-offload:",
        "generic-segmentation-offload:",
        "generic-receive-offload:",
        "tx-checksumming:",
        "tx-udp-segmentation:",
    ] {
        let line = features.lines().find(|line| line.trim_start().starts_with(feature));
        if !line.is_some_and(|line| line.contains(" off")) {
            bail!("{} of {}: {feature} is still on", end.name, end.namespace.name());
        }
    }
    Ok(())
}

/// Receives from this end in kernel threads of its own (threaded NAPI, Linux 5.12), at this real-time priority
/// where that is allowed. Otherwise the receiving host's network stack runs inside the sender's call at the other
/// end. Frames that wait together are merged where the protocol allows it (GRO), as on a network card.
///
/// # Errors
/// When the kernel can't.
pub fn receive_apart(end: VethEnd<'_>, fifo_priority: i32) -> Result<()> {
    let before = napi_threads(end.name)?;
    output_of(end.namespace.command("ethtool").args(["-K", end.name, "gro", "on"]))?;
    // `ip netns exec` shows the namespace's own /sys.
    let switch = format!("echo 1 > /sys/class/net/{}/threaded", end.name);
    output_of(end.namespace.command("sh").args(["-c", &switch]))
        .context("links this fast need threaded NAPI (Linux 5.12)")?;
    for thread in napi_threads(end.name)?.difference(&before) {
        let param = libc::sched_param { sched_priority: fifo_priority };
        // Without the privilege (CAP_SYS_NICE) the link's own thread has an ordinary priority as well; and
        // another lab's thread may have ended since.
        // SAFETY: `param` outlives the call.
        unsafe { libc::sched_setscheduler(*thread, libc::SCHED_FIFO, &param) };
    }
    Ok(())
}

/// The kernel's threads that receive from interfaces of this name, in all namespaces.
fn napi_threads(device: &str) -> Result<BTreeSet<libc::pid_t>> {
    let start = format!("napi/{device}-");
    let mut threads = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has ended meanwhile has no name.
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with(&start) {
            threads.insert(pid);
        }
    }
    Ok(threads)
}

/// Makes two ends know each other's hardware address for good, so that no address resolution
/// crosses (and is lost by) the link between them.
///
/// # Errors
/// When `ip` fails or shows no hardware address.
pub fn acquaint(left: VethEnd<'_>, right: VethEnd<'_>) -> Result<()> {
    for (from, to) in [(left, right), (right, left)] {
        let shown = to.namespace.ip(&format!("-br link show dev {}", to.name))?;
        let mac = shown.split_ascii_whitespace().nth(2).context("ip shows no hardware address")?;
        let address = to.address.context("an end without address can't be a neighbour")?;
        let address = address.split('/').next().unwrap_or(address);
        from.namespace
            .ip(&format!("neigh replace {address} lladdr {mac} dev {} nud permanent", from.name))?;
    }
    Ok(())
}
