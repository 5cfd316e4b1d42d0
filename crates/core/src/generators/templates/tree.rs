//! A tree of templates: `<role>/<name>/<layer>/{files,units,extensions}/<file>` and
//! `common/<layer>/{files,units,extensions}/<file>`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a tree, by their paths relative to its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateTree {
    files: BTreeMap<String, Cow<'static, [u8]>>,
}

/// The type of entries that the files of a directory describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateSection {
    Files,
    Units,
    Extensions,
}

impl TemplateSection {
    fn directory(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Units => "units",
            Self::Extensions => "extensions",
        }
    }
}

impl TemplateTree {
    /// Returns the built-in base templates.
    pub fn embedded() -> Self {
        super::embedded::FILES
            .iter()
            .map(|(path, bytes)| (*path, *bytes))
            .collect()
    }

    pub fn insert(&mut self, path: &str, bytes: impl Into<Cow<'static, [u8]>>) {
        self.files
            .insert(path.trim_start_matches("./").to_owned(), bytes.into());
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns the names of a role's MachineConfigs, in order.
    pub(super) fn names(&self, role: &str) -> BTreeSet<&str> {
        let prefix = format!("{role}/");
        let below = self.files.keys().filter_map(|path| path.strip_prefix(&prefix));
        below
            .filter_map(|path| path.split_once('/').map(|(name, _)| name))
            .collect()
    }

    /// Returns the files of one section of one layer, in order.
    pub(super) fn section<'t>(
        &'t self,
        directory: &str,
        layer: &str,
        section: TemplateSection,
    ) -> impl Iterator<Item = (&'t str, &'t [u8])> + use<'t> {
        let prefix = format!("{directory}/{layer}/{}/", section.directory());
        let from = self.files.range(prefix.clone()..);
        from.take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, bytes)| (path.as_str(), bytes.as_ref()))
    }
}

impl<P: AsRef<str>, B: Into<Cow<'static, [u8]>>> FromIterator<(P, B)> for TemplateTree {
    fn from_iter<I: IntoIterator<Item = (P, B)>>(files: I) -> Self {
        let mut tree = Self::default();
        for (path, bytes) in files {
            tree.insert(path.as_ref(), bytes);
        }
        tree
    }
}
