//! What `structure.toml` says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::modules::Crate;
use crate::type_names::TypeNames;
use crate::types::MeasuredType;

/// Layers, limits and exceptions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructureRules {
    pub max_methods: usize,
    pub max_fields: usize,
    /// By the name of the package.
    pub crates: BTreeMap<String, Listed>,
    /// By `crate::module::Type`; the reason.
    #[serde(default)]
    pub large_types: BTreeMap<String, String>,
    /// Names that several types may have; the reason.
    #[serde(default)]
    pub shared_type_names: BTreeMap<String, String>,
}

/// A crate of the workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    pub path: PathBuf,
    /// Crates of lower layers have lower numbers; a crate depends on these only.
    pub layer: u32,
    /// Whether tests alone use it: its types may have names of types of other crates.
    #[serde(default)]
    pub is_test_support: bool,
}

impl StructureRules {
    /// Reads them.
    ///
    /// # Errors
    /// The file can't be read or is wrong.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        toml::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Crates that `parsed` names although their layer is not below its own.
    pub fn wrong_arrows(&self, name: &str, parsed: &Crate) -> Vec<String> {
        let layer = self.crates[name].layer;
        let mut problems = Vec::new();
        for (path, module) in &parsed.modules {
            for used in &module.crates {
                let package = used.replace('_', "-");
                let wrong =
                    self.crates.get(&package).filter(|it| package != name && it.layer >= layer);
                if let Some(other) = wrong {
                    problems.push(format!(
                        "{name} (layer {layer}): {} uses {package} of layer {}; lower layers only",
                        path.join("::"),
                        other.layer
                    ));
                }
            }
        }
        problems
    }

    /// Types above the limits that are not listed, and listed ones that are no longer above.
    pub fn too_large(&self, measured: &[MeasuredType]) -> Vec<String> {
        let is_large =
            |it: &MeasuredType| it.methods > self.max_methods || it.fields > self.max_fields;
        let large =
            measured.iter().filter(|it| is_large(it) && !self.large_types.contains_key(&it.name));
        let mut problems: Vec<_> = large
            .map(|it| {
                let MeasuredType { name, methods, fields } = it;
                format!(
                    "{name}: {methods} methods and {fields} fields; {} and {} are allowed",
                    self.max_methods, self.max_fields
                )
            })
            .collect();
        for listed in self.large_types.keys() {
            if !measured.iter().any(|it| it.name == *listed && is_large(it)) {
                problems.push(format!("{listed} is listed as large, and is not: remove it"));
            }
        }
        problems
    }

    /// Names of several types that are not listed, and listed ones that no longer are shared.
    pub fn shared_names(&self, names: &TypeNames) -> Vec<String> {
        let shared: BTreeMap<_, _> = names.shared().collect();
        let unlisted =
            shared.iter().filter(|(name, _)| !self.shared_type_names.contains_key(**name));
        let mut problems: Vec<_> = unlisted
            .map(|(name, places)| {
                format!("{name} is the name of {} types: {}", places.len(), places.join(", "))
            })
            .collect();
        for listed in self.shared_type_names.keys() {
            if !shared.contains_key(listed.as_str()) {
                problems.push(format!("{listed} is listed as shared, and is not: remove it"));
            }
        }
        problems
    }
}
