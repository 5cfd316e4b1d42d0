//! The pull sources of an image by the node's own `registries.conf`.

use super::conf::RegistriesConf;
use super::reference::RegistryReference;
use super::scope;

/// Mirrors of this type are skipped for an image referenced by digest.
const TAG_ONLY: &str = "tag-only";

/// Returns the repositories that are tried for an image by digest, in order: the mirrors, then its own repository.
pub fn pull_sources(registries_conf: &str, image: &str) -> Result<Vec<String>, String> {
    let conf = RegistriesConf::read(registries_conf)?;
    let Some(RegistryReference { name: repository, .. }) = RegistryReference::qualified(image) else {
        return Err(format!("{image:?} is not a full image reference"));
    };
    let Some(entry) = conf.closest(repository, |_| true) else {
        return Ok(vec![repository.to_owned()]);
    };
    let rest = scope::remainder(repository, entry.scope());
    let mirrors = entry
        .mirrors
        .iter()
        .filter(|mirror| mirror.pull_from_mirror != TAG_ONLY)
        .map(|mirror| format!("{}{rest}", mirror.location));
    let place = match entry.endpoint.location.as_str() {
        "" => repository.to_owned(),
        location => format!("{location}{rest}"),
    };
    Ok(mirrors.chain([place]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = r#"
[[registry]]
location = "quay.example"
[[registry.mirror]]
location = "wide.example/quay"
[[registry]]
location = "quay.example/team"
mirror-by-digest-only = true
[[registry.mirror]]
location = "mirror.example:5000/team"
[[registry.mirror]]
location = "tags.example/team"
pull-from-mirror = "tag-only"
[[registry]]
prefix = "*.internal.example"
[[registry.mirror]]
location = "mirror.example/internal"
[[registry]]
prefix = "old.example"
location = "new.example/old"
"#;

    #[test]
    fn mirrors_come_first_and_the_narrowest_entry_counts() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (name, repository, expected) in [
            (
                "the narrowest entry",
                "quay.example/team/app",
                vec!["mirror.example:5000/team/app", "quay.example/team/app"],
            ),
            (
                "the whole registry",
                "quay.example/other/app",
                vec!["wide.example/quay/other/app", "quay.example/other/app"],
            ),
            (
                "any host of a domain",
                "a.internal.example/app",
                vec!["mirror.example/internal/app", "a.internal.example/app"],
            ),
            ("another place", "old.example/app", vec!["new.example/old/app"]),
            ("no entry", "else.example/app", vec!["else.example/app"]),
        ] {
            let sources = pull_sources(CONF, &format!("{repository}@{digest}")).unwrap();
            assert_eq!(sources, expected, "{name}");
        }
        assert!(pull_sources("[[", &format!("a.example/b@{digest}")).is_err());
        assert!(pull_sources("", "no-host").is_err());
    }
}
