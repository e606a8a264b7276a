//! Which flows a request for `/flows` wants, and the answer.

use std::num::ParseIntError;

use millrace_tunnel::flow_info::FlowInfo;
use serde::Serialize;

/// As CTA-5004 limits `sid`.
const MAX_SESSION_CHARS: usize = 64;
/// Longest text of a filter: the names of a destination and of a client, and some words.
const MAX_FILTER_BYTES: usize = 512;

/// Answer to `GET /flows`.
#[derive(Debug, Serialize)]
pub(super) struct FlowsResponse {
    /// The flows asked for: in the order of their IDs, or with `order=rate` those with the highest rates first.
    flows: Vec<FlowInfo>,
    /// How many flows match `session` and `filter`, on all pages.
    matching: usize,
    /// How many flows there are.
    active: usize,
    /// Rate of all flows together.
    rate_mbps: f64,
}

/// The order of the flows in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlowOrder {
    #[default]
    Id,
    Rate,
}

/// What a request asks for; each parameter is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowsQuery {
    /// The playback session of the flows.
    session: Option<String>,
    /// Words that a flow must have, in lower case.
    words: Vec<String>,
    order: FlowOrder,
    /// How many flows to pass over.
    offset: usize,
    /// Most flows in the answer.
    limit: usize,
}

impl FlowsQuery {
    /// Reads the query of a request's target, without its question mark.
    ///
    /// # Errors
    /// A parameter that is not known, occurs twice or has a wrong value; in words for the one who asked.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut parsed = Self {
            session: None,
            words: Vec::new(),
            order: FlowOrder::Id,
            offset: 0,
            limit: usize::MAX,
        };
        let mut seen = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if seen.contains(&name) {
                return Err(format!("{name} occurs twice\n"));
            }
            match &*name {
                "session" => parsed.session = Some(session(&value)?),
                "filter" => parsed.words = words(&value)?,
                "order" => parsed.order = order(&value)?,
                "offset" => parsed.offset = number(&name, &value)?,
                "limit" => parsed.limit = number(&name, &value)?,
                _ => return Err(unknown(&name)),
            }
            seen.push(name);
        }
        Ok(parsed)
    }

    /// The answer, from all flows.
    pub(super) fn select(&self, mut flows: Vec<FlowInfo>) -> FlowsResponse {
        let active = flows.len();
        let rate_mbps = flows.iter().fold(0.0, |sum, flow| sum + flow.rate_mbps);
        flows.retain(|flow| self.matches(flow));
        let matching = flows.len();
        match self.order {
            FlowOrder::Id => flows.sort_unstable_by_key(|flow| flow.id),
            FlowOrder::Rate => flows
                .sort_unstable_by(|a, b| b.rate_mbps.total_cmp(&a.rate_mbps).then(a.id.cmp(&b.id))),
        }
        let flows = flows.into_iter().skip(self.offset).take(self.limit).collect();
        FlowsResponse { flows, matching, active, rate_mbps }
    }

    fn matches(&self, flow: &FlowInfo) -> bool {
        let of_session = || flow.player.as_ref().and_then(|player| player.session.as_ref());
        if self.session.is_some() && of_session() != self.session.as_ref() {
            return false;
        }
        self.words.is_empty() || {
            let text = searched_text(flow);
            self.words.iter().all(|word| text.contains(word))
        }
    }
}

/// What a filter looks at: the same as the filter of the live page.
fn searched_text(flow: &FlowInfo) -> String {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let texts = [
        flow.destination.clone(),
        flow.client.clone(),
        flow.class.to_string(),
        flow.protocol.as_str().to_owned(),
        optional(&flow.algorithm),
        flow.state.as_str().to_owned(),
        optional(&flow.connection),
    ];
    texts.join(" ").to_lowercase()
}

fn session(value: &str) -> Result<String, String> {
    // What needs no encoding (RFC 3986, Section 2.3).
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let well_formed = (1..=MAX_SESSION_CHARS).contains(&value.len()) && value.bytes().all(allowed);
    well_formed.then(|| value.to_owned()).ok_or_else(|| {
        format!(
            "session=NAME has up to {MAX_SESSION_CHARS} letters, digits and -._~: the name that the player gives its \
             playback session (sid of CMCD)\n"
        )
    })
}

fn words(value: &str) -> Result<Vec<String>, String> {
    if value.len() > MAX_FILTER_BYTES {
        return Err(format!("filter=WORDS has at most {MAX_FILTER_BYTES} bytes\n"));
    }
    Ok(value.split_whitespace().map(str::to_lowercase).collect())
}

fn order(value: &str) -> Result<FlowOrder, String> {
    match value {
        "id" => Ok(FlowOrder::Id),
        "rate" => Ok(FlowOrder::Rate),
        _ => Err("order is id or rate\n".to_owned()),
    }
}

fn number(name: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|error: ParseIntError| {
        format!("{name}={}: {error}; it is a number of flows\n", value.escape_debug())
    })
}

fn unknown(name: &str) -> String {
    let known = "session=NAME, filter=WORDS, order=id or rate, offset=N and limit=N";
    format!("{} is no parameter; there are {known}\n", name.escape_debug())
}

#[cfg(test)]
mod tests {
    use millrace_tunnel::flow_info::PlayerInfo;

    use super::*;

    fn flow(id: u64, rate_mbps: f64, destination: &str, session: Option<&str>) -> FlowInfo {
        let player =
            session.map(|it| PlayerInfo { session: Some(it.to_owned()), ..PlayerInfo::default() });
        FlowInfo {
            id,
            rate_mbps,
            destination: destination.to_owned(),
            algorithm: Some("vivace-latency".to_owned()),
            player,
            ..FlowInfo::default()
        }
    }

    fn flows() -> Vec<FlowInfo> {
        vec![
            flow(3, 1.0, "198.18.3.2:80", Some("a")),
            flow(1, 2.0, "origin.example:443", Some("b")),
            flow(2, 2.0, "198.18.3.2:80", None),
        ]
    }

    /// IDs in the answer, how many match, and how many there are.
    fn ids(query: &str) -> (Vec<u64>, usize, usize) {
        let answer = FlowsQuery::parse(Some(query)).unwrap().select(flows());
        assert_eq!(answer.rate_mbps, 5.0);
        (answer.flows.iter().map(|it| it.id).collect(), answer.matching, answer.active)
    }

    #[test]
    fn without_parameters_all_flows_are_there() {
        let answer = FlowsQuery::parse(None).unwrap().select(flows());
        assert_eq!((answer.flows.len(), answer.matching, answer.active), (3, 3, 3));
        assert_eq!(ids(""), (vec![1, 2, 3], 3, 3));
    }

    #[test]
    fn pages_follow_each_other_in_either_order() {
        assert_eq!(ids("limit=2"), (vec![1, 2], 3, 3));
        assert_eq!(ids("limit=2&offset=2"), (vec![3], 3, 3));
        assert_eq!(ids("offset=9"), (vec![], 3, 3));
        assert_eq!(ids("limit=0"), (vec![], 3, 3));
        assert_eq!(ids("order=rate&limit=2"), (vec![1, 2], 3, 3));
        assert_eq!(ids("order=rate&limit=2&offset=2"), (vec![3], 3, 3));
    }

    #[test]
    fn each_word_of_a_filter_is_in_a_flow_that_matches() {
        assert_eq!(ids("filter=VIVACE+198.18"), (vec![2, 3], 2, 3));
        assert_eq!(ids("filter=%3A443"), (vec![1], 1, 3));
        assert_eq!(ids("filter=dash+nowhere"), (vec![], 0, 3));
        assert_eq!(ids("session=a&filter=198"), (vec![3], 1, 3));
    }

    #[test]
    fn a_wrong_parameter_is_refused_with_what_would_be_right() {
        let long = format!("filter={}", "a".repeat(MAX_FILTER_BYTES + 1));
        for (query, part) in [
            ("sid=a", "sid is no parameter; there are session=NAME, filter=WORDS"),
            ("limit=-1", "limit=-1: invalid digit"),
            ("offset=", "offset=: cannot parse"),
            ("order=age", "order is id or rate"),
            ("limit=1&limit=2", "limit occurs twice"),
            ("session=%20", "session=NAME has up to 64"),
            (&long, "at most 512 bytes"),
        ] {
            let error = FlowsQuery::parse(Some(query)).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
