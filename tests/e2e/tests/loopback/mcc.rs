//! Rules select the congestion control of connections that run (`mcc`).

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use socket2::Socket;

/// By class, and for bulk as `bulk` says.
fn rules(bulk: &str) -> String {
    format!(
        "function select(flow)
           if flow.class == 'dash' then return 'vegas', 'a player' end
           if flow.delivered_bytes > 1000000 then return {bulk} end
         end"
    )
}

fn write(file: &Path, bulk: &str) {
    fs::write(file, rules(bulk)).unwrap();
}

/// A server that selects with the rules in `file`, quick to change its mind.
fn selecting(file: &Path, origin: &Origin) -> PairBuilder {
    quick(origin).server("mcc.rules", format!("{:?}", file.display().to_string()))
}

/// The same with the rules that are built in.
fn quick(origin: &Origin) -> PairBuilder {
    Pair::builder()
        .static_destination(origin.address())
        .server("tunnel.congestion_control", "\"mcc\"")
        .server("mcc.initial_algorithm", "\"cubic\"")
        .server("mcc.min_dwell_s", "0.1")
        .server("mcc.hold_down_s", "0.05")
        .server("mcc.evaluation_interval_s", "0.02")
        .both("runtime.workers", 1)
}

/// The only flow as the server shows it.
fn shown(pair: &Pair) -> Value {
    admin::flows(pair.addresses.server_admin)["flows"][0].clone()
}

fn open(pair: &Pair, listener: usize, origin: &Origin) -> Socket {
    let mut flow = pair.listeners[listener].open(&origin.address().to_string()).unwrap();
    flow.write_all(b"x").unwrap();
    flow.read_exact(&mut [0]).unwrap();
    flow
}

/// So many bytes there and back, the same ones.
fn echo(flow: &mut Socket, bytes: usize) {
    let sent = millrace_e2e::data::pattern(9, bytes);
    let mut received = vec![0; sent.len()];
    let mut reader = flow.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| reader.read_exact(&mut received).unwrap());
        flow.write_all(&sent).unwrap();
    });
    assert!(received == sent, "other bytes came back");
}

/// Carries bytes until the rules have had their way.
fn becomes(pair: &Pair, flow: &mut Socket, algorithm: &str) -> Value {
    wait::for_true(&format!("{algorithm} drives it"), DEFAULT_TIMEOUT, || {
        echo(flow, 400_000);
        shown(pair)["algorithm"] == algorithm
    });
    shown(pair)
}

fn count(pair: &Pair, name: &str) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum(name, &[])
}

#[test]
fn rules_select_and_are_replaced_while_flows_run() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.lua");
    write(&file, "'vivace-latency', 'much to do'");
    let pair = selecting(&file, &origin).start();
    let at = pair.addresses.server_admin;

    let mut flow = open(&pair, 1, &origin);
    let first = shown(&pair);
    assert_eq!(
        (&first["algorithm"], &first["managed"], &first["switches"]),
        (&"cubic".into(), &true.into(), &0.into()),
        "{first}"
    );
    let now = becomes(&pair, &mut flow, "vivace-latency");
    assert!(now["switches"] == 1 && now["since_switch_s"].as_f64() > Some(0.0), "{now}");
    assert!(count(&pair, "millrace_mcc_switches_total") >= 1.0);
    assert_eq!(count(&pair, "millrace_mcc_connections"), 1.0);

    // Which rule that was, and of what.
    let connection = now["connection"].as_str().unwrap();
    let path = format!("/congestion_control/{connection}");
    let (status, explained) = admin::get(at, &path).unwrap();
    let explained: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(status, 200);
    assert_eq!(explained["choice"]["reason"], "much to do", "{explained}");
    assert!(explained["input"]["delivered_bytes"].as_f64() > Some(1e6), "{explained}");
    assert_eq!(explained["input"]["class"], "bulk", "{explained}");

    // Others.
    write(&file, "'copa'");
    pair.server.signal(Signal::SIGHUP);
    becomes(&pair, &mut flow, "copa");

    // Such as can't be loaded are refused, and change nothing.
    fs::write(&file, "function select(").unwrap();
    let refused = || Metrics::fetch(at).sum("millrace_reloads_total", &[("result", "refused")]);
    pair.server.signal(Signal::SIGHUP);
    wait::for_true("they are refused", DEFAULT_TIMEOUT, || refused() == 1.0);
    wait::for_true("it says what is wrong", DEFAULT_TIMEOUT, || {
        pair.server.log_text().contains("mcc.rules")
    });
    becomes(&pair, &mut flow, "copa");

    // Such as fail leave it as it is.
    write(&file, "flow.none.at_all");
    pair.server.signal(Signal::SIGHUP);
    wait::for_true("they fail", DEFAULT_TIMEOUT, || {
        echo(&mut flow, 100_000);
        count(&pair, "millrace_mcc_evaluation_errors_total") > 0.0
    });
    becomes(&pair, &mut flow, "copa");
    let (_, explained) = admin::get(at, &path).unwrap();
    assert!(explained.contains("rules.lua"), "{explained}");
}

#[test]
fn by_hand_goes_before_the_rules() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.lua");
    write(&file, "'vivace-latency'");
    let pair = selecting(&file, &origin).start();
    let mut flow = open(&pair, 1, &origin);
    let now = becomes(&pair, &mut flow, "vivace-latency");
    let path = format!("/congestion_control/{}", now["connection"].as_str().unwrap());
    let turn = |method: &str, rest: &str| {
        let answer = admin::request(pair.addresses.server_admin, method, &format!("{path}{rest}"));
        assert_eq!(answer.unwrap().0, 200);
    };
    turn("PUT", "?algorithm=reno");
    let orders = count(&pair, "millrace_mcc_switch_requests_total");
    for _ in 0..10 {
        echo(&mut flow, 400_000);
    }
    let now = shown(&pair);
    assert_eq!((&now["algorithm"], &now["pinned"]), (&"reno".into(), &true.into()));
    // The Selector has been told, and leaves it alone.
    assert_eq!(count(&pair, "millrace_mcc_switch_requests_total"), orders);
    turn("DELETE", "");
    becomes(&pair, &mut flow, "vivace-latency");
}

/// A flow asks for it by name; the rules know its class, and before anything of the path.
#[test]
fn a_flow_may_ask_to_be_selected() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.lua");
    write(&file, "'copa'");
    let pair = selecting(&file, &origin)
        .server("tunnel.congestion_control", "\"reno\"")
        .listener(0, "congestion_control = \"mcc\"\nclass = \"dash\"")
        .start();
    let mut flow = open(&pair, 0, &origin);
    let now = becomes(&pair, &mut flow, "vegas");
    assert_eq!(now["class"], "dash", "{now}");
    drop(flow);
    wait::for_true("the flow is over", DEFAULT_TIMEOUT, || shown(&pair).is_null());
    let flow = open(&pair, 1, &origin);
    let now = shown(&pair);
    assert_eq!((&now["algorithm"], &now["managed"]), (&"reno".into(), &false.into()), "{now}");
    drop(flow);
}

const SEGMENT_BYTES: usize = 100_000;

/// Answers each request with a segment.
fn serve_segments(mut stream: Socket) {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line == "\r\n" {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {SEGMENT_BYTES}\r\n\r\n");
            let answer = [answer.as_bytes(), &[7; SEGMENT_BYTES]].concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// A player that asks for segments and says how much it has in its buffer (CTA-5004), until `algorithm` drives.
fn plays_until(pair: &Pair, player: &mut Socket, buffer_s: f64, algorithm: &str) {
    let cmcd = format!("bl%3D{}%2Cbr%3D1570%2Cot%3Dv%2Csid%3D%22a%22", 1000.0 * buffer_s);
    let request = format!("GET /1.m4s?CMCD={cmcd} HTTP/1.1\r\nHost: origin\r\n\r\n");
    wait::for_true(&format!("{algorithm} drives it with {buffer_s} s"), DEFAULT_TIMEOUT, || {
        player.write_all(request.as_bytes()).unwrap();
        let mut answer = BufReader::new(player.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(answer.read_line(&mut head).unwrap() > 0, "{head}");
        }
        answer.read_exact(&mut vec![0; SEGMENT_BYTES]).unwrap();
        let now = shown(pair);
        now["player"]["buffer_s"] == buffer_s && now["algorithm"] == algorithm
    });
}

/// One that has little in its buffer is chosen for as a stream, by the rules that are built in.
#[test]
fn what_a_player_says_of_its_buffer_changes_what_the_built_in_rules_choose() {
    let origin = Origin::start(serve_segments);
    let pair = quick(&origin).listener(0, "class = \"dash\"").start();
    let mut player = pair.listeners[0].open(&origin.address().to_string()).unwrap();
    for (buffer_s, algorithm) in [(14.0, "bbr"), (3.0, "vivace-latency"), (14.0, "bbr")] {
        plays_until(&pair, &mut player, buffer_s, algorithm);
    }
}

/// Its news find the pipe full, and that is all: not one byte waits for it.
#[test]
fn a_selector_that_stands_still_stops_nobody() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.lua");
    write(&file, "'vivace-latency'");
    let pair = selecting(&file, &origin).start();
    let mut flow = open(&pair, 1, &origin);
    becomes(&pair, &mut flow, "vivace-latency");

    let stopped = StoppedThread::of(pair.server.pid(), "selector-0");
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(5)
        || count(&pair, "millrace_mcc_records_dropped_total") == 0.0
    {
        assert!(began.elapsed() < Duration::from_secs(120), "the pipe is never full");
        let turn = Instant::now();
        echo(&mut flow, 1_000_000);
        slowest = slowest.max(turn.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "1 MB took {slowest:?}");
    let asked = count(&pair, "millrace_mcc_evaluations_total");
    // The admin listener waits for it, but not for ever.
    let connection = shown(&pair)["connection"].as_str().unwrap().to_owned();
    let path = format!("/congestion_control/{connection}");
    let unanswered = admin::get(pair.addresses.server_admin, &path);
    assert_ne!(unanswered.unwrap().0, 200);
    assert_eq!(count(&pair, "millrace_mcc_evaluations_total"), asked, "it does not stand still");

    drop(stopped);
    write(&file, "'copa'");
    pair.server.signal(Signal::SIGHUP);
    becomes(&pair, &mut flow, "copa");
    assert_eq!(count(&pair, "millrace_mcc_restarts_total"), 0.0);
}

/// One thread of a program, as a debugger stops it; the others go on. It goes on too when this is dropped.
struct StoppedThread(Pid);

/// Where the thread's directory of proc(5) is.
fn thread_of(program: Pid, name: &str) -> PathBuf {
    let threads = fs::read_dir(format!("/proc/{program}/task")).unwrap();
    let mut threads = threads.map(|thread| thread.unwrap().path());
    let is_it = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).unwrap().trim() == name;
    threads.find(is_it).unwrap_or_else(|| panic!("no thread {name}"))
}

impl StoppedThread {
    fn of(program: Pid, name: &str) -> Self {
        let thread = thread_of(program, name);
        let thread = Pid::from_raw(thread.file_name().unwrap().to_str().unwrap().parse().unwrap());
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // The program may be gone, after a failure.
        let _ = ptrace::detach(self.0, None);
    }
}

#[test]
fn a_worker_and_its_selector_are_bound_to_one_processor() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.lua");
    write(&file, "'copa'");
    let pair = selecting(&file, &origin).both("runtime.pin_workers", true).start();
    let mut flow = open(&pair, 1, &origin);
    becomes(&pair, &mut flow, "copa");
    let processors = |name| {
        let status = fs::read_to_string(thread_of(pair.server.pid(), name).join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let worker = processors("worker-0");
    assert!(worker.parse::<usize>().is_ok(), "{worker}");
    assert_eq!(processors("selector-0"), worker);
}

/// Of every connection that has had a flow, selected or not; no address in it.
#[test]
fn what_came_of_an_algorithm_is_kept() {
    let origin = Origin::echo();
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("telemetry");
    let mut pair = Pair::builder()
        .static_destination(origin.address())
        .server("tunnel.congestion_control", "\"vivace-latency\"")
        .server("telemetry.dir", format!("{:?}", kept.display().to_string()))
        .start();
    let mut flow = open(&pair, 3, &origin);
    assert_eq!(shown(&pair)["managed"], false);
    echo(&mut flow, 4_000_000);
    drop(flow);
    pair.server.signal(Signal::SIGTERM);
    assert!(pair.server.wait(DEFAULT_TIMEOUT).success());

    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(!holds("127.0.0.1") && !holds(&origin.address().port().to_string()));
    let reader = SerializedFileReader::new(fs::File::open(&files[0]).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row: HashMap<_, _> =
        rows[0].get_column_iter().map(|(name, field)| (name.as_str(), field)).collect();
    let text = |column: &str| match row[column] {
        Field::Str(text) => text.clone(),
        other => panic!("{column}: {other}"),
    };
    assert_eq!((text("class"), text("algorithm")), ("dash".into(), "vivace-latency".into()));
    assert_eq!((text("end"), row["path"]), ("closed".into(), &Field::Null));
    assert!(matches!(row["rate_mbps"], Field::Double(rate) if *rate > 0.0), "{row:?}");
    // This century.
    assert!(matches!(row["ended_ms"], Field::Long(ms) if *ms > 1_700_000_000_000), "{row:?}");
}
