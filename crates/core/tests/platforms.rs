//! The built-in templates of platforms: virtual addresses of on-premises clusters, clouds, single nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use gotmpl::{Template, Value as GoValue};
use mco_api::ControllerConfig;
use mco_core::generators::templates::{self, TemplateConfig, TemplateInputs, TemplateTree};
use mco_core::generators::tls_profile;
use serde_json::{Value, json};

const RESOURCES: &str = "/etc/kubernetes/static-pod-resources";

/// A cluster with the images of a release.
fn cluster(platform: &Value, topology: &str) -> ControllerConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "machine-config-controller"},
        "spec": {
            "clusterDNSIP": "172.30.0.10",
            "ipFamilies": "IPv4",
            "dns": {"spec": {"baseDomain": "lab.example.com"}},
            "images": {
                "infraImageKey": "q.io/pause:1",
                "corednsImage": "q.io/coredns:1",
                "keepalivedImage": "q.io/keepalived:1",
                "haproxyImage": "q.io/haproxy:1",
                "baremetalRuntimeCfgImage": "q.io/runtimecfg:1",
            },
            "infra": {"status": {
                "apiServerInternalURI": "https://api-int.lab.example.com:6443",
                "controlPlaneTopology": topology,
                "platformStatus": platform,
            }},
        },
    }))
    .unwrap()
}

fn bare_metal() -> Value {
    json!({"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["192.0.2.5"], "ingressIPs": ["192.0.2.6"]}})
}

fn openstack() -> Value {
    json!({"type": "OpenStack", "openstack": {"apiServerInternalIPs": ["192.0.2.5"], "ingressIPs": ["192.0.2.6"]}})
}

fn render_with(config: &ControllerConfig, tree: &TemplateTree) -> Vec<TemplateConfig> {
    let inputs = TemplateInputs {
        serving_certificates: true,
        spec: &config.spec,
        pull_secret: r#"{"auths":{}}"#,
        tls: tls_profile::settings(None),
        version: "test",
        owner: None,
    };
    templates::render(tree, &inputs).unwrap()
}

fn render(config: &ControllerConfig) -> Vec<TemplateConfig> {
    render_with(config, &TemplateTree::embedded())
}

/// The built-in tree without the layers of platforms and topologies.
fn without_layers() -> TemplateTree {
    let root = mco_testkit::repository_root().join("templates");
    let tree = TemplateTree::embedded();
    let base = tree.paths().filter(|path| path.contains("/_base/"));
    base.map(|path| (path.to_owned(), std::fs::read(root.join(path)).unwrap()))
        .collect()
}

/// Returns the sets of paths and of units of a role that the layers add.
fn added(config: &ControllerConfig, role: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (all, base) = (render(config), render_with(config, &without_layers()));
    let difference = |all: BTreeMap<String, Vec<Value>>, base: BTreeMap<String, Vec<Value>>| {
        let added = all
            .into_iter()
            .filter(|(name, item)| base.get(name) != Some(item));
        added.map(|(name, _)| name).collect()
    };
    (
        difference(
            items(&all, role, "/config/storage/files", "path"),
            items(&base, role, "/config/storage/files", "path"),
        ),
        difference(
            items(&all, role, "/config/systemd/units", "name"),
            items(&base, role, "/config/systemd/units", "name"),
        ),
    )
}

fn items(configs: &[TemplateConfig], role: &str, list: &str, key: &str) -> BTreeMap<String, Vec<Value>> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for config in configs.iter().filter(|config| config.role == role) {
        let spec = serde_json::to_value(&config.generated.config.spec).unwrap();
        for item in spec.pointer(list).and_then(Value::as_array).into_iter().flatten() {
            let of_name = found.entry(item[key].as_str().unwrap().to_owned()).or_default();
            of_name.push(item.clone());
        }
    }
    found
}

/// Returns a unit of a role, without drop-ins from other MachineConfigs.
fn unit(configs: &[TemplateConfig], role: &str, name: &str) -> Value {
    let mut units = items(configs, role, "/config/systemd/units", "name");
    units
        .remove(name)
        .and_then(|mut all| all.pop())
        .unwrap_or_default()
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn file<'a>(configs: &'a [TemplateConfig], role: &str, path: &str) -> &'a str {
    templates::base_file(configs, role, path).unwrap_or_else(|| panic!("{role} has no {path}"))
}

#[test]
fn a_bare_metal_cluster_has_its_virtual_addresses_and_names() {
    let config = cluster(&bare_metal(), "HighlyAvailable");
    let common = [
        "/etc/NetworkManager/conf.d/99-kni.conf",
        "/etc/NetworkManager/dispatcher.d/30-resolv-prepender",
        "/etc/keepalived/monitor.conf",
        "/etc/kubernetes/manifests/coredns.yaml",
        "/etc/kubernetes/manifests/keepalived.yaml",
        "/etc/kubernetes/static-pod-resources/coredns/Corefile.tmpl",
        "/etc/kubernetes/static-pod-resources/keepalived/keepalived.conf.tmpl",
        "/etc/kubernetes/static-pod-resources/keepalived/scripts/chk_default_ingress.sh.tmpl",
        "/usr/local/bin/configure-ip-forwarding.sh",
        "/usr/local/bin/resolv-prepender.sh",
    ];
    let of_control_plane = [
        "/etc/kubernetes/manifests/haproxy.yaml",
        "/etc/kubernetes/static-pod-resources/haproxy/haproxy.cfg.tmpl",
        "/etc/kubernetes/static-pod-resources/keepalived/scripts/chk_mcs_script.sh.tmpl",
        "/etc/kubernetes/static-pod-resources/keepalived/scripts/chk_ocp_script.sh.tmpl",
        "/etc/kubernetes/static-pod-resources/keepalived/scripts/chk_ocp_script_both.sh.tmpl",
    ];
    let units = set(&[
        "kubelet.service",
        "nodeip-configuration.service",
        "on-prem-resolv-prepender.path",
        "on-prem-resolv-prepender.service",
    ]);
    let (paths, added_units) = added(&config, "worker");
    assert_eq!((paths, &added_units), (set(&common), &units));
    let (paths, added_units) = added(&config, "master");
    let all: Vec<&str> = common.iter().chain(&of_control_plane).copied().collect();
    assert_eq!((paths, &added_units), (set(&all), &units));
    let configs = render(&config);
    for role in ["master", "worker"] {
        assert_eq!(
            unit(&configs, role, "nodeip-configuration.service")["enabled"],
            true
        );
        assert_eq!(
            unit(&configs, role, "on-prem-resolv-prepender.path")["enabled"],
            true
        );
        let kubelet = unit(&configs, role, "kubelet.service").to_string();
        assert!(kubelet.contains("--node-ip=${KUBELET_NODE_IP} "), "{kubelet}");
    }
}

/// The pods are well-formed, use the images of the ControllerConfig and mount what they declare.
#[test]
fn static_pods_are_complete() {
    let configs = render(&cluster(&bare_metal(), "HighlyAvailable"));
    let images = [
        "q.io/coredns:1",
        "q.io/keepalived:1",
        "q.io/haproxy:1",
        "q.io/runtimecfg:1",
    ];
    for (name, own_image) in [
        ("coredns", images[0]),
        ("keepalived", images[1]),
        ("haproxy", images[2]),
    ] {
        let text = file(
            &configs,
            "master",
            &format!("/etc/kubernetes/manifests/{name}.yaml"),
        );
        assert!(!text.contains("no value"), "{text}");
        let pod: Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(pod["kind"], "Pod");
        assert_eq!(pod["metadata"]["name"], name);
        assert_eq!(pod["metadata"]["namespace"], "openshift-kni-infra");
        assert_eq!(pod["spec"]["hostNetwork"], true);
        assert_eq!(pod["spec"]["priorityClassName"], "system-node-critical");
        let volumes: BTreeSet<&str> = list(&pod["spec"]["volumes"], "name");
        let mut mounted = BTreeSet::new();
        let mut used = BTreeSet::new();
        for containers in ["initContainers", "containers"] {
            for container in pod["spec"][containers].as_array().unwrap() {
                used.insert(container["image"].as_str().unwrap());
                mounted.extend(list(&container["volumeMounts"], "name"));
                for script in [&container["args"], &container["livenessProbe"]["exec"]["command"]] {
                    let is_script = container["command"][0] == "/bin/bash" || script[0] == "/bin/bash";
                    let lines = script.as_array().into_iter().flatten().filter_map(Value::as_str);
                    lines.filter(|_| is_script).for_each(is_shell);
                }
            }
        }
        assert_eq!(mounted, volumes, "{name}");
        assert_eq!(used, BTreeSet::from([own_image, images[3]]), "{name}");
    }
}

fn list<'a>(items: &'a Value, key: &str) -> BTreeSet<&'a str> {
    let items = items.as_array().into_iter().flatten();
    items.map(|item| item[key].as_str().unwrap()).collect()
}

/// Checks the syntax of a script.
fn is_shell(script: &str) {
    let mut bash = Command::new("bash")
        .args(["-n", "-s"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let ended = bash.wait_with_output().unwrap();
    assert!(
        ended.status.success(),
        "{}\n{script}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn every_script_of_every_platform_is_valid() {
    let mut scripts = 0;
    for (platform, topology) in [
        (bare_metal(), "HighlyAvailable"),
        (json!({"type": "AWS", "aws": {"region": "x"}}), "HighlyAvailable"),
        (json!({"type": "GCP"}), "HighlyAvailable"),
        (json!({"type": "Azure"}), "HighlyAvailable"),
        (openstack(), "HighlyAvailable"),
        (json!({"type": "VSphere"}), "SingleReplica"),
    ] {
        let config = cluster(&platform, topology);
        let configs = render(&config);
        for role in ["master", "worker"] {
            for path in added(&config, role).0 {
                let text = file(&configs, role, &path);
                assert!(!text.contains("no value"), "{path}: {text}");
                if text.starts_with("#!") {
                    is_shell(text);
                    scripts += 1;
                }
            }
            for config in configs.iter().filter(|config| config.role == role) {
                let checked =
                    mco_core::config::validate::check(&config.generated.config.clone().into()).unwrap();
                assert!(checked.warnings.is_empty(), "{platform}: {:?}", checked.warnings);
            }
        }
    }
    assert!(scripts >= 15, "{scripts}");
}

/// A cluster whose platform has no layer here is rendered to the same bytes as before there were layers.
#[test]
fn clusters_of_other_platforms_get_nothing_of_the_layers() {
    for platform in ["None", "External", "Libvirt", "PowerVS", "SomethingElse"] {
        for topology in [
            "HighlyAvailable",
            "HighlyAvailableArbiter",
            "SingleReplica",
            "DualReplica",
        ] {
            let config = cluster(&json!({"type": platform}), topology);
            assert_eq!(
                render(&config),
                render_with(&config, &without_layers()),
                "{platform} {topology}"
            );
            for role in ["master", "worker"] {
                let kubelet = unit(&render(&config), role, "kubelet.service").to_string();
                for part in ["--node-ip=$", "--hostname-override", "--provider-id", "node.env"] {
                    assert!(!kubelet.contains(part), "{platform}: {kubelet}");
                }
            }
        }
    }
}

/// Static pods without an image would fail for ever, and name servers that do not exist would cut a machine off.
#[test]
fn a_cluster_without_the_images_of_a_release_gets_none_of_the_pods() {
    let mut config = cluster(&bare_metal(), "HighlyAvailable");
    config.spec.images.retain(|name, _| name == "infraImageKey");
    for role in ["master", "worker"] {
        let (paths, units) = added(&config, role);
        assert_eq!((paths, units), (BTreeSet::new(), BTreeSet::new()), "{role}");
        let kubelet = unit(&render(&config), role, "kubelet.service").to_string();
        assert!(!kubelet.contains("--node-ip=$"), "{kubelet}");
    }
}

#[test]
fn pods_that_must_not_run_are_not_in_the_kubelets_directory() {
    let manifests = |platform: &Value| {
        let (paths, _) = added(&cluster(platform, "HighlyAvailable"), "master");
        let paths = paths.into_iter().filter(|path| path.contains("manifests/"));
        paths.collect::<BTreeSet<_>>()
    };
    let user_managed = json!({"type": "BareMetal", "baremetal": {
        "apiServerInternalIPs": ["192.0.2.5"], "ingressIPs": ["192.0.2.6"], "loadBalancer": {"type": "UserManaged"},
    }});
    assert_eq!(
        manifests(&user_managed),
        set(&[
            "/etc/kubernetes/disabled-manifests/haproxy.yaml",
            "/etc/kubernetes/disabled-manifests/keepalived.yaml",
            "/etc/kubernetes/manifests/coredns.yaml",
        ])
    );
    let no_addresses = json!({"type": "VSphere"});
    assert_eq!(
        manifests(&no_addresses),
        set(&[
            "/etc/kubernetes/disabled-manifests/coredns.yaml",
            "/etc/kubernetes/disabled-manifests/haproxy.yaml",
            "/etc/kubernetes/disabled-manifests/keepalived.yaml",
        ])
    );
    let configs = render(&cluster(&no_addresses, "HighlyAvailable"));
    assert_eq!(
        unit(&configs, "worker", "nodeip-configuration.service")["enabled"],
        false
    );
    let arbiters = added(&cluster(&bare_metal(), "HighlyAvailableArbiter"), "arbiter").0;
    assert!(
        arbiters.contains("/etc/kubernetes/manifests/coredns.yaml"),
        "{arbiters:?}"
    );
    assert!(
        !arbiters.iter().any(|path| path.contains("keepalived")),
        "arbiters have no virtual address: {arbiters:?}"
    );
}

/// Fills in what the program of the image fills in on the machine.
fn on_machine(template: &str, data: &Value) -> String {
    let text = Template::new("machine").parse(template).unwrap();
    text.execute_to_string(&go(data)).unwrap()
}

fn go(value: &Value) -> GoValue {
    match value {
        Value::Null => GoValue::Nil,
        Value::Bool(value) => GoValue::Bool(*value),
        Value::Number(number) => GoValue::Int(number.as_i64().unwrap()),
        Value::String(text) => GoValue::String(text.as_str().into()),
        Value::Array(items) => GoValue::List(items.iter().map(go).collect()),
        Value::Object(fields) => GoValue::Map(
            fields
                .iter()
                .map(|(name, value)| (name.as_str().into(), go(value)))
                .collect::<BTreeMap<_, _>>()
                .into(),
        ),
    }
}

fn node(own: &str) -> Value {
    let backend = |host: &str, address: &str| json!({"Host": host, "Address": address, "Port": 6443});
    json!({
        "NonVirtualIP": own,
        "EnableUnicast": true,
        "VRRPInterface": "eth0",
        "DNSUpstreams": ["192.0.2.1"],
        "LBConfig": {
            "ApiPort": 6443, "LbPort": 9445, "StatPort": 29445,
            "Backends": [backend("master-0", "192.0.2.10"), backend("master-1", "192.0.2.11")],
        },
        "IngressConfig": {"Peers": ["192.0.2.11", "192.0.2.20"]},
        "Cluster": {
            "Name": "lab", "Domain": "example.com",
            "APIVIP": "192.0.2.5", "IngressVIP": "192.0.2.6", "VIPNetmask": 32,
            "APIVirtualRouterID": 7, "IngressVirtualRouterID": 8,
            "APIVIPRecordType": "A", "APIVIPEmptyType": "AAAA",
            "IngressVIPRecordType": "A", "IngressVIPEmptyType": "AAAA",
            "NodeAddresses": [{"Address": "192.0.2.10", "Name": "master-0"}],
        },
    })
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_machine_announces_the_addresses_whose_peer_it_is() {
    let configs = render(&cluster(&bare_metal(), "HighlyAvailable"));
    let template = |role: &str| {
        file(
            &configs,
            role,
            &format!("{RESOURCES}/keepalived/keepalived.conf.tmpl"),
        )
    };
    let on = |role: &str, own: &str| {
        let mut data = node(own);
        data["Configs"] = json!([node(own)]);
        on_machine(template(role), &data)
    };
    let master = on("master", "192.0.2.11");
    assert_eq!(
        master.matches('{').count(),
        master.matches('}').count(),
        "{master}"
    );
    let text = words(&master);
    let api = "vrrp_instance lab_API_0 { state BACKUP interface eth0 virtual_router_id 7 priority 40 advert_int 1 \
               unicast_src_ip 192.0.2.11 unicast_peer { 192.0.2.10 } authentication { auth_type PASS auth_pass \
               lab_api_vip } virtual_ipaddress { 192.0.2.5/32 label vip } track_script { chk_ocp_lb chk_ocp_both chk_mcs } }";
    assert!(text.contains(api), "{master}");
    let ingress = "vrrp_instance lab_INGRESS_0 { state BACKUP interface eth0 virtual_router_id 8 priority 20 advert_int 1 \
                   unicast_src_ip 192.0.2.11 unicast_peer { 192.0.2.20 }";
    assert!(text.contains(ingress), "{master}");
    assert!(!text.contains("vrrp_sync_group"), "{master}");

    let worker = on("worker", "192.0.2.20");
    assert!(
        worker.contains("lab_INGRESS_0") && !worker.contains("_API_"),
        "{worker}"
    );
    let other = on("worker", "192.0.2.30");
    assert!(!other.contains("vrrp_instance"), "it is no peer: {other}");
    // Of every script that is tracked there is a check.
    for name in master.split_whitespace().filter(|word| word.starts_with("chk_")) {
        assert!(master.contains(&format!("vrrp_script {name} {{")), "{name}");
    }
}

#[test]
fn both_families_of_openstack_move_together() {
    let platform = json!({"type": "OpenStack", "openstack":
        {"apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"], "ingressIPs": ["192.0.2.6", "2001:db8::6"]}});
    let mut config = cluster(&platform, "HighlyAvailable");
    config.spec.ip_families = "DualStack".to_owned();
    let configs = render(&config);
    let template = file(
        &configs,
        "master",
        &format!("{RESOURCES}/keepalived/keepalived.conf.tmpl"),
    );
    let mut data = node("192.0.2.11");
    data["Configs"] = json!([node("192.0.2.11"), node("192.0.2.11")]);
    let text = on_machine(template, &data);
    assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
    let words = words(&text);
    let group = "vrrp_sync_group VG_API { group { lab_API_0 lab_API_1 } track_script { chk_ocp_lb chk_ocp_both chk_mcs } }";
    assert!(words.contains(group), "{text}");
    assert!(
        words.contains("vrrp_sync_group VG_INGRESS { group { lab_INGRESS_0 lab_INGRESS_1 }"),
        "{text}"
    );
    let kubelet = unit(&configs, "master", "kubelet.service").to_string();
    assert!(kubelet.contains("--node-ip=${KUBELET_NODE_IPS} "), "{kubelet}");
}

#[test]
fn the_load_balancer_and_the_name_server_are_configured_on_the_machine() {
    let configs = render(&cluster(&bare_metal(), "HighlyAvailable"));
    let balancer = file(
        &configs,
        "master",
        &format!("{RESOURCES}/haproxy/haproxy.cfg.tmpl"),
    );
    let text = on_machine(balancer, &node("192.0.2.11"));
    for line in [
        "bind :::9445 v4v6",
        "bind localhost:29445",
        "server master-0 192.0.2.10:6443 check check-ssl verify none inter 5s rise 1 fall 3",
        "server master-1 192.0.2.11:6443 check",
        "monitor-uri /haproxy_ready",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let mut alone = node("192.0.2.11");
    alone["LBConfig"]["Backends"] = json!([]);
    assert!(
        !on_machine(balancer, &alone).contains("haproxy_ready"),
        "nothing is ready without an API server"
    );

    let names = on_machine(
        file(&configs, "worker", &format!("{RESOURCES}/coredns/Corefile.tmpl")),
        &node("192.0.2.20"),
    );
    assert_eq!(
        names.matches("{{").count(),
        names.matches("}}").count(),
        "{names}"
    );
    for line in [
        "template IN A lab.example.com {",
        "match ^api(-int)?[.]lab.example.com[.]?$",
        "answer \"{{ .Name }} 60 in {{ .Type }} 192.0.2.5\"",
        "match [.]apps[.]lab.example.com[.]?$",
        "answer \"{{ .Name }} 60 in {{ .Type }} 192.0.2.6\"",
        "192.0.2.10 master-0 master-0.lab.example.com",
        "forward . 192.0.2.1 {",
    ] {
        assert!(names.contains(line), "{line} in {names}");
    }
}

#[test]
fn clouds_get_names_and_credential_providers() {
    let cases = [
        (
            json!({"type": "AWS", "aws": {"region": "x"}}),
            "ecr",
            ["--hostname-override=", "--provider-id="].as_slice(),
        ),
        (json!({"type": "Azure"}), "acr", &[]),
        (json!({"type": "GCP"}), "gcr", &[]),
    ];
    for (platform, provider, flags) in cases {
        let configs = render(&cluster(&platform, "HighlyAvailable"));
        let path = format!("/etc/kubernetes/credential-providers/{provider}-credential-provider.yaml");
        let description: Value = serde_saphyr::from_str(file(&configs, "worker", &path)).unwrap();
        assert_eq!(description["kind"], "CredentialProviderConfig");
        assert_eq!(
            description["providers"][0]["name"],
            format!("{provider}-credential-provider")
        );
        let kubelet = unit(&configs, "worker", "kubelet.service").to_string();
        for flag in flags {
            assert!(kubelet.contains(flag), "{platform}: {kubelet}");
        }
    }
    for (platform, service) in [
        (
            json!({"type": "AWS", "aws": {"region": "x"}}),
            "aws-node-env.service",
        ),
        (openstack(), "openstack-node-env.service"),
        (json!({"type": "GCP"}), "gcp-hostname.service"),
        (json!({"type": "VSphere"}), "vsphere-hostname.service"),
    ] {
        let configs = render(&cluster(&platform, "HighlyAvailable"));
        assert_eq!(unit(&configs, "master", service)["enabled"], true, "{service}");
    }
    let single = render(&cluster(&bare_metal(), "SingleReplica"));
    assert!(file(&single, "master", "/etc/dnsmasq.conf").contains("conf-dir=/etc/dnsmasq.d"));
}

/// A kubelet that is started with another name registers a second Node and abandons the first.
#[test]
fn a_node_that_has_joined_keeps_its_name() {
    let configs = render(&cluster(
        &json!({"type": "AWS", "aws": {"region": "x"}}),
        "HighlyAvailable",
    ));
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for part in ["bin", "etc/kubernetes", "var/lib/kubelet"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
    }
    // The metadata service answers with the last part of the address.
    let curl = "#!/bin/sh\nfor last; do :; done\necho \"${last##*/}.internal second.example\"\n";
    std::fs::write(root.join("bin/curl"), curl).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(root.join("bin/curl"), mode).unwrap();
    let script = file(&configs, "worker", "/usr/local/sbin/aws-node-env.sh");
    let script = ["/etc/kubernetes", "/var/lib/kubelet"]
        .iter()
        .fold(script.to_owned(), |text, path| {
            text.replace(path, root.join(path.trim_start_matches('/')).to_str().unwrap())
        });
    let run = || {
        let path = format!(
            "{}:{}",
            root.join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let ended = Command::new("sh")
            .arg("-c")
            .arg(&script)
            .env("PATH", path)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{ended:?}");
        std::fs::read_to_string(root.join("etc/kubernetes/node.env")).unwrap()
    };
    let of_new = run();
    assert!(
        of_new.starts_with("KUBELET_NODE_NAME=local-hostname.internal\nKUBELET_PROVIDERID=aws:///"),
        "{of_new}"
    );
    assert_eq!(run(), of_new, "also after a restart");
    std::fs::remove_file(root.join("etc/kubernetes/node.env")).unwrap();
    std::fs::write(root.join("var/lib/kubelet/kubeconfig"), "").unwrap();
    let of_joined = run();
    assert!(
        of_joined.starts_with("KUBELET_NODE_NAME=\nKUBELET_PROVIDERID=aws:///"),
        "{of_joined}"
    );
}
