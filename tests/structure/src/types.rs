//! Methods and fields of types.

use std::collections::BTreeMap;

use syn::{Fields, ImplItem, Item, Type};

use crate::modules::Crate;

/// A type and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredType {
    /// `crate::module::Type`.
    pub name: String,
    /// Of all its inherent `impl` blocks.
    pub methods: usize,
    pub fields: usize,
}

/// Measures all structs of a crate. Inherent methods count for the type of that name in the crate, wherever their
/// block is.
pub fn measure(parsed: &Crate) -> Vec<MeasuredType> {
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    let mut fields: Vec<(String, String, usize)> = Vec::new();
    for (path, module) in &parsed.modules {
        for item in &module.items {
            match item {
                Item::Impl(block) if block.trait_.is_none() => {
                    let count =
                        block.items.iter().filter(|it| matches!(it, ImplItem::Fn(_))).count();
                    if let Some(name) = type_name(&block.self_ty) {
                        *methods.entry(name).or_default() += count;
                    }
                }
                Item::Struct(item) => {
                    let name = item.ident.to_string();
                    let package = std::slice::from_ref(&parsed.name);
                    let at = [package, path.as_slice(), std::slice::from_ref(&name)].concat();
                    let count = match &item.fields {
                        Fields::Named(named) => named.named.len(),
                        _ => 0,
                    };
                    fields.push((at.join("::"), name, count));
                }
                _ => {}
            }
        }
    }
    let measured = fields.into_iter().map(|(at, name, fields)| MeasuredType {
        name: at,
        methods: methods.get(&name).copied().unwrap_or(0),
        fields,
    });
    measured.collect()
}

fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}
