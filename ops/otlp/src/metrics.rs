//! The families of the Prometheus registry as OTLP metrics.
//!
//! Names and labels stay as they are (OpenTelemetry, Prometheus and OpenMetrics Compatibility: a receiver that translates
//! to Prometheus does not add a second `_total`).

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::Histogram as HistogramData;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    number_data_point,
};
use prometheus::proto::{Histogram, LabelPair, MetricFamily, MetricType};

use crate::resource::text_attribute;

/// When a process began to count, and when it was asked, in nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleTimes {
    /// Start of the process.
    pub start_unix_nano: u64,
    /// Time of the values.
    pub now_unix_nano: u64,
}

/// The families as OTLP metrics, in their order. Summaries and untyped families, which no part of the programs has, are
/// left out.
pub fn convert(families: &[MetricFamily], times: SampleTimes) -> Vec<Metric> {
    families.iter().filter_map(|family| convert_family(family, times)).collect()
}

fn convert_family(family: &MetricFamily, times: SampleTimes) -> Option<Metric> {
    let numbers = |value: fn(&prometheus::proto::Metric) -> f64| -> Vec<NumberDataPoint> {
        let point = |metric| NumberDataPoint {
            attributes: attributes(metric),
            start_time_unix_nano: times.start_unix_nano,
            time_unix_nano: times.now_unix_nano,
            value: Some(number_data_point::Value::AsDouble(value(metric))),
            ..NumberDataPoint::default()
        };
        family.get_metric().iter().map(point).collect()
    };
    let cumulative = AggregationTemporality::Cumulative as i32;
    let data = match family.get_field_type() {
        MetricType::COUNTER => Data::Sum(Sum {
            data_points: numbers(|metric| metric.get_counter().get_value()),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricType::GAUGE => {
            Data::Gauge(Gauge { data_points: numbers(|metric| metric.get_gauge().get_value()) })
        }
        MetricType::HISTOGRAM => {
            let point = |metric: &prometheus::proto::Metric| {
                histogram(metric.get_histogram(), attributes(metric), times)
            };
            Data::Histogram(HistogramData {
                data_points: family.get_metric().iter().map(point).collect(),
                aggregation_temporality: cumulative,
            })
        }
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

fn attributes(metric: &prometheus::proto::Metric) -> Vec<KeyValue> {
    let attribute = |label: &LabelPair| text_attribute(label.name(), label.value());
    metric.get_label().iter().map(attribute).collect()
}

/// Prometheus counts what is below each bound, OTLP what is between two.
fn histogram(
    histogram: &Histogram,
    attributes: Vec<KeyValue>,
    times: SampleTimes,
) -> HistogramDataPoint {
    let count = histogram.get_sample_count();
    let (mut explicit_bounds, mut bucket_counts, mut below) = (Vec::new(), Vec::new(), 0);
    for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
        explicit_bounds.push(bucket.upper_bound());
        bucket_counts.push(bucket.cumulative_count().saturating_sub(below));
        below = bucket.cumulative_count();
    }
    bucket_counts.push(count.saturating_sub(below));
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: times.start_unix_nano,
        time_unix_nano: times.now_unix_nano,
        count,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts,
        explicit_bounds,
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

    use super::*;

    const TIMES: SampleTimes = SampleTimes { start_unix_nano: 5, now_unix_nano: 7 };

    #[test]
    fn families_keep_names_labels_and_values() {
        let registry = Registry::new();
        let counters = IntCounterVec::new(Opts::new("a_total", "A"), &["reason"]).unwrap();
        registry.register(Box::new(counters.clone())).unwrap();
        counters.with_label_values(&["full"]).inc_by(3);
        counters.with_label_values(&["late"]).inc_by(4);
        let gauge = IntGauge::new("b", "B").unwrap();
        gauge.set(-2);
        registry.register(Box::new(gauge)).unwrap();
        let metrics = convert(&registry.gather(), TIMES);
        let names: Vec<_> = metrics.iter().map(|it| (&*it.name, &*it.description)).collect();
        assert_eq!(names, [("a_total", "A"), ("b", "B")]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(sum.is_monotonic);
        assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[1];
        assert_eq!(point.attributes, [text_attribute("reason", "late")]);
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(4.0)));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 7));
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{metrics:?}") };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(-2.0)));
    }

    #[test]
    fn histogram_has_counts_between_bounds() {
        let registry = Registry::new();
        let options = HistogramOpts::new("wait_seconds", "Wait").buckets(vec![0.1, 1.0]);
        let histogram = prometheus::Histogram::with_opts(options).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        for value in [0.05, 0.5, 0.5, 3.0] {
            histogram.observe(value);
        }
        let metrics = convert(&registry.gather(), TIMES);
        let Some(Data::Histogram(data)) = &metrics[0].data else { panic!("{metrics:?}") };
        let point = &data.data_points[0];
        assert_eq!((point.count, point.sum), (4, Some(4.05)));
        assert_eq!(point.explicit_bounds, [0.1, 1.0]);
        assert_eq!(point.bucket_counts, [1, 2, 1]);
    }
}
