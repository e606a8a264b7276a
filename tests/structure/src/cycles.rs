//! Import cycles between the modules of a crate.

use std::collections::HashMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::modules::{Crate, Module, ModulePath};

/// The cycles of a crate, one line each. A re-export is no import: it is another name, and not a use.
pub fn find(parsed: &Crate) -> Vec<String> {
    let mut graph = DiGraph::<&ModulePath, ()>::new();
    let nodes: HashMap<&ModulePath, NodeIndex> =
        parsed.modules.keys().map(|path| (path, graph.add_node(path))).collect();
    for (path, module) in &parsed.modules {
        if is_facade(module) {
            continue;
        }
        for import in &module.imports {
            graph.add_edge(nodes[path], nodes[import], ());
        }
    }
    let cycles = tarjan_scc(&graph).into_iter().filter(|cycle| cycle.len() > 1);
    let name = |node: NodeIndex| match graph[node].as_slice() {
        [] => "(root)".to_owned(),
        path => path.join("::"),
    };
    cycles
        .map(|cycle| {
            let mut names: Vec<_> = cycle.into_iter().map(name).collect();
            names.sort();
            format!(
                "{}: import cycle of {} modules: {}",
                parsed.name,
                names.len(),
                names.join(", ")
            )
        })
        .collect()
}

fn is_facade(module: &Module) -> bool {
    module.items.iter().all(|item| matches!(item, syn::Item::Use(_) | syn::Item::ExternCrate(_)))
}
