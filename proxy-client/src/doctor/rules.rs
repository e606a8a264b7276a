//! Parses the packet filter's rules from `nft -j list ruleset` (libnftables-json(5)).

use millrace_config::Protocol;
use serde_json::{Value, json};

/// A `tproxy` rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TproxyRule {
    /// The protocol of its packets.
    pub protocol: Protocol,
    /// The port that it leads to.
    pub port: u16,
    /// The mark that its packets get.
    pub mark: Option<u32>,
}

/// The parts of the packet filter's rules that interception depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// All `tproxy` rules.
    pub tproxy: Vec<TproxyRule>,
    /// Ports of `redirect` rules.
    pub redirect: Vec<u16>,
    /// Marks that rules match.
    pub marks: Vec<u32>,
    /// Whether a rule delivers UDP to transparent sockets of this host.
    pub delivers_media: bool,
    /// Elements of the shipped sets of client interfaces.
    pub client_interfaces: Vec<String>,
    /// Whether the shipped set of client users has elements.
    pub client_uids: bool,
    /// Whether the shipped set of UDP ports to carry has elements.
    pub carried_udp_ports: bool,
    /// Whether the shipped set of UDP ports to reject has elements.
    pub rejected_udp_ports: bool,
}

impl Rules {
    /// Parses the list.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn parse(json: &str) -> serde_json::Result<Self> {
        let list: Value = serde_json::from_str(json)?;
        let mut rules = Self::default();
        for item in list["nftables"].as_array().into_iter().flatten() {
            rules.take_set(&item["set"]);
            if let Some(expressions) = item["rule"]["expr"].as_array() {
                rules.take_rule(expressions);
            }
        }
        Ok(rules)
    }

    fn take_set(&mut self, set: &Value) {
        let ours = set["table"].as_str().is_some_and(|it| it.starts_with("millrace_"));
        let filled = set["elem"].as_array().is_some_and(|elements| !elements.is_empty());
        match set["name"].as_str() {
            Some("client_interfaces") if ours => {
                // An element with a comment or a time-out is an object.
                let name =
                    |it: &Value| it.as_str().or(it["elem"]["val"].as_str()).map(str::to_owned);
                let elements = set["elem"].as_array().into_iter().flatten();
                for name in elements.filter_map(name) {
                    // The tables for TPROXY and REDIRECT may both have it.
                    if !self.client_interfaces.contains(&name) {
                        self.client_interfaces.push(name);
                    }
                }
            }
            Some("client_uids") => self.client_uids |= ours && filled,
            Some("carried_udp_ports") => self.carried_udp_ports |= ours && filled,
            Some("rejected_udp_ports") => self.rejected_udp_ports |= ours && filled,
            _ => {}
        }
    }

    fn take_rule(&mut self, expressions: &[Value]) {
        let is_mark = |value: &Value| value["meta"]["key"] == "mark";
        let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let port = |value: &Value| u16::try_from(value["port"].as_u64()?).ok();
        let given = expressions.iter().map(|it| &it["mangle"]);
        let given = given.filter(|it| is_mark(&it["key"])).find_map(|it| number(&it["value"]));
        let matches = |left: Value, right: Value| {
            let is_it = |it: &Value| it["match"]["left"] == left && it["match"]["right"] == right;
            expressions.iter().any(is_it)
        };
        self.delivers_media |= given.is_some()
            && matches(json!({"meta": {"key": "l4proto"}}), json!("udp"))
            && matches(json!({"socket": {"key": "transparent"}}), json!(1));
        let is_udp = |it: &Value| {
            let left = &it["match"]["left"];
            it["match"]["right"] == "udp" && left["meta"]["key"] == "l4proto"
                || left["payload"]["protocol"] == "udp"
        };
        let protocol = if expressions.iter().any(is_udp) { Protocol::Udp } else { Protocol::Tcp };
        for expression in expressions {
            if is_mark(&expression["match"]["left"]) {
                self.marks.extend(number(&expression["match"]["right"]));
            }
            self.tproxy.extend(port(&expression["tproxy"]).map(|port| TproxyRule {
                protocol,
                port,
                mark: given,
            }));
            self.redirect.extend(port(&expression["redirect"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_rules_are_understood_as_nft_lists_them() {
        let json = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"set": {"family": "inet", "name": "client_interfaces", "table": "millrace_tproxy",
                "type": "ifname", "handle": 3, "elem": ["lan", {"elem": {"val": "lan1", "comment": "x"}}]}},
            {"set": {"family": "inet", "name": "client_uids", "table": "millrace_tproxy",
                "type": "uid", "handle": 4}},
            {"rule": {"table": "millrace_tproxy", "chain": "prerouting", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "udp"}},
                {"match": {"op": "==", "left": {"socket": {"key": "transparent"}}, "right": 1}},
                {"match": {"op": "==", "left": {"socket": {"key": "wildcard"}}, "right": 0}},
                {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 19796}},
                {"accept": null}]}},
            {"rule": {"table": "millrace_tproxy", "chain": "prerouting", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 19794}},
                {"accept": null}]}},
            {"rule": {"table": "millrace_tproxy", "chain": "intercept", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}},
                {"tproxy": {"family": "ip", "addr": "127.0.0.1", "port": 15001}},
                {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 19796}},
                {"accept": null}]}},
            {"set": {"family": "inet", "name": "carried_udp_ports", "table": "millrace_tproxy",
                "type": "inet_service", "handle": 5, "flags": ["interval"]}},
            {"set": {"family": "inet", "name": "rejected_udp_ports", "table": "millrace_tproxy",
                "type": "inet_service", "handle": 6, "flags": ["interval"], "elem": [443]}},
            {"rule": {"table": "millrace_tproxy", "chain": "carry", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "nfproto"}}, "right": "ipv6"}},
                {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "udp"}},
                {"tproxy": {"family": "ip6", "addr": "::1", "port": 15003}},
                {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 19797}},
                {"accept": null}]}},
            {"rule": {"table": "other", "chain": "carry", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "udp",
                    "field": "dport"}}, "right": "@ports"}},
                {"tproxy": {"port": 15004}}]}},
            {"rule": {"table": "millrace_redirect", "chain": "output", "expr": [
                {"redirect": {"port": 15002}}]}}]}"#;
        let expected = Rules {
            tproxy: vec![
                TproxyRule { protocol: Protocol::Tcp, port: 15001, mark: Some(0x4d54) },
                TproxyRule { protocol: Protocol::Udp, port: 15003, mark: Some(0x4d55) },
                TproxyRule { protocol: Protocol::Udp, port: 15004, mark: None },
            ],
            redirect: vec![15002],
            marks: vec![0x4d52],
            delivers_media: true,
            client_interfaces: vec!["lan".to_owned(), "lan1".to_owned()],
            client_uids: false,
            carried_udp_ports: false,
            rejected_udp_ports: true,
        };
        assert_eq!(Rules::parse(json).unwrap(), expected);
        let without = json.replace("\"transparent\"", "\"wildcard\"");
        assert!(!Rules::parse(&without).unwrap().delivers_media);
        assert_eq!(Rules::parse(r#"{"nftables": []}"#).unwrap(), Rules::default());
        assert!(Rules::parse("nonsense").is_err());
    }
}
