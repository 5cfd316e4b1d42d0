//! Pages escape any input and stay small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixtures;

use fixtures::{HOSTILE, at, frame, harmless, hostile_snapshot, large_snapshot, machine_config, rollout};
use mco_client::Snapshot;
use mco_client::build_status;
use mco_client::comparison::compare;
use mco_client::explain::explain;
use mco_client::forecast::{self, Edit, PlanContext};
use mco_client::plan::PlanReport;
use mco_console::views::builds::builds;
use mco_console::views::config::{ConfigKind, ConfigSubject, InPool, config};
use mco_console::views::configs::{ListedConfig, configs};
use mco_console::views::node::{Between, node};
use mco_console::views::overview::overview;
use mco_console::views::plan::{PlanQuestion, plan};
use mco_console::views::pool::{NodeFilter, pool};
use mco_console::views::search::{Explained, SearchQuery, search};
use mco_console::views::{Notice, Show, Text, html};
use mco_core::config::manifest::{Manifest, ManifestOrigin};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::RenderIdentity;
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::bootstrap;
use serde_json::{Value, json};

const LARGEST_PAGE: usize = 200 << 10;

fn pool_page(snapshot: &Snapshot, name: &str, show: &str, page: &str) -> String {
    html(&pool(frame(), snapshot, name, NodeFilter::parse(show, page), at(300)).unwrap())
}

fn node_page(snapshot: &Snapshot, name: &str, between: &Between<'_>) -> String {
    let event = serde_json::from_value(json!({
        "metadata": {}, "involvedObject": {}, "type": "Warning", "reason": HOSTILE, "message": HOSTILE,
    }));
    let events = Ok(vec![event.unwrap()]);
    html(&node(frame(), snapshot, name, between, events, Show::Contents, at(300)).unwrap())
}

#[test]
fn a_rollout_reads_as_it_is() {
    let snapshot = rollout();
    let settings = insta::Settings::clone_current();
    settings.bind(|| {
        insta::assert_snapshot!("overview", html(&overview(frame(), &snapshot, at(300))));
        insta::assert_snapshot!("pool", pool_page(&snapshot, "worker", "", ""));
        insta::assert_snapshot!("node", node_page(&snapshot, "worker-1", &Between::Nothing));
    });
}

#[test]
fn hostile_names_and_texts_are_harmless_on_every_page() {
    let snapshot = hostile_snapshot();
    let name = snapshot.pools[0].name.clone();
    let node_name = snapshot.pools[0].nodes[0].name.clone();
    let old = ParsedConfig::applicable(machine_config(HOSTILE, "/etc/hostile", "before\n")).unwrap();
    let new = ParsedConfig::applicable(machine_config(HOSTILE, "/etc/hostile", HOSTILE)).unwrap();
    let comparison = compare(&old, &new, &AdministratorRules::default());
    let message = Notice {
        frame: frame(),
        headline: HOSTILE.into(),
        text: HOSTILE.into(),
    };
    let question = SearchQuery {
        query: HOSTILE,
        node: HOSTILE,
    };
    let listed = ListedConfig {
        name: HOSTILE.to_owned(),
        generated: false,
        pools: vec![HOSTILE.to_owned()],
    };
    let subject = ConfigSubject {
        entry: &new,
        kind: ConfigKind::Written(&[]),
        created: None,
    };
    let asked = PlanQuestion {
        yaml: HOSTILE.to_owned(),
        delete: HOSTILE.to_owned(),
        contents: true,
    };
    let pages = [
        ("overview", html(&overview(frame(), &snapshot, at(300)))),
        ("pool", pool_page(&snapshot, &name, "", "")),
        (
            "node",
            node_page(&snapshot, &node_name, &Between::Configs(&comparison, &old, &new)),
        ),
        ("configs", html(&configs(frame(), vec![listed]))),
        (
            "config",
            html(&config(frame(), &subject, Show::Contents, at(300))),
        ),
        ("plan", html(&plan(frame(), asked, Some(Err(HOSTILE.to_owned()))))),
        (
            "search",
            html(&search(frame(), question, &[], &snapshot, &[HOSTILE.to_owned()])),
        ),
        ("message", html(&message)),
        ("builds", html(&builds(frame(), &snapshot, at(300)))),
    ];
    for (name, page) in pages {
        assert!(
            page.contains("&#60;script") || page.contains("&lt;script"),
            "{name} shows it:\n{page}"
        );
        harmless(name, &page);
        assert!(page.len() < LARGEST_PAGE, "{name}: {} bytes", page.len());
    }
}

#[test]
fn builds_show_their_state_duration_and_the_end_of_the_log() {
    let mut snapshot = rollout();
    assert!(html(&builds(frame(), &snapshot, at(300))).contains("No pool has a MachineOSConfig"));
    let (running, mut done) = (
        fixtures::build("worker-2", "worker", "Building", "STEP 1\nSTEP 2: RUN dnf"),
        fixtures::build("worker-1", "worker", "Succeeded", "Writing manifest"),
    );
    done.metadata.creation_timestamp = None;
    let status = done.status.as_mut().unwrap();
    "registry.example.com/os@sha256:1".clone_into(&mut status.digested_image_push_spec);
    status.build_end = Some(serde_json::from_value(json!("1970-01-01T00:03:20Z")).unwrap());
    snapshot.builds = build_status::overviews([&done, &running], at(300));
    build_status::attach(&mut snapshot.pools, &snapshot.builds);
    let page = html(&builds(frame(), &snapshot, at(300)));
    let (first, second) = page.split_once("Build worker-1").unwrap();
    assert!(
        first.contains("building") && first.contains("for 3m20s"),
        "{first}"
    );
    assert!(first.contains("STEP 1\nSTEP 2: RUN dnf\n</pre>"), "{first}");
    assert!(!first.contains("class=\"problem\""), "it runs: {first}");
    assert!(
        second.contains("succeeded") && second.contains("took 1m40s, ended 1m40s ago"),
        "{second}"
    );
    assert!(second.contains("registry.example.com/os@sha256:1") && !second.contains("Writing manifest"));
    let page = pool_page(&snapshot, "worker", "", "");
    assert!(
        page.contains("<a href=\"/builds\">OS image build</a> building"),
        "{page}"
    );
    assert!(page.contains("STEP 2: RUN dnf"), "{page}");
}

#[test]
fn a_pool_of_a_thousand_nodes_fits_on_small_pages_that_show_every_node_once() {
    let snapshot = large_snapshot(1000);
    let mut shown = std::collections::BTreeSet::new();
    for page in 1..=20 {
        let page = pool_page(&snapshot, "worker", "", &page.to_string());
        assert!(page.len() < LARGEST_PAGE, "{} bytes", page.len());
        for part in page.split("<tr id=\"n-").skip(1) {
            assert!(shown.insert(part.split('"').next().unwrap().to_owned()));
        }
    }
    assert_eq!(shown.len(), 1000);
    assert!(html(&overview(frame(), &snapshot, at(300))).len() < LARGEST_PAGE);
    let beyond = pool_page(&snapshot, "worker", "", "999");
    assert!(
        beyond.contains("951–1000 of 1000"),
        "a page that is not there is the last one"
    );
    let degraded = pool_page(&snapshot, "worker", "degraded", "");
    assert_eq!(degraded.matches("<tr id=").count(), 10);
}

#[test]
fn a_large_file_is_a_number_and_a_hash_and_not_a_page() {
    let big = "x\n".repeat(512 << 10);
    let new = ParsedConfig::applicable(machine_config("50-big", "/etc/big", &big)).unwrap();
    let subject = ConfigSubject {
        entry: &new,
        kind: ConfigKind::Written(&[]),
        created: None,
    };
    let page = html(&config(frame(), &subject, Show::Contents, at(300)));
    assert!(page.contains("1048576 bytes sha256:"), "{page}");
    assert!(page.contains("too large to be shown"), "{page}");
    assert!(page.len() < LARGEST_PAGE);
}

#[test]
fn contents_are_shown_to_who_asks_unless_they_are_secret() {
    let secret = |mode: i64, text: &str| {
        let mut object = machine_config("50-x", "/etc/x", text);
        object.spec.config.as_mut().unwrap()["storage"]["files"][0]["mode"] = mode.into();
        ParsedConfig::applicable(object).unwrap()
    };
    let cases = [
        (
            "plain text",
            secret(0o644, "visible-text\n"),
            Show::Contents,
            true,
        ),
        (
            "nobody asked",
            secret(0o644, "visible-text\n"),
            Show::Summaries,
            false,
        ),
        (
            "root alone reads it",
            secret(0o600, "visible-text\n"),
            Show::Contents,
            false,
        ),
        (
            "a private key",
            secret(0o644, "-----BEGIN PRIVATE KEY-----\nvisible-text\n"),
            Show::Contents,
            false,
        ),
        (
            "registry credentials",
            secret(0o644, "{\"auths\": {\"visible-text\": {}}}"),
            Show::Contents,
            false,
        ),
    ];
    for (name, entry, show, visible) in cases {
        let subject = ConfigSubject {
            entry: &entry,
            kind: ConfigKind::Written(&[]),
            created: None,
        };
        let page = html(&config(frame(), &subject, show, at(300)));
        assert_eq!(page.contains("visible-text"), visible, "{name}");
    }
}

fn manifest(value: Value) -> Manifest {
    Manifest {
        origin: ManifestOrigin {
            file: "test".to_owned(),
            line: 1,
        },
        api_version: value["apiVersion"].as_str().unwrap().to_owned(),
        kind: value["kind"].as_str().unwrap().to_owned(),
        name: value["metadata"]["name"].as_str().unwrap().to_owned(),
        value,
    }
}

fn objects() -> Vec<Manifest> {
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        },
    });
    let first = serde_json::to_value(machine_config("10-first", "/etc/chrony.conf", "first\n")).unwrap();
    let last = serde_json::to_value(machine_config("90-last", "/etc/chrony.conf", "last\n")).unwrap();
    vec![manifest(pool), manifest(first), manifest(last)]
}

#[test]
fn who_sets_a_path_is_found_with_whom_it_overrides() {
    let cluster = bootstrap::adopt(objects()).unwrap();
    let rendered = cluster
        .render(RenderIdentity::default())
        .remove(0)
        .result
        .unwrap()
        .rendered;
    let explained = [Explained {
        pool: "worker".to_owned(),
        rendered: rendered.name().to_owned(),
        parts: explain(&rendered),
    }];
    let question = SearchQuery {
        query: "/etc/chrony.conf",
        node: "",
    };
    let page = html(&search(frame(), question, &explained, &rollout(), &[]));
    assert!(
        page.contains("set by <a class=\"mono\" href=\"/configs/90-last\">90-last</a>"),
        "{page}"
    );
    assert!(
        page.contains("overrides <a class=\"mono\" href=\"/configs/10-first\">10-first</a>"),
        "{page}"
    );

    let entry = ParsedConfig::applicable(machine_config("10-first", "/etc/chrony.conf", "first\n")).unwrap();
    let in_pools = [InPool {
        pool: "worker".to_owned(),
        place: (1, 2),
        parts: explain(&rendered),
    }];
    let subject = ConfigSubject {
        entry: &entry,
        kind: ConfigKind::Written(&in_pools),
        created: None,
    };
    let page = html(&config(frame(), &subject, Show::Summaries, at(300)));
    assert!(page.contains("worker: overridden by 90-last"), "{page}");
}

#[test]
fn a_plan_shows_names_changes_cost_and_waves() {
    let before = objects();
    let edit = serde_json::to_value(machine_config("95-new", "/etc/new", "new\n")).unwrap();
    let (after, refused) = forecast::edited(&before, &[Edit::Apply(manifest(edit))]);
    let current = bootstrap::adopt(before)
        .unwrap()
        .render(RenderIdentity::default())
        .remove(0);
    let nodes = [fixtures::node("worker-1", "", "", "Done")];
    let situation = PlanContext {
        current: [("worker".to_owned(), current.result.unwrap().rendered.config)].into(),
        nodes: &nodes,
        ..PlanContext::default()
    };
    let report = PlanReport {
        unreadable_nodes: Vec::new(),
        refused,
        objects: Vec::new(),
        pools: forecast::forecast(
            &bootstrap::adopt(after).unwrap(),
            RenderIdentity::default(),
            &situation,
        ),
        current: situation.current.clone(),
    };
    let page = html(&plan(frame(), PlanQuestion::default(), Some(Ok(&report))));
    for expected in [
        "This is what would happen",
        &report.pools[0].comparison.new.clone().unwrap(),
        "/etc/new",
        "Cost: reboot",
        "Rollout: 1 node in 1 wave",
        "<li>worker-1</li>",
    ] {
        assert!(page.contains(expected), "{expected} in {page}");
    }
    assert!(!page.contains("new\n</span>"), "contents were not asked for");
    assert_eq!(Text::new("a").as_str(), "a");
}
