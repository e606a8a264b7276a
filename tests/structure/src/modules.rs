//! The modules of a crate and what each imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, UseTree};

/// Path of a module below the root of its crate; empty for the root.
pub type ModulePath = Vec<String>;

/// A crate that has been parsed, without its tests.
#[derive(Debug)]
pub struct Crate {
    pub name: String,
    pub modules: BTreeMap<ModulePath, Module>,
}

/// A module: one file, or one block.
#[derive(Debug, Default)]
pub struct Module {
    pub items: Vec<Item>,
    /// Lines of the file; 0 for a block.
    pub lines: usize,
    /// Modules of the same crate that it names.
    pub imports: BTreeSet<ModulePath>,
    /// Crates that it names, as in Rust code.
    pub crates: BTreeSet<String>,
}

impl Crate {
    /// Parses `lib.rs` or `main.rs` in `source`, and the modules below.
    ///
    /// # Errors
    /// A file can't be read or parsed.
    pub fn read(name: &str, source: &Path) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for root in ["lib.rs", "main.rs"] {
            let file = source.join(root);
            if file.is_file() {
                read_file(&file, source, Vec::new(), &mut modules)?;
            }
        }
        let exports = Exports::of(&modules);
        for (path, module) in &mut modules {
            let mut names = Names::new(path, &exports);
            for item in &module.items {
                names.visit_item(item);
            }
            let (imports, crates) = (names.imports, names.crates);
            module.imports = imports;
            module.crates = crates;
        }
        Ok(Self { name: name.to_owned(), modules })
    }

    /// Lines of all files.
    pub fn lines(&self) -> usize {
        self.modules.values().map(|module| module.lines).sum()
    }
}

/// Whether the item is compiled for tests or fuzzing only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    let words = |attribute: &Attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
        _ => String::new(),
    };
    attributes.iter().map(words).any(|words| {
        !words.contains("not") && (words.contains("test") || words.contains("fuzzing"))
    })
}

fn read_file(
    file: &Path,
    directory: &Path,
    path: ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
    let lines = text.lines().count();
    read_items(parsed.items, directory, path, lines, modules)
}

fn read_items(
    items: Vec<Item>,
    directory: &Path,
    path: ModulePath,
    lines: usize,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> Result<()> {
    let (children, items): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| matches!(item, Item::Mod(_)));
    // A crate may have both a library and a program: one root.
    let module = modules.entry(path.clone()).or_default();
    module.lines += lines;
    module.items.extend(items);
    for child in children {
        let Item::Mod(child) = child else { continue };
        if !is_test(&child.attrs) {
            read_child(child, directory, &path, modules)?;
        }
    }
    Ok(())
}

fn read_child(
    child: ItemMod,
    directory: &Path,
    parent: &ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> Result<()> {
    let name = child.ident.to_string();
    let path: ModulePath = parent.iter().cloned().chain([name.clone()]).collect();
    let below = directory.join(&name);
    match child.content {
        Some((_, items)) => read_items(items, &below, path, 0, modules),
        None => read_file(&file_of(directory, &below, &name), &below, path, modules),
    }
}

fn file_of(directory: &Path, below: &Path, name: &str) -> PathBuf {
    let file = directory.join(format!("{name}.rs"));
    if file.is_file() { file } else { below.join("mod.rs") }
}

/// What modules there are, and what each re-exports: the path of an item by its new name.
#[derive(Debug, Default)]
struct Exports(BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>);

impl Exports {
    fn of(modules: &BTreeMap<ModulePath, Module>) -> Self {
        let mut exports =
            Self(modules.keys().map(|path| (path.clone(), BTreeMap::new())).collect());
        for (path, module) in modules {
            for item in &module.items {
                if let Item::Use(item) = item
                    && !matches!(item.vis, syn::Visibility::Inherited)
                {
                    exports.add(path, &item.tree, &mut Vec::new());
                }
            }
        }
        exports
    }

    fn add(&mut self, module: &ModulePath, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add(module, &path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add(module, tree, before));
            }
            UseTree::Name(name) => self.insert(module, &name.ident, &name.ident, before),
            UseTree::Rename(rename) => self.insert(module, &rename.rename, &rename.ident, before),
            UseTree::Glob(_) => {}
        }
    }

    fn insert(&mut self, module: &ModulePath, name: &Ident, item: &Ident, before: &[String]) {
        let path: Vec<_> = before.iter().cloned().chain([item.to_string()]).collect();
        if let (Some(path), Some(names)) = (self.absolute(module, &path), self.0.get_mut(module)) {
            names.insert(name.to_string(), path);
        }
    }

    fn has(&self, module: &[String]) -> bool {
        self.0.contains_key(module)
    }

    /// A path from the root of the crate; `None` if it begins with the name of another crate.
    fn absolute(&self, module: &ModulePath, path: &[String]) -> Option<Vec<String>> {
        let ups = path.iter().take_while(|segment| *segment == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => {
                let base = &module[..module.len().saturating_sub(ups)];
                Some([base, &path[ups..]].concat())
            }
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                self.has(&child).then(|| [module, path].concat())
            }
        }
    }

    /// The module that defines what `path` names, through re-exports.
    fn definition(&self, path: &[String]) -> Option<ModulePath> {
        const MAX_REEXPORTS: usize = 16;
        let mut path = path.to_vec();
        for _ in 0..MAX_REEXPORTS {
            let end = (0..=path.len()).rev().find(|end| self.has(&path[..*end]))?;
            let names = &self.0[&path[..end]];
            match path.get(end).and_then(|name| names.get(name)) {
                Some(item) if *item != path[..=end] => {
                    path = [item.as_slice(), &path[end + 1..]].concat();
                }
                _ => return Some(path[..end].to_vec()),
            }
        }
        None
    }
}

/// Collects the modules and crates that the paths of a module name.
struct Names<'a> {
    path: &'a ModulePath,
    exports: &'a Exports,
    imports: BTreeSet<ModulePath>,
    crates: BTreeSet<String>,
}

impl<'a> Names<'a> {
    fn new(path: &'a ModulePath, exports: &'a Exports) -> Self {
        Self { path, exports, imports: BTreeSet::new(), crates: BTreeSet::new() }
    }

    /// Takes a path, whose last segments may be items.
    fn add(&mut self, segments: &[String]) {
        match self.exports.absolute(self.path, segments) {
            Some(path) => {
                let module = self.exports.definition(&path).filter(|it| it != self.path);
                self.imports.extend(module);
            }
            None => self.crates.extend(segments.first().cloned()),
        }
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(tree, before))
            }
            UseTree::Name(name) => self.add_leaf(&name.ident, before),
            UseTree::Rename(rename) => self.add_leaf(&rename.ident, before),
            UseTree::Glob(_) => self.add(before),
        }
    }

    fn add_leaf(&mut self, name: &Ident, before: &[String]) {
        let mut segments = before.to_vec();
        if name != "self" {
            segments.push(name.to_string());
        }
        self.add(&segments);
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let segments: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }
}
