//! Keeps the release's own images pullable, regardless of the registries that the user blocks.

use super::conf::RegistriesConf;
use super::edit;
use super::lookup::Lookup;
use super::mirrors::MirrorRule;
use super::reference::RegistryReference;
use super::scope;

/// The registry lists that can be applied safely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// Blocked entries for registries.conf.
    pub blocked: Vec<String>,
    /// Blocked entries for policy.json.
    pub policy_blocked: Vec<String>,
    pub allowed: Vec<String>,
    /// Blocked entries that were dropped, because the release could not be pulled otherwise.
    pub refused: Vec<String>,
    /// Why nothing is blocked at all: the pull sources of the release cannot be determined.
    pub unknown: Option<String>,
}

/// Removes the entries from the blocked list that the release needs.
pub(super) fn protect(
    payload: Option<RegistryReference<'_>>,
    insecure: &[String],
    blocked: &[String],
    allowed: &[String],
    digest_rules: &[MirrorRule],
) -> Lists {
    let mut lists = Lists {
        allowed: allowed.to_vec(),
        ..Lists::default()
    };
    let mut behind_mirror = Vec::new();
    for entry in blocked {
        let Some(payload) = payload.filter(|payload| scope::is_within(payload.name, entry)) else {
            lists.blocked.push(entry.clone());
            lists.policy_blocked.push(entry.clone());
            continue;
        };
        let sources = match pull_sources(payload, insecure, blocked, digest_rules) {
            Ok(sources) => sources,
            Err(problem) => {
                return Lists {
                    allowed: allowed.to_vec(),
                    unknown: Some(problem),
                    ..Lists::default()
                };
            }
        };
        let is_blocked = |source: &String| blocked.iter().any(|entry| scope::is_within(source, entry));
        if sources.iter().all(is_blocked) {
            lists.refused.push(entry.clone());
            continue;
        }
        lists.blocked.push(entry.clone());
        if entry != payload.name {
            lists.policy_blocked.push(entry.clone());
        }
        behind_mirror.push(payload.name.to_owned());
    }
    // An image pulled from a mirror still counts as one of its own repository. When policy blocks nothing else,
    // everything is accepted anyway, and a list of one allowed repository would reject all others.
    if !lists.policy_blocked.is_empty() || !allowed.is_empty() {
        lists.allowed.splice(0..0, behind_mirror);
    }
    lists
}

/// Returns the locations that the release would be pulled from under these lists.
fn pull_sources(
    payload: RegistryReference<'_>,
    insecure: &[String],
    blocked: &[String],
    digest_rules: &[MirrorRule],
) -> Result<Vec<String>, String> {
    let mut conf = RegistriesConf::default();
    edit::edit(&mut conf, insecure, blocked, digest_rules, &[]).map_err(|problem| problem.to_string())?;
    let lookup = Lookup::of(&conf)?;
    let Some(entry) = lookup.find(payload.name) else {
        return Ok(Vec::new());
    };
    let sources = entry.pull_sources(payload)?;
    Ok(sources.into_iter().map(|source| source.name).collect())
}
