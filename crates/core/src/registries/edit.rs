//! The user's wishes put into a registries.conf.

use super::conf::{Endpoint, RegistriesConf};
use super::mirrors::{self, Rule};
use super::scope;

const DIGEST_ONLY: &str = "digest-only";
const TAG_ONLY: &str = "tag-only";

/// Adds mirrors, then blocked and insecure scopes, in this order: later steps act on entries of the earlier ones.
pub(super) fn edit(
    conf: &mut RegistriesConf,
    insecure: &[String],
    blocked: &[String],
    digest_rules: &[Rule],
    tag_rules: &[Rule],
) {
    add_mirrors(conf, digest_rules, DIGEST_ONLY);
    add_mirrors(conf, tag_rules, TAG_ONLY);
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
    inherit_mirrors(conf);
}

fn add_mirrors(conf: &mut RegistriesConf, rules: &[Rule], pull_from_mirror: &str) {
    for ordered in mirrors::ordered(rules) {
        let entry = conf.entry(&ordered.source);
        entry.blocked |= ordered.never_contact_source;
        entry
            .mirrors
            .extend(ordered.mirrors.into_iter().map(|location| Endpoint {
                location,
                pull_from_mirror: pull_from_mirror.to_owned(),
                ..Endpoint::default()
            }));
    }
}

/// The narrowest entry alone decides where an image comes from, so an entry that is there only to block something
/// must repeat the mirrors of the wider one around it.
fn inherit_mirrors(conf: &mut RegistriesConf) {
    let inherited: Vec<Option<Vec<Endpoint>>> = conf
        .registries
        .iter()
        .map(|entry| {
            if !entry.mirrors.is_empty() {
                return None;
            }
            let wider = conf.closest(entry.scope(), |wider| !wider.mirrors.is_empty())?;
            let rest = scope::remainder(entry.scope(), wider.scope());
            Some(wider.mirrors.iter().map(|mirror| mirror.below(rest)).collect())
        })
        .collect();
    for (entry, mirrors) in conf.registries.iter_mut().zip(inherited) {
        if let Some(mirrors) = mirrors {
            entry.mirrors = mirrors;
        }
    }
}

impl Endpoint {
    /// The same mirror for a part of what it mirrors.
    fn below(&self, rest: &str) -> Self {
        Self {
            location: format!("{}{rest}", self.location),
            ..self.clone()
        }
    }
}
