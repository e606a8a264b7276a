//! Checks whether RTP over UDP is carried.

use millrace_config::{ClientConfig, Interception, Listen};
use millrace_ops::doctor;
use millrace_ops::doctor::Report;

use super::rules::Rules;
use crate::rtsp_check::{self, RtspProblem};

const CHECK: &str = "RTP over UDP";

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
