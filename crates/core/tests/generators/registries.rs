//! Registries, mirrors, and signatures.

use std::collections::BTreeMap;

use mco_core::pipeline::bootstrap::BootstrapCluster;
use serde_json::{Value, json};

use crate::fixture::{assemble, controller_config, file, files, gates, image, mirrors};

const REGISTRIES: &str = "99-worker-generated-registries";

/// The entries of registries.conf in short form: scope, flags, mirrors.
fn entries(cluster: &BootstrapCluster) -> Vec<String> {
    let text = file(cluster, REGISTRIES, "/etc/containers/registries.conf").unwrap_or_default();
    let mut entries: Vec<String> = Vec::new();
    let mut in_mirror = false;
    for line in text.lines().map(str::trim) {
        let value = || line.split('"').nth(1).unwrap_or_default().to_owned();
        let mut last = |text: String| entries.last_mut().unwrap().push_str(&text);
        match line.split(' ').next().unwrap_or_default() {
            "[[registry]]" => {
                in_mirror = false;
                entries.push(String::new());
            }
            "[[registry.mirror]]" => {
                in_mirror = true;
                last(" >".to_owned());
            }
            "prefix" | "location" if !value().is_empty() => last(value()),
            "insecure" => last("!".to_owned()),
            "blocked" => last("#".to_owned()),
            "pull-from-mirror" if in_mirror => last(format!("({})", &value()[..1])),
            _ => {}
        }
    }
    entries
}

#[test]
fn registries_follow_mirrors_blocked_and_insecure_lists() {
    let digest = |list: Value| mirrors("ImageDigestMirrorSet", "idms", &list);
    let icsp = |list: Value| mirrors("ImageContentSourcePolicy", "icsp", &list);
    let tag = |list: Value| mirrors("ImageTagMirrorSet", "itms", &list);
    let cases: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "everything at once",
            vec![
                digest(json!([{"source": "q.io/a", "mirrors": ["m1/a", "m2/a"]}])),
                icsp(json!([{"source": "q.io/a", "mirrors": ["m2/a", "m3/a"]}])),
                tag(json!([{"source": "q.io/a", "mirrors": ["t/a"]}])),
                image(&json!({"blockedRegistries": ["q.io"], "insecureRegistries": ["m1"]})),
            ],
            vec!["q.io/a# >m1/a!(d) >m2/a(d) >m3/a(d) >t/a(t)", "q.io#", "m1!"],
        ),
        (
            "an entry inside a mirrored source inherits its mirrors",
            vec![
                digest(json!([{"source": "q.io", "mirrors": ["m"]}])),
                image(&json!({"blockedRegistries": ["q.io/x"]})),
            ],
            vec!["q.io >m(d)", "q.io/x# >m/x(d)"],
        ),
        (
            "of two mirrored sources around it, from the one that sorts first",
            vec![
                digest(json!([
                    {"source": "q.io/x", "mirrors": ["n"]},
                    {"source": "q.io", "mirrors": ["m"]},
                ])),
                image(&json!({"blockedRegistries": ["q.io/x/y"]})),
            ],
            vec!["q.io >m(d)", "q.io/x >n(d)", "q.io/x/y# >m/x/y(d)"],
        ),
        (
            "a mirrored wildcard and an entry beside it",
            vec![
                digest(json!([{"source": "*.q.io", "mirrors": ["m"]}])),
                image(&json!({"blockedRegistries": ["q.io"]})),
            ],
            vec!["*.q.io >m(d)", "q.io#"],
        ),
        (
            "the order of lists",
            vec![image(
                &json!({"insecureRegistries": ["r.io", "i.io", "c.io"], "blockedRegistries": ["b.io", "c.io", "d.io"]}),
            )],
            vec!["b.io#", "c.io!#", "d.io#", "r.io!", "i.io!"],
        ),
        (
            "wildcards within wildcards",
            vec![image(
                &json!({"insecureRegistries": ["*.insecure-example.com"], "blockedRegistries": ["*.blocked.insecure-example.com"]}),
            )],
            vec!["*.blocked.insecure-example.com!#", "*.insecure-example.com!"],
        ),
        (
            "a mirror in a blocked scope is not blocked",
            vec![
                digest(json!([{"source": "q.io", "mirrors": ["b.io/q"]}])),
                image(&json!({"blockedRegistries": ["b.io"]})),
            ],
            vec!["q.io >b.io/q(d)", "b.io#"],
        ),
        (
            "never contact the source",
            vec![digest(
                json!([{"source": "q.io", "mirrors": ["m"], "mirrorSourcePolicy": "NeverContactSource"}]),
            )],
            vec!["q.io# >m(d)"],
        ),
        (
            "a source mirrored to itself alone says nothing",
            vec![digest(json!([{"source": "q.io", "mirrors": ["q.io"]}]))],
            vec![],
        ),
    ];
    for (name, objects, expected) in cases {
        let cluster = assemble(&objects, None).unwrap();
        assert_eq!(entries(&cluster), expected, "{name}");
    }
}

#[test]
fn the_release_stays_reachable() {
    let release = format!("rel.io/ocp/release@sha256:{}", "a".repeat(64));
    let blocked = |list: &[&str]| image(&json!({ "blockedRegistries": list }));
    let mirror = mirrors(
        "ImageDigestMirrorSet",
        "idms",
        &json!([{"source": "rel.io/ocp", "mirrors": ["m.io/ocp"]}]),
    );
    let cases: Vec<(&str, Vec<Value>, Vec<&str>, Option<Vec<&str>>, usize)> = vec![
        (
            "no mirror: not blocked",
            vec![blocked(&["rel.io", "x.io"])],
            vec!["x.io#"],
            Some(vec!["x.io"]),
            1,
        ),
        (
            "a mirror that is blocked too",
            vec![mirror.clone(), blocked(&["rel.io", "m.io"])],
            vec!["rel.io/ocp >m.io/ocp(d)", "m.io#"],
            Some(vec!["m.io"]),
            1,
        ),
        (
            "a free mirror: blocked, and the release's repository is accepted",
            vec![mirror.clone(), blocked(&["rel.io"])],
            vec!["rel.io/ocp# >m.io/ocp(d)", "rel.io#"],
            Some(vec!["rel.io", "rel.io/ocp/release"]),
            0,
        ),
        (
            "the release's repository alone: no policy, or everything else would be refused",
            vec![mirror, blocked(&["rel.io/ocp/release"])],
            vec![
                "rel.io/ocp >m.io/ocp(d)",
                "rel.io/ocp/release# >m.io/ocp/release(d)",
            ],
            None,
            0,
        ),
    ];
    for (name, mut objects, expected, policy, warnings) in cases {
        objects.push(controller_config(&release));
        let cluster = assemble(&objects, None).unwrap();
        assert_eq!(entries(&cluster), expected, "{name}");
        let found = file(&cluster, REGISTRIES, "/etc/containers/policy.json");
        let scopes = found.map(|text| {
            let policy: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(policy["default"][0]["type"], "insecureAcceptAnything", "{name}");
            policy["transports"]["docker"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        });
        assert_eq!(
            scopes.as_deref(),
            policy
                .map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
                .as_deref(),
            "{name}"
        );
        assert_eq!(cluster.warnings.len(), warnings, "{name}: {:?}", cluster.warnings);
    }
}

#[test]
fn registry_settings_are_refused_in_known_words() {
    let digest = |list: Value| mirrors("ImageDigestMirrorSet", "idms", &list);
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (
            vec![image(&json!({"insecureRegistries": ["*bad"]}))],
            "invalid entry for insecure registries \"*bad\"",
        ),
        (
            vec![image(&json!({"blockedRegistries": [""]}))],
            "invalid entry for blocked registries \"\"",
        ),
        (
            vec![image(&json!({"allowedRegistries": ["*.x/y"]}))],
            "invalid entry for allowed registries \"*.x/y\"",
        ),
        (
            vec![image(
                &json!({"allowedRegistries": ["allow.io"], "blockedRegistries": ["b"]}),
            )],
            "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified",
        ),
        (
            vec![mirrors(
                "ImageContentSourcePolicy",
                "icsp",
                &json!([{"source": "*.x.com/ns", "mirrors": ["y/ns"]}]),
            )],
            "ImageContentSourcePolicy \"icsp\": invalid format for source \"*.x.com/ns\"",
        ),
        (
            vec![mirrors(
                "ImageContentSourcePolicy",
                "icsp",
                &json!([{"source": "x.com", "mirrors": ["other.com/ns-o1  "]}]),
            )],
            "invalid format for mirror \"other.com/ns-o1  \"",
        ),
        (
            vec![
                digest(
                    json!([{"source": "q.io", "mirrors": ["m"], "mirrorSourcePolicy": "NeverContactSource"}]),
                ),
                mirrors(
                    "ImageContentSourcePolicy",
                    "icsp",
                    &json!([{"source": "q.io", "mirrors": ["n"]}]),
                ),
            ],
            "ImageDigestMirrorSet \"idms\" and ImageContentSourcePolicy \"icsp\": conflicting mirrorSourcePolicy is set for the same source \"q.io\" in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies",
        ),
        (
            vec![digest(
                json!([{"source": "q.io", "mirrors": ["m", "q.io"], "mirrorSourcePolicy": "NeverContactSource"}]),
            )],
            "cannot set mirrorSourcePolicy: NeverContactSource if the source \"q.io\" is one of the mirrors",
        ),
        (
            vec![
                controller_config("not an image"),
                image(&json!({"blockedRegistries": ["b"]})),
            ],
            "error parsing reference of release image",
        ),
    ];
    for (objects, expected) in cases {
        let error = assemble(&objects, None).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn search_lists_and_allowed_lists_have_files_of_their_own() {
    let search = image(&json!({"containerRuntimeSearchRegistries": ["b.io", "a.io"]}));
    let cluster = assemble(&[search], None).unwrap();
    assert_eq!(
        files(&cluster, REGISTRIES),
        [(
            "/etc/containers/registries.conf.d/01-image-searchRegistries.conf".to_owned(),
            "unqualified-search-registries = [\"b.io\", \"a.io\"]\nshort-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n".to_owned()
        )]
    );
    let cluster = assemble(&[image(&json!({"allowedRegistries": ["a/b/c/d", "a.io"]}))], None).unwrap();
    let policy: Value =
        serde_json::from_str(&file(&cluster, REGISTRIES, "/etc/containers/policy.json").unwrap()).unwrap();
    assert_eq!(policy["default"][0]["type"], "reject");
    assert!(policy["transports"]["docker"].get("a/b/c/d").is_some());
    assert!(policy["transports"]["atomic"].get("a/b/c/d").is_none());
    assert!(policy["transports"]["docker-daemon"].is_object());
}

#[test]
fn image_policies_ask_for_signatures() {
    let policy = |kind: &str, name: &str, namespace: Option<&str>, scopes: &[&str]| {
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"scopes": scopes, "policy": {"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}}},
        })
    };
    let objects = |gate: &str| {
        vec![
            gates(&[gate]),
            policy("ClusterImagePolicy", "cip", None, &["q.io/p", "test0"]),
            policy("ImagePolicy", "ip", Some("n"), &["r.io/x", "test0"]),
            mirrors(
                "ImageDigestMirrorSet",
                "idms",
                &json!([{"source": "q.io", "mirrors": ["m.io/q"]}]),
            ),
        ]
    };
    let cluster = assemble(&objects("Other"), None).unwrap();
    assert_eq!(
        files(&cluster, REGISTRIES).len(),
        1,
        "without the gate there are only mirrors"
    );
    let cluster = assemble(&objects("SigstoreImageVerification"), None).unwrap();
    let found: BTreeMap<String, String> = files(&cluster, REGISTRIES).into_iter().collect();
    let policy: Value = serde_json::from_str(&found["/etc/containers/policy.json"]).unwrap();
    let requirement = json!([{"type": "sigstoreSigned", "keyData": "a2V5", "signedIdentity": {"type": "matchRepoDigestOrExact"}}]);
    assert_eq!(
        policy["transports"]["docker"],
        json!({"q.io/p": requirement, "test0": requirement})
    );
    let namespace: Value = serde_json::from_str(&found["/etc/crio/policies/n.json"]).unwrap();
    assert_eq!(namespace["transports"]["atomic"]["r.io/x"], requirement);
    assert_eq!(namespace["transports"]["atomic"]["q.io/p"], requirement);
    let lookups =
        mco_core::config::manifest::value(&found["/etc/containers/registries.d/sigstore-registries.yaml"])
            .unwrap();
    let places: Vec<&String> = lookups["docker"].as_object().unwrap().keys().collect();
    assert_eq!(places, ["m.io/q/p", "q.io/p", "r.io/x", "test0"]);
    assert!(
        cluster
            .warnings
            .iter()
            .any(|w| w.contains("ImagePolicy \"n/ip\": has conflicting scope(s) [\"test0\"]")),
        "{:?}",
        cluster.warnings
    );
    let mut refused = objects("SigstoreImageVerification");
    refused.push(image(&json!({"blockedRegistries": ["q.io"]})));
    let error = assemble(&refused, None).unwrap_err();
    assert!(
        error.contains(
            "clusterimagePolicy configured for the scope q.io/p is nested inside blockedRegistries"
        ),
        "{error}"
    );
}

fn policy(kind: &str, scopes: &[&str], policy: &Value) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "p", "namespace": "n"},
        "spec": {"scopes": scopes, "policy": policy},
    })
}

fn public_key(identity: &Value) -> Value {
    json!({"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}, "signedIdentity": identity})
}

#[test]
fn the_keys_of_requirements_were_sorted_and_ampersands_not_escaped() {
    let fulcio = json!({
        "rootOfTrust": {"policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": {
            "fulcioCAData": "Y2E=", "rekorKeyData": "cmVrb3I=",
            "fulcioSubject": {"oidcIssuer": "https://x.example/?a&b", "signedEmail": "<a@x.example>"},
        }},
        "signedIdentity": {"matchPolicy": "RemapIdentity", "remapIdentity": {"prefix": "q.io", "signedPrefix": "r.io/x"}},
    });
    let objects = [
        gates(&["SigstoreImageVerification"]),
        policy("ClusterImagePolicy", &["q.io"], &fulcio),
        policy(
            "ImagePolicy",
            &["a.io"],
            &public_key(&json!({"matchPolicy": "MatchRepository"})),
        ),
    ];
    let cluster = assemble(&objects, None).unwrap();
    let found: BTreeMap<String, String> = files(&cluster, REGISTRIES).into_iter().collect();
    let compact = |path: &str| found[path].split_whitespace().collect::<String>();
    let remapped = r#""q.io":[{"type":"sigstoreSigned","fulcio":{"caData":"Y2E=","oidcIssuer":"https://x.example/?a\u0026b","subjectEmail":"\u003ca@x.example\u003e"},"rekorPublicKeyData":"cmVrb3I=","signedIdentity":{"type":"remapIdentity","prefix":"q.io","signedPrefix":"r.io/x"}}]"#;
    let wide = compact("/etc/containers/policy.json");
    assert!(wide.contains(&format!(r#""docker":{{{remapped}}}"#)), "{wide}");
    let namespace = compact("/etc/crio/policies/n.json");
    let own =
        r#""a.io":[{"type":"sigstoreSigned","keyData":"a2V5","signedIdentity":{"type":"matchRepository"}}]"#;
    assert!(
        namespace.contains(&format!(r#""docker":{{{own},{remapped}}}"#)),
        "{namespace}"
    );
}

#[test]
fn what_the_container_tools_cannot_use_is_refused() {
    let gate = gates(&["SigstoreImageVerification"]);
    let with_identity =
        |identity: Value| vec![policy("ClusterImagePolicy", &["q.io"], &public_key(&identity))];
    let remap = |prefix: &str, signed: &str| {
        with_identity(
            json!({"matchPolicy": "RemapIdentity", "remapIdentity": {"prefix": prefix, "signedPrefix": signed}}),
        )
    };
    let mirror = |source: &str, mirror: &str| {
        mirrors(
            "ImageDigestMirrorSet",
            "idms",
            &json!([{"source": source, "mirrors": [mirror]}]),
        )
    };
    let signed = |scope: &str| {
        policy(
            "ClusterImagePolicy",
            &[scope],
            &public_key(&json!({"matchPolicy": "MatchRepository"})),
        )
    };
    let cases: Vec<(&str, Vec<Value>, &str)> = vec![
        (
            "a prefix with a tag",
            remap("q.io/a:tag", "q.io"),
            "ClusterImagePolicy \"p\": signedIdentity: remapIdentity.prefix \"q.io/a:tag\" is not a registry or repository",
        ),
        (
            "a signed prefix with a digest",
            remap("q.io", "q.io/a@sha256:00"),
            "remapIdentity.signedPrefix",
        ),
        (
            "an exact repository that is none",
            with_identity(
                json!({"matchPolicy": "ExactRepository", "exactRepository": {"repository": "q.io/A"}}),
            ),
            "exactRepository \"q.io/A\" is not a repository",
        ),
        (
            "an unknown match policy",
            with_identity(json!({"matchPolicy": ""})),
            "matchPolicy \"\" is not supported",
        ),
        (
            "a mirror that is a whole host, for a scope that is a repository",
            vec![mirror("q.io/a", "m.io:5000"), signed("q.io/a")],
            "image policy scope \"q.io/a\": its images cannot be looked up in registries.conf",
        ),
        (
            "the same inside a wildcard scope",
            vec![mirror("b.q.io/a", "m.io"), signed("*.q.io")],
            "image policy scope \"*.q.io\"",
        ),
        (
            "a mirror without a full host name",
            vec![mirror("q.io", "short"), signed("q.io/a/b")],
            "which is not a full image reference",
        ),
        (
            "a blocked entry inside a mirrored wildcard",
            vec![
                mirror("*.q.io", "m.io"),
                image(&json!({"blockedRegistries": ["a.q.io/x"]})),
            ],
            "ImageDigestMirrorSet \"idms\": the mirrors of \"*.q.io\" cannot be used for \"a.q.io/x\"",
        ),
    ];
    for (name, mut objects, expected) in cases {
        objects.push(gate.clone());
        let error = assemble(&objects, None).expect_err(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_release_that_is_pulled_by_tag_has_no_mirrors_by_digest() {
    let mirror = mirrors(
        "ImageDigestMirrorSet",
        "idms",
        &json!([{"source": "rel.io/ocp", "mirrors": ["m.io/ocp"]}]),
    );
    let objects = [
        mirror,
        image(&json!({"blockedRegistries": ["rel.io"]})),
        controller_config("rel.io/ocp/release:v1"),
    ];
    let cluster = assemble(&objects, None).unwrap();
    assert_eq!(entries(&cluster), ["rel.io/ocp >m.io/ocp(d)"]);
    assert!(
        cluster
            .warnings
            .iter()
            .any(|w| w.contains("cannot block the repository")),
        "{:?}",
        cluster.warnings
    );
}
