//! Names of types, of which each belongs to one type.

use std::collections::BTreeMap;

use syn::Item;

use crate::modules::{Crate, is_test};

/// Where each name of a type is defined, as `crate::module`.
#[derive(Debug, Default)]
pub struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Adds the types that the modules of a crate define, without those of its tests and those inside functions.
    pub fn add(&mut self, parsed: &Crate) {
        for (path, module) in &parsed.modules {
            let place = [std::slice::from_ref(&parsed.name), path.as_slice()].concat().join("::");
            for name in module.items.iter().flat_map(defined_types) {
                self.0.entry(name).or_default().push(place.clone());
            }
        }
    }

    /// Names of more than one type, and where these are.
    pub fn shared(&self) -> impl Iterator<Item = (&str, &[String])> {
        let shared = self.0.iter().filter(|(_, places)| places.len() > 1);
        shared.map(|(name, places)| (name.as_str(), places.as_slice()))
    }
}

fn defined_types(item: &Item) -> Vec<String> {
    let (attributes, name) = match item {
        Item::Struct(item) => (&item.attrs, &item.ident),
        Item::Enum(item) => (&item.attrs, &item.ident),
        Item::Union(item) => (&item.attrs, &item.ident),
        Item::Trait(item) => (&item.attrs, &item.ident),
        Item::Type(item) => (&item.attrs, &item.ident),
        // The definition of a macro has a name; what it defines is counted where it is used.
        Item::Macro(item) if item.ident.is_none() && !is_test(&item.attrs) => {
            return types_in_macro(&item.mac);
        }
        _ => return Vec::new(),
    };
    if is_test(attributes) { Vec::new() } else { vec![name.to_string()] }
}

/// Types whose definitions are arguments of a macro.
fn types_in_macro(macro_use: &syn::Macro) -> Vec<String> {
    let tokens: Vec<_> =
        macro_use.tokens.clone().into_iter().map(|token| token.to_string()).collect();
    let is_definition = |keyword: &str| matches!(keyword, "struct" | "enum" | "union" | "trait");
    tokens.windows(2).filter(|pair| is_definition(&pair[0])).map(|pair| pair[1].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Module;

    fn krate(name: &str, modules: &[(&str, &str)]) -> Crate {
        let module = |source: &str| {
            let items = syn::parse_file(source).unwrap().items;
            Module { items, ..Module::default() }
        };
        let path = |path: &str| path.split("::").map(str::to_owned).collect();
        let modules = modules.iter().map(|(at, source)| (path(at), module(source))).collect();
        Crate { name: name.to_owned(), modules }
    }

    fn shared(crates: &[Crate]) -> Vec<String> {
        let mut names = TypeNames::default();
        crates.iter().for_each(|parsed| names.add(parsed));
        names.shared().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
    }

    #[test]
    fn name_in_two_modules_is_shared() {
        let cc =
            krate("cc", &[("a", "struct Pair;"), ("b::c", "enum Pair {}"), ("d", "struct Other;")]);
        assert_eq!(shared(&[cc]), ["Pair: cc::a, cc::b::c"]);
    }

    #[test]
    fn name_in_two_crates_is_shared() {
        let (cc, lab) =
            (krate("cc", &[("a", "trait Flow {}")]), krate("lab", &[("a", "type Flow = u8;")]));
        assert_eq!(shared(&[cc, lab]), ["Flow: cc::a, lab::a"]);
    }

    #[test]
    fn definition_in_a_macro_use_counts() {
        let macro_use = "label! { #[derive(Debug)] pub enum Outcome { Done } }";
        let cc = krate("cc", &[("a", macro_use), ("b", "union Outcome { a: u8 }")]);
        assert_eq!(shared(&[cc]), ["Outcome: cc::a, cc::b"]);
    }

    #[test]
    fn associated_types_test_types_and_macro_definitions_do_not_count() {
        let associated = "trait Parse { type Error; } impl Parse for u8 { type Error = (); }";
        let test = "#[cfg(test)] struct Error;";
        let definition = "macro_rules! error { () => { struct Error; } }";
        let import = "use other::Error;";
        let own = "struct Error;";
        let cc = krate(
            "cc",
            &[("a", associated), ("b", test), ("c", definition), ("d", import), ("e", own)],
        );
        assert_eq!(shared(&[cc]), Vec::<String>::new());
    }
}
