//! Export over OTLP: metrics and the traces of flows reach a collector, and a dead one costs flows nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::{Blackhole, Origin};
use millrace_e2e::pair::Pair;
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::{tcp, wait};
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

const EXPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// A request as a collector gets it.
struct ExportRequest {
    path: String,
    head: String,
    body: Vec<u8>,
}

/// A collector that takes everything.
struct TestCollector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ExportRequest>>>,
}

impl TestCollector {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = serve(&stream) {
                    received.lock().unwrap().push(request);
                }
            }
        });
        Self { address, requests }
    }

    fn endpoint(&self) -> String {
        format!("\"http://{}\"", self.address)
    }

    /// All spans of a program so far.
    fn spans(&self, program: &str) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let traces = requests.iter().filter(|it| it.path == "/v1/traces");
        let traces = traces.map(|it| ExportTraceServiceRequest::decode(&*it.body).unwrap());
        let resources = traces.flat_map(|it| it.resource_spans);
        let own = resources.filter(|it| service(it.resource.as_ref()) == program);
        own.flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }

    /// The newest value of a counter of a program.
    fn counter(&self, program: &str, name: &str) -> Option<f64> {
        let requests = self.requests.lock().unwrap();
        let metrics = requests.iter().filter(|it| it.path == "/v1/metrics");
        let metrics = metrics.map(|it| ExportMetricsServiceRequest::decode(&*it.body).unwrap());
        let resources = metrics.flat_map(|it| it.resource_metrics);
        let own = resources.filter(|it| service(it.resource.as_ref()) == program);
        let families = own.flat_map(|it| it.scope_metrics).flat_map(|it| it.metrics);
        let mut values = families.filter(|it| it.name == name).filter_map(|it| match it.data {
            Some(Data::Sum(sum)) => match sum.data_points[0].value {
                Some(number_data_point::Value::AsDouble(value)) => Some(value),
                _ => None,
            },
            _ => None,
        });
        values.next_back()
    }
}

fn serve(mut stream: &TcpStream) -> Option<ExportRequest> {
    stream.set_read_timeout(Some(EXPORT_TIMEOUT)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some(ExportRequest { path, head, body })
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|it| it.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key}: {other:?}"),
    }
}

fn service(resource: Option<&Resource>) -> String {
    resource.and_then(|it| text(&it.attributes, "service.name")).unwrap_or_default()
}

/// The span of the set-up of a flow to `port`, and the names of the spans below it in their order.
fn set_up(spans: &[Span], port: u16) -> Option<(Span, Vec<String>)> {
    let is_set_up = |it: &&Span| text(&it.attributes, "destination.port") == Some(port.to_string());
    let set_up = spans.iter().find(is_set_up)?.clone();
    let below = spans.iter().filter(|it| it.parent_span_id == set_up.span_id);
    let mut below: Vec<_> = below.filter(|it| it.trace_id == set_up.trace_id).collect();
    below.sort_by_key(|it| it.start_time_unix_nano);
    for span in &below {
        assert!(span.start_time_unix_nano >= set_up.start_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano <= set_up.end_time_unix_nano, "{span:?}");
    }
    let names = below.iter().map(|it| it.name.clone()).collect();
    Some((set_up, names))
}

/// Echoes a few bytes through the tunnel.
fn echo(pair: &Pair, destination: SocketAddr) {
    let mut flow = pair.http().open(&destination.to_string()).unwrap();
    flow.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    flow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[test]
fn metrics_and_spans_of_a_flow_at_both_ends_reach_a_collector() {
    let (collector, origin) = (TestCollector::start(), Origin::echo());
    let refused = tcp::unused(Ipv4Addr::LOCALHOST);
    // The server follows what the client has chosen.
    let pair = Pair::builder()
        .both("otlp.endpoint", collector.endpoint())
        .both("otlp.interval_s", 1)
        .client("otlp.sampling_ratio", 1)
        .server("otlp.sampling_ratio", 0)
        .client_environment("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        .server_environment("OTEL_SERVICE_NAME", "edge")
        .start();
    echo(&pair, origin.address());
    pair.http().open(&refused.to_string()).unwrap_err();
    let port = origin.address().port();
    let both = || {
        let (client, server) = (collector.spans("millrace-client"), collector.spans("edge"));
        let good = (set_up(&client, port)?, set_up(&server, port)?);
        let bad = (set_up(&client, refused.port())?, set_up(&server, refused.port())?);
        Some((good, bad, client))
    };
    let ((client, server), (client_failed, server_failed), spans) =
        wait::until(EXPORT_TIMEOUT, both).expect("the spans of both flows");
    assert_eq!(client.1, ["admission", "accept", "tunnel", "first byte"]);
    assert_eq!(server.1, ["admission", "dial", "first byte"]);
    let is_tunnel = |it: &&Span| it.name == "tunnel" && it.parent_span_id == client.0.span_id;
    let tunnel = spans.iter().find(is_tunnel).unwrap();
    assert_eq!(
        (&server.0.trace_id, &server.0.parent_span_id),
        (&client.0.trace_id, &tunnel.span_id)
    );
    assert_eq!(text(&client.0.attributes, "millrace.class").as_deref(), Some("bulk"));
    for good in [&client.0, &server.0] {
        assert_eq!(text(&good.attributes, "error.type"), None);
    }
    assert_eq!(client_failed.1, ["admission", "accept", "tunnel"]);
    assert_eq!(server_failed.1, ["admission", "dial"]);
    for bad in [&client_failed.0, &server_failed.0] {
        assert_eq!(text(&bad.attributes, "error.type").as_deref(), Some("refused"));
    }
    wait::for_true("the counters of both flows", EXPORT_TIMEOUT, || {
        ["millrace-client", "edge"]
            .iter()
            .all(|it| collector.counter(it, "millrace_flows_opened_total") == Some(2.0))
    });
    let requests = collector.requests.lock().unwrap();
    assert!(requests.iter().any(|it| it.head.contains("authorization: bearer abc")));
}

#[test]
fn set_up_of_udp_flows_is_traced_at_both_ends() {
    let (collector, origin) = (TestCollector::start(), UdpEcho::start());
    // ICMP says that nothing is there.
    let closed = tcp::unused(Ipv4Addr::LOCALHOST);
    let listeners = [origin.address(), closed].map(|to| (to, tcp::unused(Ipv4Addr::LOCALHOST)));
    let mut builder = Pair::builder()
        .allow_udp("127.0.0.1")
        .both("otlp.endpoint", collector.endpoint())
        .both("otlp.interval_s", 1)
        .client("otlp.sampling_ratio", 1);
    for (to, listener) in listeners {
        let body = format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\"");
        builder = builder.listen(&body);
    }
    let _pair = builder.start();
    let clients = listeners.map(|(_, listener)| udp::client(listener));
    for client in &clients {
        client.send(b"hello").unwrap();
    }
    assert_eq!(udp::receive(&clients[0], EXPORT_TIMEOUT).as_deref(), Some(&b"hello"[..]));
    let of_port = |port| {
        let spans = ["millrace-client", "millrace-server"].map(|it| collector.spans(it));
        Some((set_up(&spans[0], port)?, set_up(&spans[1], port)?))
    };
    let found = |port| wait::until(EXPORT_TIMEOUT, || of_port(port)).expect("spans of both ends");
    let error = |span: &Span| text(&span.attributes, "error.type");
    let (client, server) = found(origin.address().port());
    assert_eq!(client.1, ["admission", "tunnel", "first byte"]);
    assert_eq!(server.1, ["admission", "dial", "first byte"]);
    assert_eq!(client.0.trace_id, server.0.trace_id);
    assert_eq!((error(&client.0), error(&server.0)), (None, None));
    let (client, server) = found(closed.port());
    assert_eq!(client.0.trace_id, server.0.trace_id);
    assert_eq!(error(&client.0).as_deref(), Some("peer_reset"));
    assert_eq!(error(&server.0).as_deref(), Some("tcp_reset"));
}

#[test]
fn udp_flow_that_is_refused_at_its_first_reply_has_a_failed_trace() {
    let (collector, udp_origin, origin) =
        (TestCollector::start(), UdpEcho::start(), Origin::echo());
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    let to = udp_origin.address();
    let pair = Pair::builder()
        .allow_udp("127.0.0.1")
        .client("limits.max_flows", 1)
        .client("otlp.endpoint", collector.endpoint())
        .client("otlp.interval_s", 1)
        .client("otlp.sampling_ratio", 1)
        .listen(&format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\""))
        .start();
    let _flow = pair.http().open(&origin.address().to_string()).unwrap();
    udp::client(listener).send(b"hello").unwrap();
    let found = || set_up(&collector.spans("millrace-client"), to.port());
    let (span, _) = wait::until(EXPORT_TIMEOUT, found).expect("a span of the flow");
    assert_eq!(text(&span.attributes, "error.type").as_deref(), Some("overloaded"));
}

#[test]
fn dead_collector_costs_flows_nothing_and_is_counted() {
    let (silent, closed) = (Blackhole::open(), tcp::unused(Ipv4Addr::LOCALHOST));
    let origin = Origin::echo();
    let mut pair = Pair::builder()
        .client("otlp.endpoint", format!("\"http://{closed}\""))
        .server("otlp.endpoint", format!("\"http://{}\"", silent.address()))
        .both("otlp.interval_s", 1)
        .both("otlp.sampling_ratio", 1)
        .start();
    for _ in 0..50 {
        echo(&pair, origin.address());
    }
    let lost = |address| {
        let metrics = Metrics::fetch(address);
        let refused = [("result", "not_accepted")];
        let exports = metrics.sum("millrace_otlp_exports_total", &refused);
        exports > 0.0 && metrics.sum("millrace_otlp_spans_dropped_total", &[]) > 0.0
    };
    for address in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("lost exports are counted", EXPORT_TIMEOUT, || {
            echo(&pair, origin.address());
            lost(address)
        });
    }
    assert_eq!(Metrics::fetch(pair.addresses.client_admin).failed_flows(), 0.0);
    // The end does not wait for the collector either.
    pair.server.signal(Signal::SIGTERM);
    pair.server.wait(Duration::from_secs(8));
}
