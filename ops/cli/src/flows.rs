//! `flows`: the flows of a running program.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use hyper::Method;
use hyper::body::Bytes;
use millrace_tunnel::flow_info::FlowInfo;
use serde::Deserialize;

use crate::admin::{AdminApi, AdminApiError, AdminArgs, path_segment};
use crate::flow_row::FlowRow;
use crate::output::print;
use crate::program::Program;

/// Arguments of the command `flows`.
#[derive(Args, Clone, Debug)]
pub struct FlowsArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Only the flows of this playback session, by the player's own name for it (sid of CMCD)
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only flows that have each of these words in destination, client, class, protocol, algorithm, state or connection
    #[arg(long, value_name = "WORDS")]
    filter: Option<String>,
    /// At most so many flows, those with the highest rates
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print the JSON of the admin API, which has more values
    #[arg(long)]
    json: bool,
}

impl FlowsArgs {
    /// The query of the request, with its question mark.
    fn query(&self) -> String {
        // Programs before this one know `session` only.
        let order = self.limit.map(|_| "rate".to_owned());
        let mut query = String::new();
        let limit = self.limit.map(|it| it.to_string());
        let parameters = [
            ("session", &self.session),
            ("filter", &self.filter),
            ("order", &order),
            ("limit", &limit),
        ];
        for (name, value) in parameters {
            if let Some(value) = value {
                query.push(if query.is_empty() { '?' } else { '&' });
                query.push_str(&format!("{name}={}", path_segment(value)));
            }
        }
        query
    }
}

#[derive(Deserialize)]
struct FlowList {
    flows: Vec<FlowInfo>,
}

/// Prints the flows, those with the highest rate first.
///
/// # Errors
/// The admin listener did not answer ([`AdminApiError`]).
pub(crate) fn run(arguments: &FlowsArgs, program: Program) -> anyhow::Result<ExitCode> {
    let api = arguments.admin.api(program)?;
    let answer = request(&api, &arguments.query())?;
    let flows = parse(&api, &answer)?;
    match arguments.json {
        true => print(&[&answer[..], b"\n"].concat()),
        false => print(table(&flows).as_bytes()),
    }
}

/// All flows, those with the highest rates first.
pub(crate) fn fetch(api: &AdminApi) -> Result<Vec<FlowInfo>, AdminApiError> {
    parse(api, &request(api, "")?)
}

fn request(api: &AdminApi, query: &str) -> Result<Bytes, AdminApiError> {
    api.request(Method::GET, &format!("/flows{query}"))
}

fn parse(api: &AdminApi, answer: &Bytes) -> Result<Vec<FlowInfo>, AdminApiError> {
    let FlowList { mut flows } = api.parse(answer)?;
    flows.sort_by(|a, b| b.rate_mbps.total_cmp(&a.rate_mbps).then(a.id.cmp(&b.id)));
    Ok(flows)
}

fn table(flows: &[FlowInfo]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "CLIENT",
        "DESTINATION",
        "CLASS",
        "ALGORITHM",
        "MBIT/S",
        "RTT MS",
        "LOSS %",
        "UP",
        "DOWN",
        "AGE",
        "STATE",
        "CONNECTION",
    ]);
    for flow in flows {
        let row = FlowRow::new(flow);
        table.add_row([
            row.client,
            row.destination,
            row.class,
            row.algorithm,
            row.rate_mbps,
            row.rtt_ms,
            row.loss_percent,
            row.bytes_up,
            row.bytes_down,
            row.age,
            row.state,
            row.connection,
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if (4..10).contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::admin::test_listener::{AdminFixture, flow};

    #[test]
    fn the_flow_with_the_highest_rate_is_first() {
        let fixture = AdminFixture::start(vec![flow(1, 0.5), flow(2, 12.25), flow(3, 12.25)]);
        let flows = fetch(&fixture.api(None)).unwrap();
        assert_eq!(flows.iter().map(|it| it.id).collect::<Vec<_>>(), [2, 3, 1]);
        let table = table(&flows);
        let lines: Vec<Vec<_>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 4, "{table}");
        let words = [
            "198.18.1.2:50000",
            "198.18.3.2:80",
            "dash",
            "vivace-latency",
            "12.25",
            "48.2",
            "1.2",
            "1.2",
            "kB",
            "56.7",
            "MB",
            "1m15s",
            "open",
            "0a0b",
        ];
        assert_eq!(lines[1], words, "{table}");
    }

    #[test]
    fn without_flows_there_is_the_header_alone() {
        assert_eq!(table(&[]).lines().count(), 1);
    }

    #[test]
    fn the_admin_api_selects_flows() {
        let fixture = AdminFixture::start(vec![flow(1, 0.5), flow(2, 12.25)]);
        let api = fixture.api(None);
        let of = |arguments: &[&str]| {
            let command = ["flows", "--config", "unused.toml"];
            let arguments = Parsed::parse_from([&command, arguments].concat()).flows;
            request(&api, &arguments.query()).map(|it| parse(&api, &it).unwrap())
        };
        assert_eq!(of(&["--session", "session-2"]).unwrap().len(), 1);
        assert!(of(&["--session", "session-3"]).unwrap().is_empty());
        assert_eq!(of(&["--limit", "1"]).unwrap()[0].id, 2);
        assert_eq!(of(&["--filter", "198.18.3.2:80 dash"]).unwrap().len(), 2);
        assert!(of(&["--filter", "nowhere"]).unwrap().is_empty());
        let error = of(&["--session", "no session"]).unwrap_err().to_string();
        assert!(error.contains("session=NAME"), "{error}");
    }

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        flows: FlowsArgs,
    }
}
