//! The thread that exports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use millrace_config::Otlp;
use millrace_tunnel::flow_trace::{FinishedTraces, FlowTraceRecord, FlowTracer};
use millrace_tunnel::metrics::{ExportResult, Metrics};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use tokio::runtime::Runtime;

use crate::collector::{Collector, ExportError};
use crate::environment::{HEADERS_VARIABLE, add_headers};
use crate::metrics::SampleTimes;
use crate::resource::{resource, scope};
use crate::traces::{span_count, unix_nano};
use crate::{metrics, traces};

/// Traces of one request; with all their steps about 1 MB.
const MAX_BATCH_TRACES: usize = 256;
/// How long the end of the process waits for the last exports.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Exports until it is dropped, then what has been recorded so far.
pub struct Exporter {
    tracer: Arc<FlowTracer>,
    is_stopped: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Exporter {
    /// Starts the thread; `None` without `[otlp] endpoint`. `program` names the service, unless the environment does.
    ///
    /// # Errors
    /// The header fields can't be used, or the thread can't be started.
    pub fn start(
        config: Option<&Otlp>,
        program: &'static str,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(config) = config else { return Ok(None) };
        let headers = check_environment(config)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (tracer, traces) =
            FlowTracer::new(config.sampling_ratio, metrics.spans_dropped.clone());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (end, ended) = channel();
        let mut thread = ExportThread {
            collector: Collector::new(config.endpoint.clone(), headers),
            interval: config.interval,
            runtime,
            metrics: metrics.clone(),
            resource: resource(program),
            start_unix_nano: unix_nano(SystemTime::now()),
            is_stopped: is_stopped.clone(),
            batch: Vec::new(),
            has_failed: false,
        };
        std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || {
                thread.run(&traces);
                // A resolver that is silent does not hold the end up.
                thread.runtime.shutdown_background();
                drop(end);
            })
            .context("can't start the thread of [otlp]")?;
        tracing::info!(endpoint = %config.endpoint, "exporting metrics and traces");
        Ok(Some(Self { tracer, is_stopped, ended }))
    }

    /// What begins traces.
    pub fn tracer(&self) -> Arc<FlowTracer> {
        self.tracer.clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // With a full queue the thread sees the flag with its next trace.
        self.tracer.stop();
        // It sends nothing: the wait is for its end.
        let _ = self.ended.recv_timeout(LAST_EXPORT_TIMEOUT);
    }
}

/// The fields that requests have: those of the file, and those of the environment.
///
/// # Errors
/// What is wrong with them, and what would be right.
pub fn check_environment(config: &Otlp) -> anyhow::Result<millrace_config::HeaderFields> {
    let mut headers = config.headers().context("otlp.headers_file")?;
    if let Ok(text) = std::env::var(HEADERS_VARIABLE) {
        add_headers(&mut headers, &text)?;
    }
    Ok(headers)
}

struct ExportThread {
    collector: Collector,
    interval: Duration,
    runtime: Runtime,
    metrics: Arc<Metrics>,
    resource: Resource,
    start_unix_nano: u64,
    is_stopped: Arc<AtomicBool>,
    /// Traces for the next request, at most [`MAX_BATCH_TRACES`].
    batch: Vec<FlowTraceRecord>,
    /// Whether the last export was not accepted: only changes are logged.
    has_failed: bool,
}

impl ExportThread {
    fn run(&mut self, traces: &FinishedTraces) {
        let mut due = Instant::now() + self.interval;
        while !self.is_stopped.load(Ordering::Relaxed) {
            match traces.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Some(record)) => {
                    self.batch.push(*record);
                    if self.batch.len() >= MAX_BATCH_TRACES {
                        self.export_traces();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= due {
                self.export_traces();
                self.export_metrics();
                due = Instant::now() + self.interval;
            }
        }
        self.batch.extend(traces.try_iter().flatten().take(MAX_BATCH_TRACES).map(|it| *it));
        self.export_traces();
        self.export_metrics();
    }

    fn export_metrics(&mut self) {
        let now_unix_nano = unix_nano(SystemTime::now());
        let times = SampleTimes { start_unix_nano: self.start_unix_nano, now_unix_nano };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: metrics::convert(&self.metrics.gather(), times),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        let posted =
            self.runtime.block_on(self.collector.post("/v1/metrics", request.encode_to_vec()));
        self.count(posted.map(drop));
    }

    fn export_traces(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans: batch.iter().flat_map(traces::convert).collect(),
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        let posted =
            self.runtime.block_on(self.collector.post("/v1/traces", request.encode_to_vec()));
        let sent = batch.iter().map(span_count).sum::<u64>();
        let dropped = match &posted {
            Ok(answer) => {
                let answer = ExportTraceServiceResponse::decode(answer.clone()).unwrap_or_default();
                let rejected = answer.partial_success.map_or(0, |it| it.rejected_spans);
                u64::try_from(rejected).unwrap_or_default().min(sent)
            }
            Err(_) => sent,
        };
        self.metrics.spans_dropped.inc_by(dropped);
        self.count(posted.map(drop));
    }

    fn count(&mut self, posted: Result<(), ExportError>) {
        let result = match posted {
            Ok(()) => ExportResult::Accepted,
            Err(_) => ExportResult::NotAccepted,
        };
        self.metrics.exports.of(result).inc();
        match posted {
            Ok(()) if self.has_failed => tracing::info!("the collector accepts exports again"),
            Err(error) if !self.has_failed => {
                let advice = "traces are dropped and metrics sent again; logged once";
                tracing::warn!(%error, advice, "the collector does not accept an export");
                self.has_failed = true;
                return;
            }
            _ => {}
        }
        self.has_failed = result == ExportResult::NotAccepted;
    }
}
