//! Applies the user's settings to a registries.conf.

use thiserror::Error;

use super::conf::{RegistriesConf, RegistryEndpoint};
use super::mirrors::{self, MirrorRule};
use super::scope;

const DIGEST_ONLY: &str = "digest-only";
const TAG_ONLY: &str = "tag-only";

/// Mirrors of a wildcard domain that would have to be repeated for a scope within it. The text after a wildcard
/// differs per host, so they cannot be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the mirrors of {source_scope:?} cannot be repeated for {inner:?}")]
pub(super) struct WildcardMirrors {
    pub source_scope: String,
    pub inner: String,
}

/// Adds mirrors, then blocked and insecure scopes, in this order: later steps modify entries of the earlier ones.
pub(super) fn edit(
    conf: &mut RegistriesConf,
    insecure: &[String],
    blocked: &[String],
    digest_rules: &[MirrorRule],
    tag_rules: &[MirrorRule],
) -> Result<(), WildcardMirrors> {
    let mut sources = add_mirrors(conf, digest_rules, DIGEST_ONLY);
    sources.extend(add_mirrors(conf, tag_rules, TAG_ONLY));
    for scope in blocked {
        conf.entry(scope);
    }
    for scope in insecure {
        conf.entry(scope);
        for entry in &mut conf.registries {
            if scope::is_within(entry.scope(), scope) {
                entry.endpoint.insecure = true;
            }
            for mirror in &mut entry.mirrors {
                mirror.insecure |= scope::is_within(&mirror.location, scope);
            }
        }
    }
    for scope in blocked {
        for entry in &mut conf.registries {
            entry.blocked |= scope::is_within(entry.scope(), scope);
        }
    }
    sources
        .iter()
        .try_for_each(|source| inherit_mirrors(conf, source))
}

/// Adds mirrors and returns the mirrored sources, in order.
fn add_mirrors(conf: &mut RegistriesConf, rules: &[MirrorRule], pull_from_mirror: &str) -> Vec<String> {
    let mut sources = Vec::new();
    for ordered in mirrors::ordered(rules) {
        let entry = conf.entry(&ordered.source);
        entry.blocked |= ordered.never_contact_source;
        entry
            .mirrors
            .extend(ordered.mirrors.into_iter().map(|location| RegistryEndpoint {
                location,
                pull_from_mirror: pull_from_mirror.to_owned(),
                ..RegistryEndpoint::default()
            }));
        sources.push(ordered.source);
    }
    sources
}

/// Repeats the mirrors of a source for every entry within it that has none: the narrowest entry alone decides where
/// an image is pulled from. Of several enclosing sources the first wins.
fn inherit_mirrors(conf: &mut RegistriesConf, source: &str) -> Result<(), WildcardMirrors> {
    let mirrors = conf.entry(source).mirrors.clone();
    let heirs = conf.registries.iter_mut().filter(|entry| {
        entry.mirrors.is_empty() && entry.scope() != source && scope::is_within(entry.scope(), source)
    });
    for entry in heirs {
        if scope::is_wildcard(source) {
            return Err(WildcardMirrors {
                source_scope: source.to_owned(),
                inner: entry.scope().to_owned(),
            });
        }
        let rest = entry.scope().strip_prefix(source).unwrap_or_default().to_owned();
        entry.mirrors = mirrors.iter().map(|mirror| mirror.below(&rest)).collect();
    }
    Ok(())
}

impl RegistryEndpoint {
    /// Returns the same mirror for a sub-scope of its source.
    fn below(&self, rest: &str) -> Self {
        Self {
            location: format!("{}{rest}", self.location),
            ..self.clone()
        }
    }
}
