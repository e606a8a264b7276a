//! Whether RTSP players get RTP over UDP on nginx's direct flows, or an error that they can report.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use millrace_ops::output;

use crate::source_translation;

/// Ports of RTSP (IANA: `rtsp` and `rtsp-alt`).
const RTSP_PORTS: [u16; 2] = [554, 8554];
/// The files of the client edge that decide, beside its `nginx.conf`.
const CHOSEN_FILE: &str = "chosen.conf";
const ADDRESS_FILE: &str = "viewer-address.conf";

/// Writes to standard error why RTP over UDP would not arrive while the tunnel is down, if nginx's `arguments` name the
/// shipped client edge and its files do not prevent that.
pub(crate) fn warn(arguments: &[OsString]) {
    let Some(directory) = configuration_directory(arguments) else { return };
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let ports = fail_open_ports(&read(CHOSEN_FILE));
    if ports.is_empty() {
        return;
    }
    let chains = source_translation::chains();
    if let Some(reason) = problem(&read(ADDRESS_FILE), chains) {
        output::error_line(warning(&ports, &reason, &directory.join(CHOSEN_FILE)));
    }
}

/// The directory of the file that the option `-c` names.
fn configuration_directory(arguments: &[OsString]) -> Option<PathBuf> {
    let option = arguments.iter().position(|argument| argument == "-c")?;
    Path::new(arguments.get(option + 1)?).parent().map(Path::to_owned)
}

/// The ports of RTSP that go direct while the tunnel is down, by the map `$by_port`.
fn fail_open_ports(chosen: &str) -> Vec<u16> {
    let value_of = |key: &str| {
        let lines = chosen.lines().map(|line| line.split('#').next().unwrap_or_default());
        let mut entries =
            lines.filter_map(|line| line.trim().strip_suffix(';')?.split_once(char::is_whitespace));
        entries.find(|(found, _)| *found == key).map(|(_, value)| value.trim())
    };
    let goes_direct = |port: &u16| value_of(&port.to_string()) == Some("tunnel");
    RTSP_PORTS.into_iter().filter(goes_direct).collect()
}

/// What keeps RTP over UDP from players.
fn problem(viewer_address: &str, chains: Result<Vec<String>, String>) -> Option<String> {
    let keeps_address = |line: &str| line.trim_start().starts_with("proxy_bind ");
    if !viewer_address.lines().any(keeps_address) {
        return Some(format!("{ADDRESS_FILE} has no proxy_bind, so that origins see the gateway"));
    }
    match chains {
        Ok(chains) if chains.is_empty() => None,
        Ok(chains) => Some(format!(
            "if they apply to viewers: rules of {} translate source addresses",
            chains.join(" and ")
        )),
        Err(error) => Some(format!(
            "if this gateway translates source addresses, which can't be told ({error})"
        )),
    }
}

fn warning(ports: &[u16], reason: &str, chosen: &Path) -> String {
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!(
        "millrace-client: warning: while the tunnel is down, RTSP players that ask for RTP over UDP get 200 OK and no \
         media: {reason}. Give the ports {} the value tunnel_only in {}, and the listener of millrace-client \
         fail_mode = \"open\" (docs/operate/nginx.md, Gateways that translate addresses)",
        ports.join(" and "),
        chosen.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(file: &str) -> String {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nginx-conf/client-edge");
        fs::read_to_string(directory.join(file)).unwrap()
    }

    #[test]
    fn the_directory_is_that_of_the_option_c() {
        let of = |arguments: &[&str]| {
            configuration_directory(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(of(&["-e", "stderr", "-c", "/etc/a/nginx.conf"]), Some("/etc/a".into()));
        assert_eq!(of(&["-e", "stderr"]), None);
        assert_eq!(of(&["-c"]), None);
    }

    #[test]
    fn ports_of_the_shipped_file_go_direct_until_they_are_for_the_tunnel_only() {
        let chosen = shipped(CHOSEN_FILE);
        assert_eq!(fail_open_ports(&chosen), [554, 8554]);
        let one = chosen.replace("554        tunnel;", "554        tunnel_only; # cameras");
        assert_eq!(fail_open_ports(&one.replace("8554       tunnel;", "8554 direct;")), [0; 0]);
        assert_eq!(fail_open_ports(&one), [8554]);
        assert_eq!(fail_open_ports("# 554 tunnel;\n"), [0; 0]);
    }

    #[test]
    fn translated_and_own_addresses_are_problems() {
        let address = shipped(ADDRESS_FILE);
        assert_eq!(problem(&address, Ok(Vec::new())), None);
        let chain = || Ok(vec!["ip nat out".to_owned()]);
        assert!(problem(&address, chain()).unwrap().contains("rules of ip nat out translate"));
        let unknown = problem(&address, Err("nft: failed".to_owned())).unwrap();
        assert!(unknown.contains("nft: failed"), "{unknown}");
        let without = address.replace("\nproxy_bind", "\n# proxy_bind");
        assert!(problem(&without, Ok(Vec::new())).unwrap().contains("proxy_bind"));
    }
}
