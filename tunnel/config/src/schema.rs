//! JSON Schemas of the configuration files: keys, types, ranges and the defaults that types know.
//!
//! They say what one key may be on its own. Checks that involve several keys are left to [`crate::parse_client`] and
//! [`crate::parse_server`].

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::allow::PortRange;
use crate::client::RawClientConfig;
use crate::common::AdminAddress;
use crate::congestion_control::RawCongestionControl;
use crate::network::Network;
use crate::server::RawServerConfig;
use crate::servers::{RawServer, RawTable};
use crate::value::{BindAddress, Host, HostPort, Int};
use crate::{CollectorUrl, WebOrigin};

/// The schema of a client's file.
pub fn client_schema() -> Value {
    schema_of::<RawClientConfig>("client.toml of millrace-client")
}

/// The schema of a server's file.
pub fn server_schema() -> Value {
    schema_of::<RawServerConfig>("server.toml of millrace-server")
}

fn schema_of<T: JsonSchema>(title: &str) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let mut schema = schema.to_value();
    remove_null(&mut schema);
    schema
}

/// TOML has no null: an optional key is absent.
fn remove_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|it| it != "null");
                if let [single] = &types[..] {
                    let single = single.clone();
                    fields.insert("type".to_owned(), single);
                }
            }
            if let Some(Value::Array(mut any)) = fields.remove("anyOf") {
                any.retain(|it| it["type"] != "null");
                match any.pop() {
                    Some(Value::Object(single)) if any.is_empty() => fields.extend(single),
                    last => {
                        any.extend(last);
                        fields.insert("anyOf".to_owned(), any.into());
                    }
                }
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            fields.values_mut().for_each(remove_null);
        }
        _ => {}
    }
}

impl<const DEFAULT: u64, const MIN: u64, const MAX: u64> JsonSchema for Int<DEFAULT, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Int_{DEFAULT}_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX, "default": DEFAULT })
    }
}

/// Types with a schema that is written here: `TYPE = SCHEMA`.
macro_rules! schemas {
    ($($type:ident = $schema:tt;)*) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

schemas! {
    BindAddress = {
        "type": "string", "title": "IP address and port", "examples": ["127.0.0.1:8080", "[::1]:8080"]
    };
    AdminAddress = {
        "type": "string", "title": "IP address and port, or \"none\"", "examples": ["127.0.0.1:9464", "none"]
    };
    Host = { "type": "string", "title": "DNS name or IP address", "examples": ["edge.example"] };
    HostPort = { "type": "string", "title": "host and port", "examples": ["host:4433", "[::1]:4433"] };
    Network = {
        "type": "string", "title": "network or IP address", "examples": ["198.18.3.0/24", "2001:db8::/32", "198.18.3.2"]
    };
    WebOrigin = {
        "type": "string", "title": "origin of a web page", "examples": ["https://video.example:8443"]
    };
    CollectorUrl = {
        "type": "string", "title": "address of a collector", "examples": ["http://127.0.0.1:4318"]
    };
    PortRange = {
        "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65535, "title": "port" },
            {
                "type": "string", "title": "range of ports", "pattern": "^[0-9]+(-[0-9]+)?$",
                "examples": ["8000-8100"]
            }
        ]
    };
    RawCongestionControl = {
        "anyOf": [
            { "type": "string", "title": "name of an algorithm", "examples": ["cubic"] },
            {
                "type": "object", "title": "table with name and parameters",
                "properties": { "name": { "type": "string" } }, "required": ["name"],
                "additionalProperties": true, "examples": [{ "name": "constant", "rate_mbps": 10 }]
            }
        ]
    };
}

impl JsonSchema for RawServer {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawServer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut table = generator.subschema_for::<RawTable>();
        table.insert("title".to_owned(), "table".into());
        // It is the place in the list, which the type of the value does not know.
        if let Some(Value::Object(priority)) = table.pointer_mut("/properties/priority") {
            priority.remove("default");
        }
        json_schema!({ "anyOf": [generator.subschema_for::<HostPort>(), table] })
    }
}
