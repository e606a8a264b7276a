//! Export of metrics and of traces of the set-up of flows to an OpenTelemetry Collector, over OTLP/HTTP with Protobuf.
//!
//! - [`metrics`]: the Prometheus registry as OTLP metrics, with the same names and labels.
//! - [`traces`]: finished traces as OTLP spans.
//! - [`Exporter`]: a thread that sends both. Event loops only put finished traces into its bounded queue.
//!
//! The messages and the resource are those of the OpenTelemetry crates. Their exporters and batch processors are not
//! used: they take no metrics from a registry, and do not count what they drop.

mod collector;
mod environment;
mod exporter;
pub mod metrics;
mod resource;
pub mod traces;

pub use exporter::{Exporter, check_environment};
