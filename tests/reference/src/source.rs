//! Types as the source defines them: keys of JSON objects, and values of labels, with their comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, ExprLit, Fields, GenericArgument, ImplItem, Item, Lit, LitStr, Pat,
    PathArguments, Type,
};

use crate::markdown::{code, escape, table};
use crate::repository;

/// The values of a label, or of another enum with texts.
pub(crate) struct LabelEnum {
    pub(crate) name: String,
    /// Text and meaning.
    pub(crate) values: Vec<(String, String)>,
}

/// A type that becomes JSON.
struct SourceType {
    meaning: String,
    fields: Vec<SourceField>,
    /// Text and meaning of each variant of an enum.
    variants: Vec<(String, String)>,
}

struct SourceField {
    key: String,
    kind: Type,
    meaning: String,
    may_be_absent: bool,
    is_flat: bool,
}

/// Types by name, of some source files.
#[derive(Default)]
pub(crate) struct TypeBook {
    types: BTreeMap<String, SourceType>,
    aliases: BTreeMap<String, Type>,
    /// What stands for types that are described elsewhere.
    elsewhere: BTreeMap<&'static str, &'static str>,
}

fn items(file: &str) -> Result<Vec<Item>> {
    let path = repository().join(file);
    let text = fs::read_to_string(&path).with_context(|| file.to_owned())?;
    Ok(syn::parse_file(&text).with_context(|| file.to_owned())?.items)
}

/// The comment of an item, as prose.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|it| it.path().is_ident("doc")).filter_map(|attribute| {
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) =
            &attribute.meta.require_name_value().ok()?.value
        else {
            return None;
        };
        Some(line.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    without_code_links(text.trim().trim_end_matches('.'))
}

/// ``[`Self::NAME`]`` as `NAME`: rustdoc's links lead nowhere on these pages.
fn without_code_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace("`Self::", "`").replace("`crate::", "`")
}

/// What serde is told of an item, as far as the pages need it.
#[derive(Default)]
struct SerdeHints {
    rename: Option<String>,
    rename_all: Option<String>,
    is_flat: bool,
    is_skipped: bool,
    may_be_absent: bool,
}

fn serde_hints(attributes: &[Attribute]) -> SerdeHints {
    let mut hints = SerdeHints::default();
    for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
        let read = attribute.parse_nested_meta(|meta| {
            let text = || Ok::<_, syn::Error>(Some(meta.value()?.parse::<LitStr>()?.value()));
            if meta.path.is_ident("rename") {
                hints.rename = text()?;
            } else if meta.path.is_ident("rename_all") {
                hints.rename_all = text()?;
            } else if meta.path.is_ident("skip_serializing_if") {
                text()?;
                hints.may_be_absent = true;
            } else if meta.path.is_ident("flatten") {
                hints.is_flat = true;
            } else if meta.path.is_ident("skip") {
                hints.is_skipped = true;
            } else if meta.input.peek(syn::Token![=]) {
                text()?;
            }
            Ok(())
        });
        // What is not understood here is of no use for the pages.
        let _ = read;
    }
    hints
}

fn renamed(name: &str, rule: Option<&str>) -> String {
    let mut words = String::new();
    for (index, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && index > 0 {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    match rule {
        Some("snake_case") => words,
        Some("kebab-case") => words.replace('_', "-"),
        Some("lowercase") => words.replace('_', ""),
        _ => name.to_owned(),
    }
}

impl TypeBook {
    /// The types of these files.
    pub(crate) fn read(files: &[&str]) -> Result<Self> {
        let mut book = Self::default();
        for file in files {
            items(file)?.into_iter().for_each(|item| book.add(item));
        }
        Ok(book)
    }

    /// Shows `text` for a type that is described elsewhere.
    pub(crate) fn elsewhere(mut self, name: &'static str, text: &'static str) -> Self {
        self.types.remove(name);
        self.elsewhere.insert(name, text);
        self
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Struct(item) => {
                let Fields::Named(named) = item.fields else { return };
                let field = |field: syn::Field| {
                    let hints = serde_hints(&field.attrs);
                    let name = field.ident.map(|it| it.to_string()).unwrap_or_default();
                    let key = hints.rename.unwrap_or(name);
                    let (meaning, is_flat) = (doc(&field.attrs), hints.is_flat);
                    let may_be_absent = hints.may_be_absent;
                    (!hints.is_skipped).then_some(SourceField {
                        key,
                        kind: field.ty,
                        meaning,
                        may_be_absent,
                        is_flat,
                    })
                };
                let fields = named.named.into_iter().filter_map(field).collect();
                let entry = SourceType { meaning: doc(&item.attrs), fields, variants: Vec::new() };
                self.types.insert(item.ident.to_string(), entry);
            }
            Item::Enum(item) => {
                let rule = serde_hints(&item.attrs).rename_all;
                let variant = |variant: &syn::Variant| {
                    let own = serde_hints(&variant.attrs).rename;
                    let name = variant.ident.to_string();
                    let text = own.unwrap_or_else(|| renamed(&name, rule.as_deref()));
                    (text, doc(&variant.attrs))
                };
                let variants = item.variants.iter().map(variant).collect();
                let entry = SourceType { meaning: doc(&item.attrs), fields: Vec::new(), variants };
                self.types.insert(item.ident.to_string(), entry);
            }
            Item::Type(item) => {
                self.aliases.insert(item.ident.to_string(), *item.ty);
            }
            _ => {}
        }
    }

    /// A table of each of the types `names`, and one of each type in them, under headings of `level`.
    pub(crate) fn tables(&self, names: &[&str], level: usize) -> Result<String> {
        let mut text = String::new();
        let mut waiting: Vec<_> = names.iter().rev().map(|name| (*name).to_owned()).collect();
        let mut shown = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if !shown.insert(name.clone()) {
                continue;
            }
            let entry = self.types.get(&name).with_context(|| format!("no type {name}"))?;
            text.push_str(&format!("\n{} {name}\n", "#".repeat(level)));
            if !entry.meaning.is_empty() {
                text.push_str(&format!("\n{}.\n", escape(&entry.meaning)));
            }
            let rows = self.rows(entry);
            text.push_str(&table(["key", "value", "meaning"], &rows));
            let variants: Vec<_> = entry
                .variants
                .iter()
                .map(|(text, meaning)| [code(&format!("\"{text}\"")), escape(meaning)])
                .collect();
            text.push_str(&table(["value", "meaning"], &variants));
            let mut inside = Vec::new();
            entry.fields.iter().for_each(|field| self.used(&field.kind, &mut inside));
            waiting.extend(inside.into_iter().rev());
        }
        Ok(text)
    }

    fn rows(&self, entry: &SourceType) -> Vec<[String; 3]> {
        let row = |field: &SourceField| {
            let mut kind = self.kind(&field.kind);
            if field.may_be_absent {
                kind = format!("{}; may be absent", kind.trim_end_matches(" or null"));
            }
            let key = if field.is_flat { "…".to_owned() } else { code(&field.key) };
            [key, kind, escape(&field.meaning)]
        };
        entry.fields.iter().map(row).collect()
    }

    /// What the value of a key is.
    fn kind(&self, of: &Type) -> String {
        match of {
            Type::Reference(it) => self.kind(&it.elem),
            Type::Slice(it) => format!("list of {}", self.kind(&it.elem)),
            Type::Array(it) => format!("list of {}", self.kind(&it.elem)),
            Type::Path(path) => {
                let Some(segment) = path.path.segments.last() else { return String::new() };
                let name = segment.ident.to_string();
                let inner: Vec<_> = arguments(&segment.arguments);
                if let Some(text) = self.elsewhere.get(name.as_str()) {
                    return (*text).to_owned();
                }
                if let Some(alias) = self.aliases.get(&name) {
                    return self.kind(alias);
                }
                match (name.as_str(), &inner[..]) {
                    ("Option", [inner]) => format!("{} or null", self.kind(inner)),
                    ("Vec", [inner]) => format!("list of {}", self.kind(inner)),
                    ("BTreeMap" | "HashMap", [_, inner]) => {
                        format!("object: {} by name", self.kind(inner))
                    }
                    ("Map", _) => "object".to_owned(),
                    ("Value", _) => "any value".to_owned(),
                    ("String" | "str" | "PathBuf", _) => "text".to_owned(),
                    ("bool", _) => "boolean".to_owned(),
                    ("f64" | "f32", _) => "number".to_owned(),
                    ("u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64", _) => {
                        "integer".to_owned()
                    }
                    _ if self.types.contains_key(&name) => {
                        format!("[{name}](#{})", name.to_ascii_lowercase())
                    }
                    _ => code(&name),
                }
            }
            _ => String::new(),
        }
    }

    /// The types of this book in `of`.
    fn used(&self, of: &Type, found: &mut Vec<String>) {
        match of {
            Type::Reference(it) => self.used(&it.elem, found),
            Type::Slice(it) => self.used(&it.elem, found),
            Type::Array(it) => self.used(&it.elem, found),
            Type::Path(path) => {
                for segment in &path.path.segments {
                    let name = segment.ident.to_string();
                    if let Some(alias) = self.aliases.get(&name) {
                        self.used(alias, found);
                    } else if self.types.contains_key(&name) {
                        found.push(name);
                    }
                    arguments(&segment.arguments).into_iter().for_each(|it| self.used(it, found));
                }
            }
            _ => {}
        }
    }

    /// Keys with their comments, of a struct that is no JSON object.
    pub(crate) fn comments(&self, name: &str) -> Result<Vec<(&str, &str)>> {
        let entry = self.types.get(name).with_context(|| format!("no type {name}"))?;
        Ok(entry.fields.iter().map(|it| (it.key.as_str(), it.meaning.as_str())).collect())
    }
}

fn arguments(of: &PathArguments) -> Vec<&Type> {
    let PathArguments::AngleBracketed(of) = of else { return Vec::new() };
    let types = of.args.iter().filter_map(|it| match it {
        GenericArgument::Type(it) => Some(it),
        _ => None,
    });
    types.collect()
}

/// What is in the macro `label!`.
struct LabelMacro(LabelEnum);

impl Parse for LabelMacro {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        let name = input.parse::<syn::Ident>()?.to_string();
        let inside;
        syn::braced!(inside in input);
        let mut values = Vec::new();
        while !inside.is_empty() {
            let attributes = inside.call(Attribute::parse_outer)?;
            inside.parse::<syn::Ident>()?;
            inside.parse::<syn::Token![=]>()?;
            let text = inside.parse::<LitStr>()?.value();
            inside.parse::<Option<syn::Token![,]>>()?;
            values.push((text, doc(&attributes)));
        }
        Ok(Self(LabelEnum { name, values }))
    }
}

/// Files with enums that are labels of metrics.
const LABEL_FILES: [&str; 5] = [
    "tunnel/src/metrics.rs",
    "tunnel/src/metrics/rate_cap.rs",
    "tunnel/config/src/common.rs",
    "tunnel/config/src/destinations/denied_reason.rs",
    "tunnel/wire/src/cmcd/report.rs",
];

/// The values of the labels of metrics, with their comments.
pub(crate) fn label_enums() -> Result<Vec<LabelEnum>> {
    let mut found = Vec::new();
    for file in LABEL_FILES {
        let items = items(file)?;
        for item in &items {
            match item {
                Item::Macro(item) if item.mac.path.is_ident("label") => {
                    let label: LabelMacro =
                        item.mac.parse_body().with_context(|| file.to_owned())?;
                    found.push(label.0);
                }
                Item::Impl(item) => found.extend(texts_of(item, &items)),
                _ => {}
            }
        }
    }
    // An outcome is "complete" or a failure.
    let failures = found.iter().find(|it| it.name == "FlowFailure").context("FlowFailure")?;
    let outcome = found.iter().find(|it| it.name == "FlowOutcome").context("FlowOutcome")?;
    let values = outcome.values.iter().chain(&failures.values).cloned().collect();
    found.push(LabelEnum { name: "all outcomes".to_owned(), values });
    Ok(found)
}

/// Of an `impl` with `as_str`: the enum's texts, with the comments of its variants.
fn texts_of(of: &syn::ItemImpl, items: &[Item]) -> Option<LabelEnum> {
    let Type::Path(path) = &*of.self_ty else { return None };
    let name = path.path.get_ident()?;
    let variants = items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == *name => Some(&item.variants),
        _ => None,
    })?;
    let as_str = of.items.iter().find_map(|item| match item {
        ImplItem::Fn(item) if item.sig.ident == "as_str" => item.block.stmts.first(),
        _ => None,
    })?;
    let syn::Stmt::Expr(Expr::Match(matched), _) = as_str else { return None };
    let text = |arm: &syn::Arm| {
        let Pat::Path(pattern) = &arm.pat else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &*arm.body else { return None };
        let ident = &pattern.path.segments.last()?.ident;
        let variant = variants.iter().find(|variant| variant.ident == *ident)?;
        Some((text.value(), doc(&variant.attrs)))
    };
    let values = matched.arms.iter().filter_map(text).collect();
    Some(LabelEnum { name: name.to_string(), values })
}
