//! Values of keys (CTA-5004-B, Section 4.3). Those of version 1 are read as well as those of version 2.

use sfv::{BareItem, Item, List, ListEntry, Parser, Version};

use super::report::SessionId;

/// Longest `cid`, in characters (CTA-5004-B, Table 1; 64 in version 1).
const MAX_CONTENT_CHARACTERS: usize = 128;

/// Values of `ot`, and parameters of figures (CTA-5004-B, Section 4.1, item 14).
pub(super) const OBJECT_TYPES: &[&str] = &["m", "a", "v", "av", "i", "c", "tt", "k", "o"];

/// What a key may have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A figure, or a list with one for each object type.
    Figures,
    Integer,
    Flag,
    /// `sid`: ASCII, as the specification has it.
    Session,
    /// `cid`: players send titles in it, in UTF-8, which strings of RFC 8941 do not have.
    Content,
    Token(&'static [&'static str]),
}

/// What a key has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyValue {
    Figures(Vec<Figure>),
    Integer(u64),
    Flag(bool),
    Session(SessionId),
    /// Nothing here uses it.
    Content,
    Token(&'static str),
}

/// A figure, and the object types that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figure {
    number: u64,
    object_types: Vec<&'static str>,
}

impl Kind {
    /// `rest` is what follows the key. `None` if that is not a value of this kind.
    pub(super) fn value(self, rest: &[u8]) -> Option<KeyValue> {
        let text = str::from_utf8(rest).ok()?;
        let text = match text.strip_prefix('=') {
            Some(value) => only_strings_beyond_ascii(value),
            // A key alone is true, also with parameters (RFC 8941, Section 3.2).
            None => format!("?1{text}"),
        };
        let entry = only_entry(&text)?;
        let item = || match &entry {
            ListEntry::Item(item) => Some(item),
            ListEntry::InnerList(_) => None,
        };
        match self {
            Self::Figures => figures(&entry).map(KeyValue::Figures),
            Self::Integer => integer(item()?).map(KeyValue::Integer),
            Self::Flag => item()?.bare_item.as_boolean().map(KeyValue::Flag),
            Self::Session => {
                let text = item()?.bare_item.as_string()?.as_str();
                SessionId::new(text).filter(|_| rest.is_ascii()).map(KeyValue::Session)
            }
            Self::Content => {
                let characters = item()?.bare_item.as_string()?.as_str().len();
                (characters <= MAX_CONTENT_CHARACTERS).then_some(KeyValue::Content)
            }
            Self::Token(allowed) => {
                let token = item()?.bare_item.as_token()?.as_str();
                allowed.iter().find(|it| **it == token).map(|it| KeyValue::Token(it))
            }
        }
    }
}

/// `text` with one ASCII character for each other one: `{`, which strings alone may have, or for control characters one
/// that nothing may have.
fn only_strings_beyond_ascii(text: &str) -> String {
    let replaced = |c: char| match c {
        c if c.is_ascii() => c,
        c if c.is_control() => '\x7f',
        _ => '{',
    };
    text.chars().map(replaced).collect()
}

fn only_entry(text: &str) -> Option<ListEntry> {
    let list: List = Parser::new(text).with_version(Version::Rfc8941).parse().ok()?;
    let mut entries = list.into_iter();
    entries.next().filter(|_| entries.next().is_none())
}

fn integer(item: &Item) -> Option<u64> {
    u64::try_from(i64::from(item.bare_item.as_integer()?)).ok()
}

fn figures(entry: &ListEntry) -> Option<Vec<Figure>> {
    let items = match entry {
        ListEntry::Item(item) => std::slice::from_ref(item),
        ListEntry::InnerList(list) => list.items.as_slice(),
    };
    let figure = |item: &Item| {
        let is_for = |object_type: &str| {
            item.params.get(object_type).and_then(BareItem::as_boolean) == Some(true)
        };
        let object_types = OBJECT_TYPES.iter().copied().filter(|it| is_for(it)).collect();
        Some(Figure { number: integer(item)?, object_types })
    };
    items.iter().map(figure).collect::<Option<Vec<_>>>().filter(|figures| !figures.is_empty())
}

/// The figure for the object that is requested. Requests for manifests and keys have figures of what is played: video
/// first. A figure without an object type is for all of them.
pub(super) fn figure_for(object_type: Option<&str>, figures: &[Figure]) -> Option<u64> {
    let of = |object_type: &str| figures.iter().find(|it| it.is_for(object_type));
    object_type
        .and_then(of)
        .or_else(|| figures.iter().find(|it| it.object_types.is_empty()))
        .or_else(|| ["av", "v", "a"].into_iter().find_map(of))
        .or(figures.first())
        .map(|figure| figure.number)
}

impl Figure {
    fn is_for(&self, object_type: &str) -> bool {
        self.object_types.contains(&object_type)
    }
}
