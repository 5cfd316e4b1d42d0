//! Sets of field paths, as managers own them.
//!
//! A set is a tree. A path is in the set if its last element is a member of the node it leads to. The existence of an
//! inner node does not make it owned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// One element of a path. Values are held as canonical JSON text, which has an order and an equality.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A member of an object.
    Field(String),
    /// An item of a keyed list, by the values of its key members.
    Key(BTreeMap<String, String>),
    /// An item of a set.
    Value(String),
    /// An item of a list by position.
    Index(usize),
}

/// A path from the root of an object.
pub type FieldPath = Vec<PathElement>;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, FieldSet>,
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    pub fn value(value: &Value) -> Self {
        Self::Value(value.to_string())
    }
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Adds a path. The empty path stands for the whole object, which has no owner.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    pub fn has_member(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// Returns the set below one element.
    pub fn child(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    pub fn members(&self) -> impl Iterator<Item = &PathElement> {
        self.members.iter()
    }

    pub fn children(&self) -> impl Iterator<Item = (&PathElement, &Self)> {
        self.children.iter()
    }

    pub fn add_member(&mut self, element: PathElement) {
        self.members.insert(element);
    }

    pub fn add_child(&mut self, element: PathElement, child: Self) {
        if !child.is_empty() {
            self.children.insert(element, child);
        }
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let merged = result
                .children
                .get(element)
                .map_or_else(|| child.clone(), |own| own.union(child));
            result.children.insert(element.clone(), merged);
        }
        result
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            if let Some(theirs) = other.children.get(element) {
                result.add_child(element.clone(), child.intersection(theirs));
            }
        }
        result
    }

    /// Returns the paths that are not in the other set; paths below one of its members stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut result = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            let rest = other
                .children
                .get(element)
                .map_or_else(|| child.clone(), |theirs| child.difference(theirs));
            result.add_child(element.clone(), rest);
        }
        result
    }

    /// Returns the paths that are neither in the other set nor below one of its members.
    #[must_use]
    pub fn without_subtrees(&self, other: &Self) -> Self {
        let mut result = Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, child) in self
            .children
            .iter()
            .filter(|(element, _)| !other.members.contains(element))
        {
            let rest = other
                .children
                .get(element)
                .map_or_else(|| child.clone(), |theirs| child.without_subtrees(theirs));
            result.add_child(element.clone(), rest);
        }
        result
    }

    /// Returns every path, the paths of a node before those inside its children.
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut FieldPath, paths: &mut Vec<FieldPath>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            paths.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, paths);
            prefix.pop();
        }
    }
}

/// Returns a path in the notation of conflict messages: `.spec.containers[name="c"].image`.
pub fn show(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let pairs: Vec<_> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", pairs.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields_v1;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(fields: &Value) -> FieldSet {
        fields_v1::decode(fields).expect("a field set")
    }

    #[test]
    fn operations_distinguish_members_from_what_is_below_them() {
        let a = set(&json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}}));
        let b = set(&json!({"f:a": {"f:x": {}}, "f:c": {}}));
        assert_eq!(
            a.union(&b),
            set(&json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}, "f:c": {}}))
        );
        assert_eq!(a.intersection(&b), set(&json!({"f:a": {"f:x": {}}})));
        assert_eq!(a.difference(&b), set(&json!({"f:a": {}, "f:b": {}})));
        let whole_a = set(&json!({"f:a": {}}));
        assert_eq!(
            a.difference(&whole_a),
            set(&json!({"f:a": {"f:x": {}}, "f:b": {}}))
        );
        assert_eq!(a.without_subtrees(&whole_a), set(&json!({"f:b": {}})));
    }

    #[test]
    fn paths_are_listed_outer_ones_first_and_read_like_conflicts() {
        let set = set(&json!({"f:spec": {"f:z": {}, "f:list": {
            "k:{\"name\":\"c\",\"port\":80}": {".": {}, "f:image": {}}, "v:\"x\"": {}, "i:3": {}}}}));
        let shown: Vec<_> = set.paths().iter().map(|path| show(path)).collect();
        assert_eq!(
            shown,
            [
                ".spec.z",
                ".spec.list[name=\"c\",port=80]",
                ".spec.list[=\"x\"]",
                ".spec.list[3]",
                ".spec.list[name=\"c\",port=80].image",
            ]
        );
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let paths = proptest::collection::vec(proptest::collection::vec("[a-c]", 1..4), 0..8);
        paths.prop_map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                set.insert(
                    &path
                        .iter()
                        .map(|name| PathElement::field(name))
                        .collect::<Vec<_>>(),
                );
            }
            set
        })
    }

    proptest! {
        #[test]
        fn a_set_is_the_sum_of_what_it_shares_with_another_and_what_it_does_not(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.intersection(&b).union(&a.difference(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(fields_v1::decode(&fields_v1::encode(&a)), Ok(a));
        }
    }
}
