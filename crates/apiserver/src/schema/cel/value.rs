//! Conversion of JSON values to CEL values, by schema.
//!
//! Strings with certain formats become timestamps, durations or bytes. Members whose names are not identifiers are
//! escaped. Sets and keyed lists have no order.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use cel::ExecutionError;
use cel::common::traits::{self, Adder, Container, Indexer, Iterable, Sizer};
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, LIST_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use serde_json::{Number, Value};

use super::environment::environment;
use crate::schema::model::{AdditionalMembers, JsonType, ListType, Schema, SchemaNode};

/// A position in a schema, or one without a schema.
#[derive(Clone, Copy, Debug)]
pub struct CelPosition<'s> {
    pub schema: &'s Schema,
    pub node: Option<&'s SchemaNode>,
}

/// Reserved words of CEL.
const RESERVED: [&str; 22] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "__",
];

impl CelPosition<'_> {
    /// Returns the value at this position as a CEL value.
    pub fn value<'v>(self, value: &'v Value) -> Box<dyn Val + 'v> {
        match value {
            Value::Null => Box::new(CelNull),
            Value::Bool(flag) => Box::new(CelBool::from(*flag)),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let place = CelPosition {
                    node: self.node.and_then(|node| self.schema.items(node)),
                    ..self
                };
                let items: Vec<Box<dyn Val + 'v>> = items.iter().map(|item| place.value(item)).collect();
                match self.node.map(|node| &node.list_type) {
                    Some(ListType::Set | ListType::Map(_)) => Box::new(UnorderedList { items }),
                    _ => Box::new(CelList::from(items)),
                }
            }
            Value::Object(fields) => {
                let entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = fields
                    .iter()
                    .map(|(name, member)| {
                        let (key, place) = self.member(name);
                        (CelMapKey::String(CelString::from(key)), place.value(member))
                    })
                    .collect();
                Box::new(CelMap::from(entries))
            }
        }
    }

    /// Returns a member's key and position: declared members are escaped, keys of maps are not.
    fn member(self, name: &str) -> (String, Self) {
        let Some(node) = self.node else {
            return (name.to_owned(), self);
        };
        match (node.property(name), node.additional) {
            (Some(property), _) => {
                let place = CelPosition {
                    node: Some(self.schema.node(property.node)),
                    ..self
                };
                (escape(name).unwrap_or_else(|| name.to_owned()), place)
            }
            (None, AdditionalMembers::Schema(id)) => (
                name.to_owned(),
                CelPosition {
                    node: Some(self.schema.node(id)),
                    ..self
                },
            ),
            (None, _) => (name.to_owned(), CelPosition { node: None, ..self }),
        }
    }

    fn number<'v>(self, number: &Number) -> Box<dyn Val + 'v> {
        let wants_double = self.node.is_some_and(|node| node.json_type == JsonType::Number);
        match number.as_i64() {
            Some(integer) if !wants_double => Box::new(CelInt::from(integer)),
            _ => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        }
    }

    fn string<'v>(self, text: &'v str) -> Box<dyn Val + 'v> {
        let format = self
            .node
            .and_then(|node| node.checks.as_ref())
            .and_then(|checks| checks.format.as_deref());
        let converted = match format {
            Some("date-time") => convert("timestamp", text),
            Some("date") => convert("timestamp", &format!("{text}T00:00:00Z")),
            Some("duration") => convert("duration", text),
            Some("byte") => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(text).ok();
                decoded.map(|bytes| -> Box<dyn Val> { Box::new(CelBytes::from(bytes)) })
            }
            _ => None,
        };
        converted.unwrap_or_else(|| Box::new(CelString::from(text)))
    }
}

/// Returns a value without a schema as a CEL value: names of members are not escaped, and strings stay strings.
pub fn untyped(value: &Value) -> Box<dyn Val + '_> {
    untyped_with(value, &|text| CelString::from(text))
}

/// Returns a value without a schema as a CEL value that borrows nothing.
pub fn untyped_owned(value: &Value) -> Box<dyn Val> {
    untyped_with(value, &|text| CelString::from(text.to_owned()))
}

fn untyped_with<'j, 'v>(value: &'j Value, string: &dyn Fn(&'j str) -> CelString<'v>) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(flag) => Box::new(CelBool::from(*flag)),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Box::new(CelInt::from(integer)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(string(text)),
        Value::Array(items) => {
            let items: Vec<Box<dyn Val + 'v>> = items.iter().map(|item| untyped_with(item, string)).collect();
            Box::new(CelList::from(items))
        }
        Value::Object(fields) => {
            let entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = fields
                .iter()
                .map(|(name, member)| (CelMapKey::String(string(name)), untyped_with(member, string)))
                .collect();
            Box::new(CelMap::from(entries))
        }
    }
}

/// Returns whether a name is not one of the reserved words.
pub fn is_plain_name(name: &str) -> bool {
    !RESERVED.contains(&name)
}

/// Returns the CEL name of a member; `None` if rules cannot refer to it.
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut chars = name.chars();
    let starts_well = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || "_.-/".contains(c));
    if !starts_well || !chars.all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(
        escaped
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}

/// Parses a string with the standard library.
fn convert(function: &str, text: &str) -> Option<Box<dyn Val>> {
    let text = CelString::from(text.to_owned());
    let arguments = vec![CowVal::owned(text)];
    let overload = environment().ok()?.find_overload(function, &arguments)?;
    overload(arguments).ok().map(CowVal::into_owned)
}

/// A set or keyed list: equal to another with the same items in any order.
#[derive(Debug)]
struct UnorderedList<'v> {
    items: Vec<Box<dyn Val + 'v>>,
}

/// Returns a text that is the same for equal values, so that long lists need not be compared pairwise.
fn identity(value: &dyn Val) -> String {
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let entries = map.inner().iter();
        let mut entries: Vec<String> = entries
            .map(|(key, value)| format!("{key:?}={}", identity(value.as_ref())))
            .collect();
        entries.sort_unstable();
        return format!("{{{}}}", entries.join(","));
    }
    let Some(iterable) = value.as_iterable() else {
        return format!("{value:?}");
    };
    let (mut items, mut iterator) = (Vec::new(), iterable.iter());
    while let Some(item) = iterator.next() {
        items.push(identity(item));
    }
    format!("[{}]", items.join(","))
}

struct UnorderedItems<'b, 'v>(std::slice::Iter<'b, Box<dyn Val + 'v>>);

impl<'b, 'v: 'w, 'w> traits::Iterator<'b, 'w> for UnorderedItems<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        let item = self.0.next()?;
        Some(item.as_ref())
    }
}

impl<'v> UnorderedList<'v> {
    fn copies<'w>(&self) -> Vec<Box<dyn Val + 'w>>
    where
        'v: 'w,
    {
        self.items.iter().map(|item| item.clone_as_boxed()).collect()
    }
}

impl Iterable for UnorderedList<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn traits::Iterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        Box::new(UnorderedItems(self.items.iter()))
    }
}

impl Sizer for UnorderedList<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.items.len()).unwrap_or(i64::MAX))
    }
}

impl Container for UnorderedList<'_> {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.items.iter().any(|item| item.equals(value)))
    }
}

impl Indexer for UnorderedList<'_> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let wanted = index.downcast_ref::<CelInt>().map(|index| *index.inner());
        let Some(wanted) = wanted else {
            return Err(ExecutionError::UnexpectedType {
                got: index.get_type().name().to_owned(),
                want: "int".to_owned(),
            });
        };
        let found = usize::try_from(wanted).ok().and_then(|at| self.items.get(at));
        found
            .map(|item| CowVal::Borrowed(item.as_ref()))
            .ok_or(ExecutionError::IndexOutOfBounds(cel::Value::Int(wanted)))
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Adder for UnorderedList<'_> {
    fn add<'b, 'w>(&'b self, other: &(dyn Val + 'w)) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let no_list = || ExecutionError::UnexpectedType {
            got: other.get_type().name().to_owned(),
            want: "list".to_owned(),
        };
        let mut items = self.copies();
        let mut others = other.as_iterable().ok_or_else(no_list)?.iter();
        while let Some(item) = others.next() {
            if !items.iter().any(|known| known.equals(item)) {
                items.push(item.clone_as_boxed());
            }
        }
        Ok(CowVal::owned(UnorderedList { items }))
    }
}

impl Val for UnorderedList<'_> {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'w>(&'b self) -> Option<&'b (dyn Adder + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        let (Some(size), Some(iterable)) = (other.as_sizer(), other.as_iterable()) else {
            return false;
        };
        if *size.size().inner() != *self.size().inner() {
            return false;
        }
        let mut others = iterable.iter();
        let mut reordered = Vec::new();
        for own in &self.items {
            match others.next() {
                Some(other) if own.equals(other) => {}
                Some(other) => reordered.push(other),
                None => return false,
            }
        }
        if reordered.is_empty() {
            return true;
        }
        let own: HashSet<String> = self.items.iter().map(|item| identity(item.as_ref())).collect();
        reordered.into_iter().all(|other| own.contains(&identity(other)))
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(UnorderedList { items: self.copies() })
    }
}
