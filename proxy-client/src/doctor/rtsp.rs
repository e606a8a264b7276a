//! Checks whether RTP over UDP is carried.

use millrace_config::{ClientConfig, FailMode, Interception, Listen};
use millrace_ops::doctor;
use millrace_ops::doctor::Report;

use super::rules::Rules;
use crate::rtsp_check::{self, RtspProblem};
use crate::source_translation;

const CHECK: &str = "RTP over UDP";
const DIRECT_CHECK: &str = "RTP over UDP without the tunnel";

/// Checks settings and ports. Whether the servers follow RTSP is asked with the handshake.
pub fn check(report: &mut Report, config: &ClientConfig) {
    let pairs = config.limits.max_rtsp_port_pairs;
    if pairs == 0 {
        let found =
            "limits.max_rtsp_port_pairs is 0: it is refused, and players use the RTSP connection";
        return report.warn(CHECK, found, "remove the key where players use RTSP over UDP");
    }
    if !may_follow(config) {
        return;
    }
    for RtspProblem { key, problem, remedy } in rtsp_check::check(config) {
        report.warn(CHECK, format!("{key} {problem}"), remedy);
    }
    doctor::rtp_ports(report, pairs);
    if config.listen.iter().any(behind_a_proxy) {
        report.warn(
            CHECK,
            "players behind a listener of mode proxy_protocol get it from this host's address, which the \
             answer to SETUP names (source)",
            "let UDP pass between the players and this host; for players that take it from the origin's \
             address only, intercept port 554 with a tproxy listener of millrace-client",
        );
    }
}

/// RTP over UDP of RTSP connections that the proxy in front of a listener passes directly, as while the tunnel is down.
pub fn check_direct(report: &mut Report, config: &ClientConfig) {
    let mut listeners = config.listen.iter().filter(|it| behind_a_proxy(it)).peekable();
    if listeners.peek().is_none() {
        return;
    }
    if listeners.all(|it| it.fail_mode == FailMode::Open) {
        let found = "it is refused with 461 by this program, and players use the RTSP connection";
        return report.ok(DIRECT_CHECK, found);
    }
    report_translation(report, source_translation::chains());
}

fn report_translation(report: &mut Report, chains: Result<Vec<String>, String>) {
    match chains {
        Ok(chains) if chains.is_empty() => {
            report.ok(DIRECT_CHECK, "no rule of this host translates the addresses of viewers");
        }
        Ok(chains) => report.warn(
            DIRECT_CHECK,
            format!(
                "rules of {} translate source addresses: if they apply to viewers, players whose connections bypass \
                 the tunnel get 200 OK and no media",
                chains.join(" and ")
            ),
            "fail_mode = \"open\" for the listener with its destinations in [[direct.allow]], and in chosen.conf of \
             nginx the value tunnel_only for 554 and 8554 (docs/operate/nginx.md)",
        ),
        Err(error) => report.skip(
            DIRECT_CHECK,
            format!("whether this host translates the addresses of viewers can't be told: {error}"),
            "as root, with Debian's package nftables: nft list ruleset",
        ),
    }
}

/// Whether a listener may carry RTSP connections whose media are followed.
pub(super) fn may_follow(config: &ClientConfig) -> bool {
    let carries_tcp = |it: &Listen| !matches!(it.interception, Interception::Udp { .. });
    config.limits.max_rtsp_port_pairs > 0 && config.listen.iter().any(carries_tcp)
}

/// What players send to an origin's ports reaches this program by a rule of its own.
pub(super) fn delivery(report: &mut Report, rules: &Rules) {
    if rules.delivers_media {
        return report.ok(CHECK, "a rule delivers what players send to an origin's ports");
    }
    report.warn(
        CHECK,
        "no rule delivers what players send to an origin's ports (RTCP): an origin may end such streams",
        "load deploy/nftables/tproxy.nft as it is: nft -f tproxy.nft; its rule begins with \
         `meta l4proto udp socket transparent 1`",
    );
}

fn behind_a_proxy(listen: &Listen) -> bool {
    listen.interception == Interception::ProxyProtocol
}

#[cfg(test)]
mod tests {
    use millrace_ops::doctor::CheckVerdict;

    use super::*;

    #[test]
    fn translation_of_addresses_is_a_warning_that_names_the_rules() {
        let verdict = |chains| {
            let mut report = Report::default();
            report_translation(&mut report, chains);
            let finding = report.findings.remove(0);
            (finding.verdict, finding.found)
        };
        assert_eq!(verdict(Ok(Vec::new())).0, CheckVerdict::Ok);
        let (warning, found) = verdict(Ok(vec!["ip nat out".to_owned()]));
        assert_eq!(warning, CheckVerdict::Warning);
        assert!(found.starts_with("rules of ip nat out translate"), "{found}");
        assert_eq!(verdict(Err("nft: failed".to_owned())).0, CheckVerdict::Skipped);
    }
}
