//! Algorithms by name, with parameters that only the caller knows to check.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Map;

use crate::{Class, ConfigError, Source};

/// A congestion control algorithm and its parameters.
///
/// Written as a name, `"cubic"`, or as a table, `{ name = "constant", rate_mbps = 10 }`.
#[derive(Clone, Debug, PartialEq)]
pub struct CongestionControl {
    /// A name that the caller's check has accepted.
    pub name: String,
    /// Its parameters, which the caller's check has accepted too.
    pub parameters: Map<String, serde_json::Value>,
}

/// Why there is no such algorithm, or not with these parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlgorithmProblem {
    /// No algorithm has this name; the text says what names there are.
    Name(String),
    /// It has no such parameter, or not with this value.
    Parameter {
        /// The parameter; `None` when one is missing.
        parameter: Option<String>,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// Says whether there is an algorithm as a configuration names it. This crate knows none.
pub type CheckAlgorithm<'a> = &'a dyn Fn(&CongestionControl) -> Result<(), AlgorithmProblem>;

/// As written.
#[derive(Clone, Debug)]
pub(crate) struct RawCongestionControl {
    name: String,
    parameters: Vec<(String, toml::Value)>,
    /// Whether it is a table, in which the name has a place of its own.
    is_table: bool,
}

impl Default for RawCongestionControl {
    fn default() -> Self {
        Self { name: "cubic".to_owned(), parameters: Vec::new(), is_table: false }
    }
}

impl RawCongestionControl {
    /// `key` is where it is in the file.
    pub(crate) fn check(
        self,
        source: &Source,
        key: &str,
        known: CheckAlgorithm<'_>,
    ) -> Result<CongestionControl, ConfigError> {
        let mut parameters = Map::new();
        for (parameter, value) in self.parameters {
            let value = json(value)
                .map_err(|problem| source.error(&format!("{key}.{parameter}"), problem))?;
            parameters.insert(parameter, value);
        }
        let choice = CongestionControl { name: self.name, parameters };
        let Err(problem) = known(&choice) else { return Ok(choice) };
        let name_key = if self.is_table { format!("{key}.name") } else { key.to_owned() };
        Err(match problem {
            AlgorithmProblem::Name(problem) => source.error(&name_key, problem),
            AlgorithmProblem::Parameter { parameter: Some(parameter), problem } => {
                source.error(&format!("{key}.{parameter}"), problem)
            }
            AlgorithmProblem::Parameter { parameter: None, mut problem } => {
                if !self.is_table {
                    let name = &choice.name;
                    problem.push_str(&format!("; write {{ name = {name:?}, ... }}"));
                }
                source.error(&name_key, problem)
            }
        })
    }
}

/// `[tunnel.class.*]`: settings of the flows of a class.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawClasses {
    rtsp: RawClass,
    dash: RawClass,
    bulk: RawClass,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawClass {
    congestion_control: Option<RawCongestionControl>,
}

impl RawClasses {
    pub(crate) fn check(
        self,
        source: &Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<BTreeMap<Class, CongestionControl>, ConfigError> {
        let classes =
            [(Class::Rtsp, self.rtsp), (Class::Dash, self.dash), (Class::Bulk, self.bulk)];
        let mut checked = BTreeMap::new();
        for (class, raw) in classes {
            if let Some(raw) = raw.congestion_control {
                let key = format!("tunnel.class.{class}.congestion_control");
                checked.insert(class, raw.check(source, &key, known)?);
            }
        }
        Ok(checked)
    }
}

/// JSON has neither dates nor non-finite numbers, and no parameter needs them.
fn json(value: toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Float(number) if number.is_finite() => number.into(),
        toml::Value::Float(number) => {
            return Err(format!("{number} is out of range; a parameter is a finite number"));
        }
        toml::Value::Datetime(_) => return Err("no parameter is a date".to_owned()),
        toml::Value::Array(items) => {
            items.into_iter().map(json).collect::<Result<Vec<_>, _>>()?.into()
        }
        toml::Value::Table(table) => {
            let fields = table.into_iter().map(|(key, value)| Ok((key, json(value)?)));
            serde_json::Value::Object(fields.collect::<Result<_, String>>()?)
        }
    })
}

impl<'de> Deserialize<'de> for RawCongestionControl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = RawCongestionControl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a name as \"cubic\", or a table as { name = \"constant\", rate_mbps = 10 }",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(RawCongestionControl { name: name.to_owned(), ..Default::default() })
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let (mut name, mut parameters) = (None, Vec::new());
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "name" => name = Some(map.next_value()?),
                        _ => parameters.push((key, map.next_value()?)),
                    }
                }
                let name = name.ok_or_else(|| de::Error::missing_field("name"))?;
                Ok(RawCongestionControl { name, parameters, is_table: true })
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}
