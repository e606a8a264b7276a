//! The comments of an example configuration: what its keys and sections are for.

use std::collections::BTreeMap;

/// Descriptions by path, as `tunnel.ca`; a section has its own name as path.
pub(crate) type Descriptions = BTreeMap<String, String>;

/// Of the text of an example. The comment above a key belongs to it, also where the key itself is a comment. The first
/// comment counts.
pub(crate) fn descriptions(text: &str) -> Descriptions {
    let mut found = Descriptions::new();
    let (mut section, mut comment) = (String::new(), Vec::new());
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = section_of(bare) {
            section = name.to_owned();
            add(&mut found, &section, &mut comment);
        } else if let Some(key) = key_of(bare) {
            add(&mut found, &format!("{section}.{key}"), &mut comment);
        } else if let Some(text) = line.strip_prefix('#') {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
        } else {
            comment.clear();
        }
    }
    found
}

fn add(found: &mut Descriptions, path: &str, comment: &mut Vec<&str>) {
    let text = paragraphs(&std::mem::take(comment));
    if !text.is_empty() {
        found.entry(path.to_owned()).or_insert(text);
    }
}

/// `tunnel` of `[tunnel]`, `listen` of `[[listen]]`.
fn section_of(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let name = inner.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(inner);
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c == '.';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// `ca` of `ca = "ca.pem"`.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(" = ")?;
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    (!key.is_empty() && key.chars().all(is_name)).then_some(key)
}

/// Lines of prose in one line; indented lines, which are a list of words with explanations, as a list.
fn paragraphs(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let indentation = line.len() - line.trim_start().len();
        let words = line.trim();
        match indentation {
            _ if words.is_empty() => {}
            0 if text.is_empty() => text.push_str(words),
            2 | 3 => match words.split_once("  ") {
                Some((word, rest)) => {
                    text.push_str(&format!("\n- `{}`: {}", word.trim(), rest.trim()));
                }
                None => text.push_str(&format!("\n- `{words}`")),
            },
            0 if text.lines().last().is_some_and(|last| last.starts_with("- ")) => {
                text.push_str(&format!("\n\n{words}"));
            }
            _ => text.push_str(&format!(" {words}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_belong_to_the_key_or_the_section_below_them() {
        let text = "# The file.\n\n# One\n# [[a.b]]\n[[a.b]]\n# What it is:\n#   x  first\n#      more\n# Then this.\nk = 1\n\
                    # Off by default.\n# l = 2\n\n# Gone.\n\nm = 3\n";
        let found = descriptions(text);
        let get = |path: &str| found.get(path).map(String::as_str);
        assert_eq!(get("a.b"), Some("One"));
        assert_eq!(get("a.b.k"), Some("What it is:\n- `x`: first more\n\nThen this."));
        assert_eq!(get("a.b.l"), Some("Off by default."));
        assert_eq!(get("a.b.m"), None);
    }
}
