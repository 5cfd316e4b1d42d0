//! Template trees: hard cases of the language, the layers, the functions, and the built-in base tree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "a table of cases is as long as it has cases"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use mco_api::ControllerConfig;
use mco_core::generators::templates::{self, TemplateConfig, TemplateError, TemplateInputs, TemplateTree};
use mco_core::generators::tls_profile;
use mco_ignition::MergedItem;
use serde_json::{Value, json};

fn controller_config(platform: &Value, topology: &str) -> ControllerConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "machine-config-controller"},
        "spec": {
            "clusterDNSIP": "172.30.0.10",
            "images": {"infraImageKey": "q.io/pause:1", "b": "2", "a": "1"},
            "additionalTrustBundle": "bGluZTEKbGluZTIK",
            "infra": {"status": {
                "apiServerInternalURI": "https://api-int.lab.example.com:6443",
                "controlPlaneTopology": topology,
                "platformStatus": platform,
            }},
            "proxy": {"httpProxy": "http://proxy:3128", "noProxy": ".local,%20"},
            "network": {"mtuMigration": {"machine": {"from": 1400, "to": 9000}}},
        },
    }))
    .unwrap()
}

fn none() -> Value {
    json!({"type": "None"})
}

fn render(config: &ControllerConfig, tree: &TemplateTree) -> Result<Vec<TemplateConfig>, TemplateError> {
    templates::render(
        tree,
        &TemplateInputs {
            serving_certificates: true,
            spec: &config.spec,
            pull_secret: r#"{"auths":{}}"#,
            tls: tls_profile::settings(None),
            version: "test",
            owner: None,
        },
    )
}

/// A tree with these files and everything else that a tree requires.
fn tree(files: &[(&str, &str)]) -> TemplateTree {
    let required = ["master/00-master", "worker/00-worker", "arbiter/00-arbiter"].map(|directory| {
        (
            format!("{directory}/_base/files/required.yaml"),
            "path: /required\ncontents: {inline: x}\n".to_owned(),
        )
    });
    let given = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    required
        .into_iter()
        .chain(given)
        .map(|(path, text)| (path, text.into_bytes()))
        .collect()
}

/// Renders one template as the contents of a file.
fn body(config: &ControllerConfig, template: &str) -> Result<String, String> {
    let indented = template.replace('\n', "\n    ");
    let text = format!("mode: 0644\npath: /out\ncontents:\n  inline: |-\n    {indented}\n");
    let tree = tree(&[("worker/00-worker/_base/files/out.yaml", text.as_str())]);
    let configs = render(config, &tree).map_err(|error| error.to_string())?;
    Ok(templates::base_file(&configs, "worker", "/out")
        .unwrap_or_default()
        .to_owned())
}

#[test]
fn hard_templates_render_as_go_renders_them() {
    let config = controller_config(&none(), "HighlyAvailable");
    let cases = [
        (
            "nested range over a map comes in key order",
            "{{range $k, $v := .Images}}{{$k}}={{$v}};{{end}}",
            "a=1;b=2;infraImageKey=q.io/pause:1;",
        ),
        (
            "range with index and else",
            "{{range $i, $s := .TLSCipherSuites}}{{if lt $i 2}}{{if $i}}, {{end}}{{$s}}{{end}}{{else}}none{{end}}",
            "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384",
        ),
        (
            "an empty list takes the else branch",
            "{{range .ImageRegistryBundleData}}x{{else}}no bundles{{end}}",
            "no bundles",
        ),
        (
            "with rebinds the dot and dollar keeps the root",
            "{{with .Proxy}}{{.HTTPProxy}} via {{$.ClusterDNSIP}}{{else}}direct{{end}}",
            "http://proxy:3128 via 172.30.0.10",
        ),
        (
            "else-if chains stop at the first true one",
            r#"{{if eq .NetworkType "a"}}A{{else if and .Proxy (ne .ClusterDNSIP "")}}B{{else if true}}C{{else}}D{{end}}"#,
            "B",
        ),
        (
            "a variable assigned in a loop survives it",
            "{{$last := \"\"}}{{range .TLSCipherSuites}}{{$last = .}}{{end}}{{$last}}",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
        (
            "trim markers eat newlines on their side only",
            "a\n{{- if true -}}\n b\n{{- end }}\nc",
            "ab\nc",
        ),
        (
            "pipelines pass the value as the last argument",
            r#"{{.ClusterDNSIP | printf "%s/%d" "dns" | printf "<%q>"}}"#,
            r#"<"dns/%!d(string=172.30.0.10)">"#,
        ),
        (
            "printf verbs",
            r#"{{printf "%05d|%-4s|%x|%v|%t|%%" 42 "ab" 255 1.5 true}}"#,
            "00042|ab  |ff|1.5|true|%",
        ),
        (
            "comparisons, also of several values at once",
            r#"{{eq "b" "a" "b"}} {{lt 1 2}} {{ge "b" "a"}} {{not (gt 1 2)}} {{or "" "x"}} {{and 1 0}}"#,
            "true true true true x 0",
        ),
        (
            "a missing map key is <no value>, and false",
            "{{.Images.nothing}}|{{if .Images.nothing}}yes{{else}}no{{end}}",
            "<no value>|no",
        ),
        (
            "len, index and slice",
            r#"{{len .TLSCipherSuites}} {{index .Images "a"}} {{index .TLSCipherSuites 0 | len}} {{slice .ClusterDNSIP 0 3}}"#,
            "9 1 22 172",
        ),
        (
            "named templates with their own data",
            r#"{{define "kv"}}{{.}}!{{end}}{{range $k, $_ := .Images}}{{template "kv" $k}}{{end}}{{block "x" .ClusterDNSIP}}[{{.}}]{{end}}"#,
            "a!b!infraImageKey![172.30.0.10]",
        ),
        (
            "break and continue",
            "{{range $i, $s := .TLSCipherSuites}}{{if eq $i 1}}{{continue}}{{end}}{{if eq $i 3}}{{break}}{{end}}{{$i}}{{end}}",
            "02",
        ),
        (
            "comments vanish",
            "a{{/* not here */}}b{{- /* nor here */ -}} c",
            "abc",
        ),
        (
            "raw strings and nested calls",
            "{{printf `%s\\n` (printf \"%s\" .ClusterDNSIP)}}",
            "172.30.0.10\\n",
        ),
        (
            "numbers of a nested pointer",
            "{{.Network.MTUMigration.Machine.To}}",
            "9000",
        ),
        (
            "an absent pointer is false and a present one is true",
            "{{if .Network.MTUMigration.Network}}n{{end}}{{if .Network.MTUMigration.Machine}}m{{end}}{{if .DNS}}d{{end}}",
            "m",
        ),
    ];
    for (name, template, expected) in cases {
        assert_eq!(body(&config, template).unwrap(), expected, "{name}");
    }
}

#[test]
fn functions_answer_about_the_platform() {
    let metal = json!({"type": "BareMetal", "baremetal": {
        "apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"], "ingressIPs": ["192.0.2.6"],
        "loadBalancer": {"type": "UserManaged"}, "dnsRecordsType": "External",
    }});
    let aws = json!({"type": "AWS", "aws": {"region": "x", "cloudLoadBalancerConfig": {"dnsType": "ClusterHosted", "clusterHosted": {
        "apiIntLoadBalancerIPs": ["10.0.0.1"], "apiLoadBalancerIPs": ["10.0.0.2"], "ingressLoadBalancerIPs": ["10.0.0.3"],
    }}}});
    let ecr = "--image-credential-provider-bin-dir=/usr/libexec/kubelet-image-credential-provider-plugins \
               --image-credential-provider-config=/etc/kubernetes/credential-providers/ecr-credential-provider.yaml";
    let cases: Vec<(&str, Value, &str, Result<&str, &str>)> = vec![
        ("the platform's name", none(), "{{platformType .}}", Ok("None")),
        (
            "an unknown platform keeps its name",
            json!({"type": "Moon"}),
            "{{platformType .}}",
            Ok("Moon"),
        ),
        ("no cloud provider", none(), "[{{cloudProvider .}}]", Ok("[]")),
        (
            "an external cloud provider",
            aws.clone(),
            "{{cloudProvider .}}",
            Ok("external"),
        ),
        (
            "External with a manager",
            json!({"type": "External", "external": {"cloudControllerManager": {"state": "External"}}}),
            "{{cloudProvider .}}",
            Ok("external"),
        ),
        (
            "External without one",
            json!({"type": "External"}),
            "[{{cloudProvider .}}]",
            Ok("[]"),
        ),
        (
            "credential provider",
            aws.clone(),
            "{{credentialProviderConfigFlag .}}",
            Ok(ecr),
        ),
        (
            "no credential provider",
            none(),
            "[{{credentialProviderConfigFlag .}}]",
            Ok("[]"),
        ),
        (
            "the API's address",
            metal.clone(),
            "{{onPremPlatformAPIServerInternalIP .}}",
            Ok("192.0.2.5"),
        ),
        (
            "all of them",
            metal.clone(),
            r#"{{join (onPremPlatformAPIServerInternalIPs .) ","}}"#,
            Ok("192.0.2.5,2001:db8::5"),
        ),
        (
            "the ingress address",
            metal.clone(),
            "{{onPremPlatformIngressIP .}}",
            Ok("192.0.2.6"),
        ),
        (
            "not on a platform without them",
            none(),
            "{{onPremPlatformIngressIPs .}}",
            Err("invalid platform for Ingress IP: None"),
        ),
        (
            "vSphere without status",
            json!({"type": "VSphere"}),
            "[{{onPremPlatformAPIServerInternalIP .}}]",
            Ok("[<no value>]"),
        ),
        (
            "the short name",
            metal.clone(),
            "{{onPremPlatformShortName .}}",
            Ok("kni"),
        ),
        (
            "an external load balancer",
            metal.clone(),
            "{{isOpenShiftManagedDefaultLB .}}",
            Ok("false"),
        ),
        (
            "vSphere without addresses balances nothing",
            json!({"type": "VSphere", "vsphere": {}}),
            "{{isOpenShiftManagedDefaultLB .}}",
            Ok("false"),
        ),
        (
            "who serves records",
            metal,
            "{{dnsRecordsType .}}",
            Ok("External"),
        ),
        (
            "by default the cluster does",
            none(),
            "{{dnsRecordsType .}}",
            Ok("Internal"),
        ),
        (
            "a cloud's load balancers",
            aws.clone(),
            r#"{{join (cloudPlatformAPIIntLoadBalancerIPs .) ""}} {{cloudPlatformAPILoadBalancerIPs .}} {{cloudPlatformIngressLoadBalancerIPs .}}"#,
            Ok("10.0.0.1 [10.0.0.2] [10.0.0.3]"),
        ),
        (
            "none elsewhere",
            none(),
            "{{cloudPlatformAPILoadBalancerIPs .}}",
            Err("has no load balancer addresses"),
        ),
        (
            "a URL's host and port",
            none(),
            "{{urlHost .Infra.Status.APIServerInternalURL}} {{urlPort .Infra.Status.APIServerInternalURL}}",
            Ok("api-int.lab.example.com 6443"),
        ),
        (
            "default ports",
            none(),
            r#"{{urlPort "https://[2001:db8::1]/x"}} {{urlPort "http://x"}} {{urlHost "https://[2001:db8::1]/x"}}"#,
            Ok("443 80 2001:db8::1"),
        ),
        (
            "no default port",
            none(),
            r#"{{urlPort "ftp://x"}}"#,
            Err("unknown scheme"),
        ),
        (
            "indentation",
            none(),
            "x\n{{indent 4 \"a\\nb\"}}",
            Ok("x\n    a\nb"),
        ),
        (
            "bytes as text",
            none(),
            "{{.AdditionalTrustBundle | toString | len}}",
            Ok("12"),
        ),
        ("skip", none(), r#"{{skip "index"}}"#, Ok("{{.index}}")),
        ("skip nothing", none(), r#"{{skip ""}}"#, Err("skip")),
        ("skip a digit", none(), r#"{{skip "2two"}}"#, Err("skip")),
        ("skip two words", none(), r#"{{skip "test index"}}"#, Err("skip")),
        (
            "a constant",
            none(),
            "{{.Constants.APIServerURLFile}}",
            Ok("/etc/kubernetes/apiserver-url.env"),
        ),
        ("an unknown function", none(), "{{nonsense .}}", Err("nonsense")),
        (
            "nothing is false in a condition",
            none(),
            "{{if .Infra.Status.PlatformStatus.GCP}}a{{else}}b{{end}}{{with .Infra.Status.PlatformStatus.GCP}}c{{end}}",
            Ok("b"),
        ),
        (
            "a field of nothing is an error",
            none(),
            "{{.Infra.Status.PlatformStatus.GCP.Region}}",
            Err("Region"),
        ),
    ];
    for (name, platform, template, expected) in cases {
        let result = body(&controller_config(&platform, "HighlyAvailable"), template);
        match (result, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text, expected, "{name}"),
            (Err(error), Err(expected)) => {
                assert!(error.contains(expected), "{name}: {error}");
                assert!(
                    error.contains("failed to create MachineConfig for role worker"),
                    "{name}: {error}"
                );
                assert!(
                    error.contains("worker/00-worker/_base/files/out.yaml"),
                    "{name}: {error}"
                );
            }
            (result, expected) => panic!("{name}: {result:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn a_single_address_without_the_list_was_used() {
    let single = |platform: &str, key: &str| {
        let mut status = json!({"type": platform});
        status[key] = json!({"apiServerInternalIP": "192.0.2.5", "ingressIP": "192.0.2.6"});
        status
    };
    let all = "{{onPremPlatformAPIServerInternalIPs .}}{{onPremPlatformIngressIPs .}}";
    let first = "{{onPremPlatformAPIServerInternalIP .}}";
    for (platform, key, template, expected) in [
        ("BareMetal", "baremetal", all, Some("[][]")),
        ("VSphere", "vsphere", all, Some("[][]")),
        ("VSphere", "vsphere", first, Some("<no value>")),
        ("BareMetal", "baremetal", first, None),
        (
            "VSphere",
            "vsphere",
            "{{isOpenShiftManagedDefaultLB .}}",
            Some("false"),
        ),
        ("BareMetal", "none", all, None),
    ] {
        let config = controller_config(&single(platform, key), "HighlyAvailable");
        let found = body(&config, template);
        assert_eq!(
            found.as_deref().ok(),
            expected,
            "{platform} {template}: {found:?}"
        );
    }
}

#[test]
fn dns_that_the_cluster_hosts_had_no_layer_without_all_addresses() {
    let file = |text: &str| format!("mode: 0644\npath: /etc/x\ncontents: {{inline: {text}}}\n");
    let (base, dns) = (file("base"), file("dns"));
    let tree = tree(&[
        ("common/_base/files/x.yaml", &base),
        ("common/cloud-platform-alt-dns/files/x.yaml", &dns),
    ]);
    let hosted =
        json!({"dnsType": "ClusterHosted", "clusterHosted": {"apiIntLoadBalancerIPs": ["10.0.0.1"]}});
    let pending = json!({"dnsType": "ClusterHosted"});
    let default = json!({"dnsType": "PlatformDefault", "clusterHosted": {}});
    for (platform, key, balancers, expected) in [
        ("GCP", "gcp", &hosted, "dns"),
        ("AWS", "aws", &hosted, "dns"),
        ("Azure", "azure", &hosted, "dns"),
        ("GCP", "gcp", &pending, "base"),
        ("GCP", "gcp", &default, "base"),
        ("IBMCloud", "gcp", &hosted, "base"),
    ] {
        let mut status = json!({"type": platform});
        status[key] = json!({ "cloudLoadBalancerConfig": balancers });
        let configs = render(&controller_config(&status, "HighlyAvailable"), &tree).unwrap();
        let found = templates::base_file(&configs, "worker", "/etc/x");
        assert_eq!(found, Some(expected), "{status}");
    }
}

#[test]
fn platforms_without_a_layer_get_the_one_of_none_and_keep_their_answers() {
    let file = |text: &str| format!("mode: 0644\npath: /etc/x\ncontents: {{inline: \"{text}\"}}\n");
    let answers = "{{platformType .}} {{cloudProvider .}} {{isOpenShiftManagedDefaultLB .}}";
    let (none, own) = (file(answers), file("own"));
    for (platform, expected) in [
        ("IBMCloud", "IBMCloud external true"),
        ("AlibabaCloud", "AlibabaCloud external true"),
        ("EquinixMetal", "EquinixMetal  true"),
        ("Moon", "Moon  true"),
        ("PowerVS", "own"),
    ] {
        let layer = format!("common/{}/files/x.yaml", platform.to_lowercase());
        let tree = tree(&[("common/none/files/x.yaml", &none), (&layer, &own)]);
        let config = controller_config(&json!({ "type": platform }), "HighlyAvailable");
        let configs = render(&config, &tree).unwrap();
        let found = templates::base_file(&configs, "worker", "/etc/x");
        assert_eq!(found, Some(expected));
    }
}

#[test]
fn layers_override_delete_and_leave_alone_by_base_name() {
    let file = |text: &str| format!("mode: 0644\npath: /etc/x\ncontents: {{inline: {text}}}\n");
    let (base, metal, sno) = (file("base"), file("metal"), file("sno"));
    let cases: Vec<(&str, &str, &str, Vec<(&str, &str)>, Option<&str>)> = vec![
        (
            "base alone",
            "None",
            "HighlyAvailable",
            vec![("common/_base/files/x.yaml", &base)],
            Some("base"),
        ),
        (
            "the platform overrides common and role base",
            "BareMetal",
            "HighlyAvailable",
            vec![
                ("common/_base/files/x.yaml", &base),
                ("worker/00-worker/baremetal/files/x.yaml", &metal),
            ],
            Some("metal"),
        ),
        (
            "another platform's layer does not count",
            "None",
            "HighlyAvailable",
            vec![
                ("common/_base/files/x.yaml", &base),
                ("worker/00-worker/baremetal/files/x.yaml", &metal),
            ],
            Some("base"),
        ),
        (
            "a role's base beats every common layer",
            "BareMetal",
            "HighlyAvailable",
            vec![
                ("common/baremetal/files/x.yaml", &metal),
                ("worker/00-worker/_base/files/x.yaml", &base),
            ],
            Some("base"),
        ),
        (
            "on-prem lies between base and platform",
            "BareMetal",
            "HighlyAvailable",
            vec![
                ("common/_base/files/x.yaml", &base),
                ("common/on-prem/files/x.yaml", &metal),
            ],
            Some("metal"),
        ),
        (
            "a single node's layer is the last",
            "BareMetal",
            "SingleReplica",
            vec![
                ("common/baremetal/files/x.yaml", &metal),
                ("common/sno/files/x.yaml", &sno),
            ],
            Some("sno"),
        ),
        (
            "an empty file deletes",
            "BareMetal",
            "HighlyAvailable",
            vec![
                ("common/_base/files/x.yaml", &base),
                ("common/baremetal/files/x.yaml", ""),
            ],
            None,
        ),
        (
            "one that renders to whitespace does not",
            "BareMetal",
            "HighlyAvailable",
            vec![
                ("common/_base/files/x.yaml", &base),
                ("common/baremetal/files/x.yaml", "{{if false}}x{{end}}\n \n"),
            ],
            Some("base"),
        ),
    ];
    for (name, platform, topology, files, expected) in cases {
        let config = controller_config(&json!({ "type": platform }), topology);
        let configs = render(&config, &tree(&files)).unwrap();
        assert_eq!(
            templates::base_file(&configs, "worker", "/etc/x"),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_tree_gives_one_config_per_name_with_its_origins() {
    let tree = tree(&[
        (
            "common/_base/units/crio.service.yaml",
            "name: crio.service\ndropins:\n- {name: a.conf, contents: \"[Service]\\nNice=1\\n\"}\n",
        ),
        (
            "worker/00-worker/_base/units/crio.service-proxy.yaml",
            "name: crio.service\ndropins:\n- {name: b.conf, contents: \"[Service]\\nNice=2\\n\"}\n",
        ),
        ("worker/00-worker/_base/extensions/usbguard", "yes"),
        ("worker/00-worker/_base/extensions/kerberos", " \n"),
        (
            "worker/01-worker-kubelet/_base/files/k.yaml",
            "mode: 0600\npath: /k\nuser: {id: 5}\ncontents: {inline: \"a b\"}\n",
        ),
    ]);
    let configs = render(&controller_config(&none(), "HighlyAvailable"), &tree).unwrap();
    let names: Vec<&str> = configs.iter().map(|config| config.generated.name()).collect();
    assert_eq!(names, ["00-master", "00-worker", "01-worker-kubelet"]);
    let worker = &configs[1].generated;
    let spec = serde_json::to_value(&worker.config.spec).unwrap();
    assert_eq!(spec["extensions"], json!(["usbguard"]));
    let dropins = &spec["config"]["systemd"]["units"][0]["dropins"];
    assert_eq!(
        dropins.as_array().unwrap().len(),
        2,
        "drop-ins of one unit accumulate"
    );
    let origin = |dropin: &str| {
        let (unit, name) = ("crio.service".to_owned(), dropin.to_owned());
        worker.origin.items[&MergedItem::Dropin { unit, name }].clone()
    };
    assert_eq!(origin("a.conf"), "template common/_base/units/crio.service.yaml");
    assert_eq!(
        origin("b.conf"),
        "template worker/00-worker/_base/units/crio.service-proxy.yaml"
    );
    let kubelet = serde_json::to_value(&configs[2].generated.config.spec).unwrap();
    assert_eq!(
        kubelet["config"]["storage"]["files"],
        json!([{"path": "/k", "mode": 0o600, "overwrite": true, "user": {"id": 5}, "contents": {"source": "data:,a%20b"}}])
    );
}

#[test]
fn platforms_and_roles_that_cannot_be_rendered_are_refused() {
    let cases = [
        (
            json!({"type": ""}),
            "HighlyAvailable",
            Some("cannot generate MachineConfigs when no platformStatus.type is set"),
        ),
        (
            json!({"type": "_base"}),
            "HighlyAvailable",
            Some("platform _base unsupported"),
        ),
        (json!({"type": "_bad_"}), "HighlyAvailable", None),
        (none(), "HighlyAvailableArbiter", None),
    ];
    for (platform, topology, expected) in cases {
        let outcome = render(&controller_config(&platform, topology), &tree(&[]));
        let error = outcome.as_ref().err().map(ToString::to_string);
        assert_eq!(error.as_deref(), expected, "{platform}");
        if let Ok(configs) = outcome {
            let roles: BTreeSet<&str> = configs.iter().map(|config| config.role.as_str()).collect();
            assert_eq!(roles.contains("arbiter"), topology == "HighlyAvailableArbiter");
        }
    }
    let empty = render(
        &controller_config(&none(), "HighlyAvailable"),
        &TemplateTree::default(),
    );
    assert!(matches!(empty, Err(TemplateError::NoRole { .. })));
}

fn files_below(directory: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, root, found);
        } else {
            found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn the_embedded_tree_is_the_directory() {
    let root = mco_testkit::repository_root().join("templates");
    let mut expected = BTreeSet::new();
    files_below(&root, &root, &mut expected);
    expected.remove("README.md");
    let tree = TemplateTree::embedded();
    let embedded: BTreeSet<String> = tree.paths().map(str::to_owned).collect();
    assert_eq!(embedded, expected);
}

#[test]
fn our_own_tree_is_complete_commented_and_presumes_no_product() {
    for topology in ["HighlyAvailable", "HighlyAvailableArbiter", "DualReplica"] {
        let configs = render(&controller_config(&none(), topology), &TemplateTree::embedded()).unwrap();
        for role in ["master", "worker"] {
            for path in [
                "/etc/kubernetes/kubelet.conf",
                "/etc/containers/storage.conf",
                "/etc/containers/registries.conf",
                "/etc/containers/policy.json",
                "/etc/crio/crio.conf.d/00-default",
                "/etc/containerd/mco.toml",
                "/etc/node-sizing-enabled.env",
                "/etc/mco/proxy.env",
                "/etc/systemd/journald.conf.d/50-log-limits.conf",
                "/etc/modules-load.d/50-kubernetes.conf",
            ] {
                let text = templates::base_file(&configs, role, path);
                assert!(text.is_some_and(|text| !text.trim().is_empty()), "{role} {path}");
            }
        }
        for config in &configs {
            let checked = mco_core::config::validate::check(&config.generated.config.clone().into()).unwrap();
            assert!(
                checked.warnings.is_empty(),
                "{}: {:?}",
                config.generated.name(),
                checked.warnings
            );
            let text = serde_json::to_string(&config.generated.config.spec).unwrap();
            assert!(
                !text.to_lowercase().contains("openshift"),
                "{}",
                config.generated.name()
            );
            assert!(!text.contains("no%20value"), "{}", config.generated.name());
        }
    }
    let tree = TemplateTree::embedded();
    let root = mco_testkit::repository_root().join("templates");
    for path in tree.paths() {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        // An empty file removes one of a more general layer.
        assert!(
            text.is_empty() || text.lines().any(|line| line.trim_start().starts_with("# ")),
            "{path} has no comment"
        );
    }
}

#[test]
fn a_proxy_file_has_only_what_is_set() {
    let configs = render(
        &controller_config(&none(), "HighlyAvailable"),
        &TemplateTree::embedded(),
    )
    .unwrap();
    let proxy = templates::base_file(&configs, "worker", "/etc/mco/proxy.env").unwrap();
    let lines: Vec<&str> = proxy.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["HTTP_PROXY=http://proxy:3128", "NO_PROXY=.local,%20"]);
}

/// Returns the environment that the kubelet's pre-start script writes, with the credential provider's description and
/// program in other directories.
fn environment_of_kubelet(configs: &[TemplateConfig], description: &Path, programs: &Path) -> String {
    let script = templates::base_file(configs, "worker", "/usr/local/sbin/kubelet-runtime-endpoint.sh");
    let script = script
        .unwrap()
        .replace("/run/kubelet-runtime.env", "/dev/stdout")
        .replace(
            "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml",
            description.to_str().unwrap(),
        )
        .replace(
            "/usr/libexec/kubelet-image-credential-provider-plugins/",
            &format!("{}/", programs.to_str().unwrap()),
        );
    let ran = Command::new("sh").arg("-c").arg(script).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_kubelet_uses_credential_providers_that_are_described_on_its_machine() {
    let variable = "KUBELET_CRIO_IMAGE_CREDENTIAL_PROVIDER_FLAGS";
    let directory = tempfile::tempdir().unwrap();
    let described = directory.path().join("ecr-credential-provider.yaml");
    let missing = directory.path().join("none.yaml");
    std::fs::write(&described, "").unwrap();
    std::os::unix::fs::symlink("/bin/true", directory.path().join("ecr-credential-provider")).unwrap();
    let here = directory.path();
    let elsewhere = here.join("none");
    for (platform, description, programs, is_told) in [
        (json!({"type": "None"}), &described, here, false),
        (
            json!({"type": "AWS", "aws": {"region": "x"}}),
            &missing,
            here,
            false,
        ),
        // A kubelet without the program ends.
        (
            json!({"type": "AWS", "aws": {"region": "x"}}),
            &described,
            elsewhere.as_path(),
            false,
        ),
        (
            json!({"type": "AWS", "aws": {"region": "x"}}),
            &described,
            here,
            true,
        ),
    ] {
        let config = controller_config(&platform, "HighlyAvailableArbiter");
        let configs = render(&config, &TemplateTree::embedded()).unwrap();
        let environment = environment_of_kubelet(&configs, description, programs);
        assert!(
            environment.starts_with("KUBELET_RUNTIME_ENDPOINT=unix:///run/"),
            "{environment}"
        );
        let reported = format!(
            "\n{variable}=--image-credential-provider-bin-dir=/usr/libexec/kubelet-image-credential-provider-plugins \
             --image-credential-provider-config={}\n",
            description.display()
        );
        assert_eq!(
            environment.ends_with(&reported),
            is_told,
            "{platform}: {environment}"
        );
        assert_eq!(
            environment.contains(variable),
            is_told,
            "{platform}: {environment}"
        );
        let mut kubelets = 0;
        for config in &configs {
            let spec = serde_json::to_value(&config.generated.config.spec).unwrap();
            let units = spec.pointer("/config/systemd/units").and_then(Value::as_array);
            for unit in units.into_iter().flatten() {
                if unit["name"] == "kubelet.service" {
                    let contents = unit["contents"].as_str().unwrap();
                    // A variable without braces expands to as many arguments as it has words, or none.
                    assert!(
                        contents.contains(&format!("\n    ${variable} \\\n")),
                        "{contents}"
                    );
                    assert!(!contents.contains("--image-credential-provider"), "{contents}");
                    kubelets += 1;
                }
            }
        }
        assert_eq!(kubelets, 3, "of the control plane, workers and arbiters");
    }
}

#[test]
fn credentials_are_compacted_without_being_read() {
    for (text, expected) in [
        (
            "{ \"auths\": { \"a b\": \"c\\\" d\" } }\n",
            Some("{\"auths\":{\"a b\":\"c\\\" d\"}}"),
        ),
        ("{\"a\":1} trailing", None),
        ("", None),
    ] {
        assert_eq!(
            templates::compact_json(text.as_bytes()).as_deref(),
            expected,
            "{text:?}"
        );
    }
}
