//! The configuration files: their JSON Schemas, with descriptions and defaults from the examples, and a page of each.

use anyhow::{Context, Result, bail, ensure};
use millrace_config::{client_schema, server_schema};
use serde_json::{Map, Value, json};

use crate::example::{Descriptions, descriptions};
use crate::markdown::{code, escape, head, with_links};

/// Both forms of the reference of one file.
pub(crate) struct ConfigurationReference {
    pub(crate) schema: String,
    pub(crate) page: String,
}

pub(crate) fn client() -> Result<ConfigurationReference> {
    let example = include_str!("../../../proxy-client/client.example.toml");
    reference(client_schema(), "client", example)
}

pub(crate) fn server() -> Result<ConfigurationReference> {
    let example = include_str!("../../../proxy-server/server.example.toml");
    reference(server_schema(), "server", example)
}

/// The table of classes: those that the example does not show are described like the one that it shows.
const CLASSES: &str = "tunnel.class";
const SHOWN_CLASS: &str = "tunnel.class.dash";

fn reference(mut schema: Value, side: &str, example: &str) -> Result<ConfigurationReference> {
    let values: Value = toml::from_str(example).context("the example")?;
    let mut described = descriptions(example);
    for class in ["", ".rtsp", ".bulk", ".dash"] {
        let text = described.get(SHOWN_CLASS).cloned().context(SHOWN_CLASS)?;
        for key in ["", ".congestion_control"] {
            described.entry(format!("{CLASSES}{class}{key}")).or_insert_with(|| text.clone());
        }
    }
    let mut missing = Vec::new();
    annotate(&mut schema, "", Some(&values), &described, &mut missing)?;
    ensure!(missing.is_empty(), "the example has no comment about {}", missing.join(", "));
    let from = format!("`tunnel/config` and the comments in `proxy-{side}/{side}.example.toml`");
    let mut page = head(&format!("Configuration of millrace-{side}"), &from);
    page.push_str(&format!(
        "\nA TOML file, by default `/etc/millrace/{side}.toml`; `millrace-{side} check` checks it. Unknown keys are errors. \
         Relative paths start at the directory of the file. [{side}.schema.json]({side}.schema.json) is its JSON Schema, \
         [{side}.example.toml](../../proxy-{side}/{side}.example.toml) a file with every key and its default. \
         [Reload](../operate/operations.md#reload) says which keys a reload applies.\n"
    ));
    sections(&mut page, &schema, "", "");
    Ok(ConfigurationReference { schema: serde_json::to_string_pretty(&schema)? + "\n", page })
}

/// The keys of a table, also of a list of tables.
fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    let table = if schema["type"] == "array" { &schema["items"] } else { schema };
    table["properties"].as_object()
}

fn is_list(schema: &Value) -> bool {
    schema["type"] == "array"
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Adds to each key its description, and its default as the example has it. In lists the example shows values that are
/// no defaults, so that those of the types stay.
fn annotate(
    schema: &mut Value,
    path: &str,
    values: Option<&Value>,
    described: &Descriptions,
    missing: &mut Vec<String>,
) -> Result<()> {
    let table = if is_list(schema) { &mut schema["items"] } else { schema };
    let required = table["required"].as_array().cloned().unwrap_or_default();
    let Some(keys) = table["properties"].as_object_mut() else { return Ok(()) };
    for (key, schema) in keys {
        let path = joined(path, key);
        let is_table = properties(schema).is_some();
        match described.get(&path) {
            Some(text) => schema["description"] = json!(text),
            // A section may need no words.
            None if is_table => {}
            None => missing.push(path.clone()),
        }
        let shown = values.and_then(|values| values.get(key));
        if is_table {
            let values = shown.filter(|_| !is_list(schema));
            annotate(schema, &path, values, described, missing)?;
        } else if let Some(shown) = shown.filter(|_| !required.contains(&json!(key))) {
            let known = schema.get("default").filter(|it| !it.is_array());
            if known.is_some_and(|known| known.as_f64() != shown.as_f64()) {
                bail!("{path}: the example shows {shown} and the type has {known:?}");
            }
            schema["default"] = shown.clone();
        }
    }
    Ok(())
}

/// The section `path` and those in it.
fn sections(page: &mut String, schema: &Value, path: &str, header: &str) {
    let Some(keys) = properties(schema) else { return };
    if !path.is_empty() {
        page.push_str(&format!("\n## {header}\n"));
        if let Some(text) = schema["description"].as_str() {
            page.push_str(&format!("\n{}\n", prose(text)));
        }
    }
    let table = if is_list(schema) { &schema["items"] } else { schema };
    let required = table["required"].as_array().cloned().unwrap_or_default();
    for (key, schema) in keys.iter().filter(|(_, schema)| properties(schema).is_none()) {
        let facts = facts(schema, required.contains(&json!(key)));
        let text = prose(schema["description"].as_str().unwrap_or_default());
        page.push_str(&format!("\n### {}\n\n{facts}\n\n{text}\n", joined(path, key)));
    }
    for (key, schema) in keys.iter().filter(|(_, schema)| properties(schema).is_some()) {
        let path = joined(path, key);
        if path == CLASSES {
            // All classes have the same keys.
            sections(
                page,
                &schema["properties"]["dash"],
                &format!("{path}.CLASS"),
                "[tunnel.class.CLASS]",
            );
            continue;
        }
        let header = if is_list(schema) { format!("[[{path}]]") } else { format!("[{path}]") };
        // A section that only holds lists has no header of its own in a file.
        let holds_keys = is_list(schema)
            || properties(schema)
                .is_some_and(|keys| keys.values().any(|it| properties(it).is_none()));
        if holds_keys {
            sections(page, schema, &path, &header);
        } else {
            for (key, schema) in properties(schema).into_iter().flatten() {
                let path = joined(&path, key);
                sections(page, schema, &path, &format!("[[{path}]]"));
            }
        }
    }
}

/// Type, range and default of a key.
fn facts(schema: &Value, is_required: bool) -> String {
    let mut facts = vec![type_of(schema)];
    if let Some(default) = schema.get("default") {
        facts.push(format!("default {}", code(&default.to_string())));
    }
    if is_required {
        facts.push("**required**".to_owned());
    }
    facts.join("; ")
}

fn type_of(schema: &Value) -> String {
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().map(type_of).collect::<Vec<_>>().join(", or ");
    }
    if let Some(words) = words(schema) {
        return words
            .iter()
            .map(|word| code(&format!("\"{word}\"")))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    match schema["type"].as_str() {
        Some("integer") => format!("integer, {} to {}", schema["minimum"], schema["maximum"]),
        Some("array") => format!("list of: {}", type_of(&schema["items"])),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("string") if schema["format"] == "ip" => "IP address".to_owned(),
        Some("string") => "text".to_owned(),
        Some(name) => name.to_owned(),
        None => "any value".to_owned(),
    }
}

/// The values of an enum.
fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(Value::as_str).collect());
    }
    // Each may be one value, or several without a description.
    let groups = schema["oneOf"].as_array()?;
    let mut all = Vec::new();
    for group in groups {
        all.extend(group["const"].as_str());
        all.extend(group["enum"].as_array().into_iter().flatten().filter_map(Value::as_str));
    }
    Some(all)
}

fn prose(text: &str) -> String {
    with_links(&escape(text))
}
