//! A flow as the commands `flows` and `top` show it.

use millrace_config::Protocol;
use millrace_ops::terminal_text::printable;
use millrace_tunnel::flow_info::{FlowInfo, FlowState};

use crate::units;

/// Text of each column.
#[derive(Clone, Debug)]
pub(crate) struct FlowRow {
    pub(crate) client: String,
    /// UDP flows have `/udp` at the end.
    pub(crate) destination: String,
    pub(crate) class: String,
    /// With what selects it beside the configuration, in parentheses.
    pub(crate) algorithm: String,
    pub(crate) rate_mbps: String,
    pub(crate) rtt_ms: String,
    pub(crate) loss_percent: String,
    pub(crate) bytes_up: String,
    pub(crate) bytes_down: String,
    pub(crate) age: String,
    pub(crate) state: String,
    pub(crate) connection: String,
}

impl FlowRow {
    pub(crate) fn new(flow: &FlowInfo) -> Self {
        let protocol = match flow.protocol {
            Protocol::Tcp => "",
            Protocol::Udp => "/udp",
        };
        let figure = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        Self {
            client: printable(&flow.client),
            destination: format!("{}{protocol}", printable(&flow.destination)),
            class: flow.class.to_string(),
            algorithm: algorithm(flow),
            rate_mbps: format!("{:.2}", flow.rate_mbps),
            rtt_ms: figure(flow.rtt_ms),
            loss_percent: figure(flow.loss.map(|loss| loss * 100.0)),
            bytes_up: units::bytes(flow.bytes_up),
            bytes_down: units::bytes(flow.bytes_down),
            age: units::duration(flow.age_s),
            state: state(flow.state).to_owned(),
            connection: flow.connection.as_deref().map_or_else(|| "-".to_owned(), printable),
        }
    }
}

fn algorithm(flow: &FlowInfo) -> String {
    let name = printable(flow.algorithm.as_deref().unwrap_or("-"));
    match (flow.bypassed, flow.pinned, flow.managed) {
        (true, ..) => "(bypassed)".to_owned(),
        (_, true, _) => format!("{name} (pinned)"),
        (.., true) => format!("{name} (mcc)"),
        _ => name,
    }
}

fn state(state: FlowState) -> &'static str {
    match state {
        FlowState::Connecting => "connecting",
        FlowState::Open => "open",
        FlowState::ClientEnded => "client ended",
        FlowState::DestinationEnded => "destination ended",
        FlowState::Closing => "closing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::test_listener::flow;

    #[test]
    fn the_algorithm_says_what_selects_it() {
        let with = |change: fn(&mut FlowInfo)| {
            let mut flow = flow(1, 1.0);
            change(&mut flow);
            FlowRow::new(&flow).algorithm
        };
        assert_eq!(with(|_| {}), "vivace-latency");
        assert_eq!(with(|it| it.managed = true), "vivace-latency (mcc)");
        assert_eq!(with(|it| (it.managed, it.pinned) = (true, true)), "vivace-latency (pinned)");
        assert_eq!(with(|it| (it.bypassed, it.algorithm) = (true, None)), "(bypassed)");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_names_control_no_terminal() {
        let mut flow = flow(1, 1.0);
        (flow.rtt_ms, flow.loss, flow.connection) = (None, None, None);
        flow.protocol = Protocol::Udp;
        flow.destination = "a\u{1b}[2J:80".to_owned();
        let row = FlowRow::new(&flow);
        assert_eq!((row.rtt_ms.as_str(), row.loss_percent.as_str()), ("-", "-"));
        assert_eq!((row.connection.as_str(), row.destination.as_str()), ("-", "a?[2J:80/udp"));
    }
}
