//! What exports say of their source.

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Variables that name the service.
const NAME_VARIABLES: [&str; 2] = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];

/// The resource as the SDK finds it, with `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`. `program` is the service's
/// name if neither has one.
pub(crate) fn resource(program: &'static str) -> Resource {
    let is_named = NAME_VARIABLES.iter().any(|name| {
        std::env::var(name).is_ok_and(|value| {
            *name == NAME_VARIABLES[0] && !value.is_empty() || value.contains("service.name=")
        })
    });
    let mut builder = opentelemetry_sdk::Resource::builder();
    if !is_named {
        builder = builder.with_service_name(program);
    }
    let found = builder.build();
    let attributes = found.iter().map(|(key, value)| KeyValue {
        key: key.as_str().to_owned(),
        value: Some(AnyValue::from(value.clone())),
        ..KeyValue::default()
    });
    Resource { attributes: attributes.collect(), ..Resource::default() }
}

/// The part of the program that exports.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "millrace".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// An attribute with text.
pub(crate) fn text_attribute(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

/// An attribute with any value.
pub(crate) fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
