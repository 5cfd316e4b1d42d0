//! The release's own images must stay reachable, whatever the user blocks.

use super::conf::RegistriesConf;
use super::edit;
use super::mirrors::Rule;
use super::scope;

/// The lists as they may be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// For registries.conf.
    pub blocked: Vec<String>,
    /// For policy.json.
    pub policy_blocked: Vec<String>,
    pub allowed: Vec<String>,
    /// Blocked entries that were left out, because the release could not be pulled any more.
    pub refused: Vec<String>,
}

/// Takes out of the blocked list what the release needs. `payload` is the release's repository.
pub(super) fn protect(
    payload: Option<&str>,
    insecure: &[String],
    blocked: &[String],
    allowed: &[String],
    digest_rules: &[Rule],
) -> Lists {
    let mut lists = Lists {
        allowed: allowed.to_vec(),
        ..Lists::default()
    };
    let mut through_mirror = false;
    for entry in blocked {
        let Some(payload) = payload.filter(|payload| scope::is_within(payload, entry)) else {
            lists.blocked.push(entry.clone());
            lists.policy_blocked.push(entry.clone());
            continue;
        };
        let sources = pull_sources(payload, insecure, blocked, digest_rules);
        let unreachable = sources
            .iter()
            .all(|source| blocked.iter().any(|entry| scope::is_within(source, entry)));
        if unreachable {
            lists.refused.push(entry.clone());
            continue;
        }
        lists.blocked.push(entry.clone());
        if entry != payload {
            lists.policy_blocked.push(entry.clone());
        }
        through_mirror = true;
    }
    // An image that a mirror delivers still counts as one of its own repository. When nothing else is blocked by
    // policy, everything is accepted anyway, and a list of one allowed repository would refuse all others.
    let needed = !lists.policy_blocked.is_empty() || !allowed.is_empty();
    if let Some(payload) = payload.filter(|_| through_mirror && needed) {
        lists.allowed.push(payload.to_owned());
    }
    lists
}

/// Where a repository would be pulled from by digest under these lists.
fn pull_sources(
    repository: &str,
    insecure: &[String],
    blocked: &[String],
    digest_rules: &[Rule],
) -> Vec<String> {
    let mut conf = RegistriesConf::default();
    edit::edit(&mut conf, insecure, blocked, digest_rules, &[]);
    let entry = conf.closest(repository, |_| true);
    let mirrors = entry.into_iter().flat_map(|entry| {
        let rest = scope::remainder(repository, entry.scope());
        entry
            .mirrors
            .iter()
            .map(move |mirror| format!("{}{rest}", mirror.location))
    });
    mirrors.chain([repository.to_owned()]).collect()
}
