//! Whether this host translates the source addresses of what it forwards (masquerade, SNAT).
//!
//! An RTSP origin sends RTP over UDP to the peer address of its RTSP connection. Where that address has been translated, no
//! entry of connection tracking leads the media on to the player.

use std::fs;

use serde_json::Value;

use crate::host_command::output;

/// Targets of iptables that translate source addresses (iptables-extensions(8)).
const TARGETS: [&str; 2] = ["MASQUERADE", "SNAT"];
/// The tables of iptables-legacy, which nft does not list, and the program that prints them.
const LEGACY_TABLES: [(&str, &str); 2] = [
    ("/proc/net/ip_tables_names", "iptables-legacy-save"),
    ("/proc/net/ip6_tables_names", "ip6tables-legacy-save"),
];

/// The chains with rules that translate source addresses, as `ip nat postrouting`.
///
/// # Errors
/// The reason for which they can't be read.
pub(crate) fn chains() -> Result<Vec<String>, String> {
    let json = output("nft", &["-j", "list", "ruleset"])?;
    let mut found = of_nftables(&json).map_err(|error| format!("nft: {error}"))?;
    for (tables, save) in LEGACY_TABLES {
        // Without the kernel's module there is no such file.
        let names = fs::read_to_string(tables).unwrap_or_default();
        if names.lines().any(|name| name == "nat") {
            found.extend(of_iptables(save, &output(save, &["-t", "nat"])?));
        }
    }
    Ok(found)
}

/// Of `nft -j list ruleset` (libnftables-json(5)), which lists the rules of iptables-nft too.
fn of_nftables(json: &str) -> serde_json::Result<Vec<String>> {
    let list: Value = serde_json::from_str(json)?;
    let mut found = Vec::new();
    for item in list["nftables"].as_array().into_iter().flatten() {
        let rule = &item["rule"];
        if !rule["expr"].as_array().into_iter().flatten().any(translates_source) {
            continue;
        }
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let chain = format!("{} {} {}", text("family"), text("table"), text("chain"));
        if !found.contains(&chain) {
            found.push(chain);
        }
    }
    Ok(found)
}

fn translates_source(expression: &Value) -> bool {
    let target = &expression["xt"];
    let is_target = |name: &str| TARGETS.contains(&name);
    expression.get("masquerade").is_some()
        || expression.get("snat").is_some()
        || target["type"] == "target" && target["name"].as_str().is_some_and(is_target)
}

/// Of `iptables-save -t nat`.
fn of_iptables(program: &str, rules: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rule in rules.lines() {
        let words: Vec<_> = rule.split_ascii_whitespace().collect();
        let (["-A", chain, ..], Some(target)) =
            (&words[..], words.iter().skip_while(|it| **it != "-j").nth(1))
        else {
            continue;
        };
        let chain = format!("{chain} of {program} -t nat");
        if TARGETS.contains(target) && !found.contains(&chain) {
            found.push(chain);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_translate_sources_are_found_as_nft_lists_them() {
        let json = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "ip", "table": "nat", "name": "out", "handle": 1, "type": "nat",
                "hook": "postrouting", "prio": 100, "policy": "accept"}},
            {"rule": {"family": "ip", "table": "nat", "chain": "out", "handle": 2, "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "wan"}},
                {"masquerade": null}]}},
            {"rule": {"family": "ip", "table": "nat", "chain": "out", "handle": 3, "expr": [
                {"snat": {"addr": "198.18.2.1"}}]}},
            {"rule": {"family": "ip6", "table": "nat", "chain": "random", "handle": 3, "expr": [
                {"masquerade": {"flags": "random"}}]}},
            {"rule": {"family": "ip", "table": "nat", "chain": "POSTROUTING", "handle": 5, "expr": [
                {"counter": {"packets": 0, "bytes": 0}},
                {"xt": {"type": "target", "name": "MASQUERADE"}}]}},
            {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": 6, "expr": [
                {"xt": {"type": "target", "name": "TCPMSS"}}]}},
            {"rule": {"family": "ip", "table": "nat", "chain": "in", "handle": 4, "expr": [
                {"dnat": {"addr": "198.18.3.2"}}]}},
            {"rule": {"family": "inet", "table": "millrace_tproxy", "chain": "intercept", "expr": [
                {"tproxy": {"family": "ip", "addr": "127.0.0.1", "port": 15001}},
                {"accept": null}]}}]}"#;
        let found = of_nftables(json).unwrap();
        assert_eq!(found, ["ip nat out", "ip6 nat random", "ip nat POSTROUTING"]);
        assert_eq!(of_nftables(r#"{"nftables": []}"#).unwrap(), [""; 0]);
        assert!(of_nftables("nonsense").is_err());
    }

    #[test]
    fn rules_of_iptables_legacy_are_found() {
        let rules = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
                     -A PREROUTING -p tcp -j DNAT --to-destination 198.18.3.2\n\
                     -A POSTROUTING -o wan -j MASQUERADE\n\
                     -A POSTROUTING -o wan -j SNAT --to-source 198.18.2.1\nCOMMIT\n";
        let found = of_iptables("iptables-legacy-save", rules);
        assert_eq!(found, ["POSTROUTING of iptables-legacy-save -t nat"]);
        assert_eq!(of_iptables("iptables-legacy-save", "*nat\nCOMMIT\n"), [""; 0]);
    }
}
