//! Rollouts under a RolloutPolicy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use mco_api::MachineConfigPool;
use mco_api::rollout_policy::{RolloutPhase, RolloutPolicy, RolloutPolicyStatus};
use mco_api::vocabulary::labels::ROLLOUT_POLICY;
use mco_api::vocabulary::names;
use mco_simulator::{Behaviour, SimulatedFailure, SimulatedNodeSpec};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{Cluster, eventually, file_config, message, refusing, target};

fn policy(spec: Value) -> RolloutPolicy {
    let mut spec = spec;
    spec["poolSelector"] = json!({"matchLabels": {"tier": "compute"}});
    serde_json::from_value(json!({"metadata": {"name": "workers"}, "spec": spec})).unwrap()
}

async fn status_where(
    cluster: &Cluster,
    what: &str,
    is: impl Fn(&RolloutPolicyStatus) -> bool,
) -> RolloutPolicyStatus {
    eventually(what, async || {
        let policy = cluster.api::<RolloutPolicy>().get("workers").await.unwrap();
        policy.status.filter(|status| is(status))
    })
    .await
}

/// Starts workers of which every third fails on any config but its first, all of which may be unavailable.
async fn cluster(workers: usize) -> Cluster {
    let first: Arc<Mutex<Option<String>>> = Arc::default();
    let known = Arc::clone(&first);
    let behaviour = Behaviour {
        fails: Some(Arc::new(move |node: &str, config: &str| {
            let first = known.lock().clone()?;
            let number: usize = node.strip_prefix("worker-")?.parse().ok()?;
            (number.is_multiple_of(3) && config != first)
                .then(|| SimulatedFailure::Late(format!("{node} cannot apply the config")))
        })),
        ..Behaviour::default()
    };
    let cluster = Cluster::start(workers, behaviour).await;
    let pool: MachineConfigPool = cluster
        .patch(
            "worker",
            json!({"metadata": {"labels": {"tier": "compute"}}, "spec": {"maxUnavailable": "100%"}}),
        )
        .await;
    *first.lock() = Some(target(&pool));
    cluster
}

async fn broken(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.api::<Node>().list(&ListParams::default()).await.unwrap();
    nodes
        .into_iter()
        .filter(|node| Cluster::annotation(node, "state") == "Degraded")
        .filter_map(|node| node.metadata.name)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_nodes_break_than_the_policy_allows() {
    let cluster = cluster(60).await;
    cluster
        .create(&policy(json!({"maxFailures": {"count": 2}})))
        .await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    let before = target(&cluster.pool("worker").await);
    cluster.at_rest().await;
    cluster.writes.reset();
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    cluster.retargeted("worker", &before).await;
    let status = status_where(&cluster, "the rollout halts", |status| {
        status.phase == RolloutPhase::Halted
    })
    .await;
    assert!(
        status
            .message
            .starts_with("pool worker: halted: 2 of 2 allowed failures, worker-"),
        "{}",
        status.message
    );
    let halted = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Halted")
        .unwrap();
    assert_eq!(halted.status, "True");
    cluster.at_rest().await;
    assert_eq!(
        broken(&cluster).await.len(),
        2,
        "though all 60 may be unavailable"
    );
    let updating = message(&cluster.pool("worker").await, "Updating");
    assert!(updating.contains("halted: 2 of 2 allowed failures"), "{updating}");
    cluster
        .event("worker", "RolloutHalted", "2 of 2 allowed failures")
        .await;
    // The status is written when a phase or the list of failures changes, and not for every node.
    let writes = cluster.writes.snapshot();
    assert!(cluster.writes.of("rolloutpolicies/status") <= 10, "{writes:#?}");

    // What failed no longer counts, so two more may fail.
    let failed = broken(&cluster).await;
    let bad = target(&cluster.pool("worker").await);
    let control = json!({"worker": {"target": bad, "acknowledged": failed}}).to_string();
    let annotations = json!({"metadata": {"annotations": {"mco.dev/rollout-control": control}}});
    let _: RolloutPolicy = cluster.patch("workers", annotations).await;
    eventually("two more nodes fail", async || {
        (broken(&cluster).await.len() == 4).then_some(())
    })
    .await;
    cluster.at_rest().await;
    assert_eq!(broken(&cluster).await.len(), 4);

    // The cause goes away.
    cluster.delete_config("99-worker-bad").await;
    cluster.updated("worker").await;
    assert_eq!(broken(&cluster).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_send_the_pool_back_to_its_former_config() {
    let cluster = cluster(7).await;
    let spec = json!({"maxFailures": {"count": 1, "action": "Revert"}, "waves": [{"limit": 4}]});
    cluster.create(&policy(spec)).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    cluster.retargeted("worker", &before).await;
    status_where(&cluster, "the rollout is reverted", |status| {
        status.phase == RolloutPhase::Reverted
    })
    .await;
    eventually("every node is back", async || {
        let nodes = cluster.api::<Node>().list(&ListParams::default()).await.unwrap();
        let back = |node: &Node| {
            let is = |key: &str, value: &str| Cluster::annotation(node, key) == value;
            is("currentConfig", &before) && is("desiredConfig", &before) && is("state", "Done")
        };
        let workers = |node: &&Node| {
            node.metadata
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with("worker"))
        };
        nodes.iter().filter(workers).all(back).then_some(())
    })
    .await;
}

/// A server that gives the same answer to every request until it is changed.
#[derive(Default)]
struct Webhook {
    answer: Mutex<Answer>,
    /// The bodies of the requests.
    asked: Mutex<Vec<Value>>,
    /// While it is locked, requests are received and not answered.
    busy: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Webhook {
    async fn start(status: u16) -> (String, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ok", listener.local_addr().unwrap());
        let webhook = Arc::new(Self::default());
        webhook.answers(status, "", "");
        let served = Arc::clone(&webhook);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = Arc::clone(&served);
                tokio::spawn(async move { served.serve(stream).await });
            }
        });
        (url, webhook)
    }

    fn answers(&self, status: u16, headers: &str, body: &str) {
        *self.answer.lock() = Answer {
            status,
            headers: headers.to_owned(),
            body: body.to_owned(),
        };
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let body = loop {
            if stream.read_buf(&mut request).await.is_ok_and(|read| read == 0) {
                return;
            }
            let text = String::from_utf8_lossy(&request);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let head = head.to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break serde_json::from_str(body).unwrap_or_default();
            }
        };
        self.asked.lock().push(body);
        let _idle = self.busy.lock().await;
        let Answer {
            status,
            headers,
            body,
        } = self.answer.lock().clone();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Starts two workers that wait for a config under a policy with a webhook gate. Returns the config that they have.
async fn waiting_for(webhook: &Webhook, gate: Value) -> (Cluster, String) {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    label(&cluster).await;
    cluster.create(&policy(json!({ "gates": [gate] }))).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    assert_eq!(webhook.asked(), 0, "no node waits");
    let before = change(&cluster).await;
    (cluster, before)
}

async fn label(cluster: &Cluster) {
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"metadata": {"labels": {"tier": "compute"}}}))
        .await;
}

/// Changes the config of the workers, and returns the former one.
async fn change(cluster: &Cluster) -> String {
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    before
}

async fn no_node_is_started(cluster: &Cluster, before: &str) {
    for node in ["worker-0", "worker-1"] {
        assert_eq!(
            Cluster::annotation(&cluster.node(node).await, "desiredConfig"),
            before
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_holds_the_rollout_until_it_passes() {
    let (url, webhook) = Webhook::start(403).await;
    let (elsewhere, redirected) = Webhook::start(204).await;
    let gate = json!({"name": "ticket", "interval": "1s", "webhook": {"url": url}});
    let (cluster, before) = waiting_for(&webhook, gate).await;
    let waits_for = "pool worker: waits for gate ticket: the webhook answers";
    let waiting = status_where(&cluster, "the gate holds", |status| {
        status.message.contains("403")
    })
    .await;
    assert_eq!(waiting.phase, RolloutPhase::Waiting);
    assert_eq!(waiting.message, format!("{waits_for} 403"));

    // A redirect passed the gate, because it is no error of an API server.
    webhook.answers(302, &format!("Location: {elsewhere}\r\n"), "");
    let waiting = status_where(&cluster, "the redirect holds", |status| {
        status.message.contains("302")
    })
    .await;
    assert_eq!(
        waiting.message,
        format!("{waits_for} 302: redirects are not followed")
    );
    no_node_is_started(&cluster, &before).await;

    // A page made the conditions too long, so that no status was written any more.
    let page = format!("not on Fridays\n{}", "x".repeat(100_000));
    webhook.answers(403, "", &page);
    status_where(&cluster, "the first line is shown", |status| {
        status.message == format!("{waits_for} 403: not on Fridays")
    })
    .await;
    webhook.answers(403, "", &"x".repeat(100_000));
    status_where(&cluster, "the line is shortened", |status| {
        status.message.starts_with(&format!("{waits_for} 403: xxx")) && status.message.len() < 400
    })
    .await;
    no_node_is_started(&cluster, &before).await;
    webhook.answers(204, "", "");
    cluster.updated("worker").await;
    assert_eq!(redirected.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_error_with_a_json_body_was_a_refusal_with_code_0() {
    let (url, webhook) = Webhook::start(503).await;
    webhook.answers(503, "Content-Type: application/json\r\n", r#"{"ok":false}"#);
    let mut gate = json!({"name": "ticket", "interval": "1s", "webhook": {"url": url}});
    let (cluster, before) = waiting_for(&webhook, gate.clone()).await;
    status_where(&cluster, "the gate is unreachable", |status| {
        let answer = r#"the webhook answers 503: {"ok":false}"#;
        status.message == format!("pool worker: waits for gate ticket, which cannot be checked: {answer}")
    })
    .await;
    no_node_is_started(&cluster, &before).await;
    gate["onUnreachable"] = json!("Pass");
    let _: RolloutPolicy = cluster.patch("workers", json!({"spec": {"gates": [gate]}})).await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_is_not_recorded_yet_was_made_again() {
    let (url, webhook) = Webhook::start(403).await;
    let busy = webhook.busy.lock().await;
    let gate = json!({"name": "ticket", "interval": "1h", "webhook": {"url": url, "timeout": "2m"}});
    let (cluster, _) = waiting_for(&webhook, gate).await;
    eventually("the gate is asked", async || (webhook.asked() == 1).then_some(())).await;
    // Two reconciles while the check runs: the first has requested it again when the second is observed.
    for limit in [5, 6] {
        let spec = json!({"spec": {"budgets": [{"maxUnavailable": limit}]}});
        let changed: RolloutPolicy = cluster.patch("workers", spec).await;
        let generation = changed.metadata.generation.unwrap();
        status_where(&cluster, "the change is observed", |status| {
            status.observed_generation == generation
        })
        .await;
    }
    drop(busy);
    status_where(&cluster, "the check is recorded", |status| {
        !status.gates.is_empty()
    })
    .await;
    cluster.at_rest().await;
    assert_eq!(webhook.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_cannot_be_written_stopped_the_checks_of_gates() {
    let (url, webhook) = Webhook::start(204).await;
    let is_refused = Arc::new(AtomicBool::new(true));
    let refusals = Arc::new(AtomicUsize::new(0));
    let mut cluster = Cluster::prepare().await;
    let (refused, counted) = (Arc::clone(&is_refused), Arc::clone(&refusals));
    let client = refusing(cluster.counted_client(), move |method, path| {
        let is_status = *method == Method::PATCH && path.ends_with("/rolloutpolicies/workers/status");
        let refuses = is_status && refused.load(Ordering::SeqCst);
        counted.fetch_add(usize::from(refuses), Ordering::SeqCst);
        refuses
    });
    cluster.start_controllers_through(client, cluster.options());
    let workers = ["worker-0", "worker-1"].map(|name| SimulatedNodeSpec::new(name.to_owned(), "worker"));
    mco_simulator::create(&cluster.client, &workers).await.unwrap();
    cluster.start_fleet(Behaviour::default());
    cluster.updated("worker").await;
    label(&cluster).await;
    let gate = json!({"gates": [{"name": "ticket", "interval": "1h", "webhook": {"url": url}}]});
    cluster.create(&policy(gate)).await;
    let before = change(&cluster).await;
    eventually("the gate is asked", async || (webhook.asked() == 1).then_some(())).await;
    let more = refusals.load(Ordering::SeqCst) + 3;
    eventually("the status is not written", async || {
        (refusals.load(Ordering::SeqCst) >= more).then_some(())
    })
    .await;
    is_refused.store(false, Ordering::SeqCst);
    let status = status_where(&cluster, "the check is recorded", |status| {
        !status.gates.is_empty()
    })
    .await;
    assert!(status.gates[0].passed, "{:?}", status.gates);
    cluster.at_rest().await;
    assert_eq!(webhook.asked(), 1, "once per interval");
    no_node_is_started(&cluster, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_is_sent_once_and_a_redirect_is_not_followed() {
    let (url, webhook) = Webhook::start(204).await;
    let (redirecting, redirect) = Webhook::start(307).await;
    redirect.answers(307, &format!("Location: {url}\r\n"), "");
    let cluster = cluster(7).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    for (name, url) in [("chat", &url), ("moved", &redirecting)] {
        let secret = json!({
            "metadata": {"name": name, "labels": {ROLLOUT_POLICY: "true"}},
            "data": {"url": ByteString(url.clone().into_bytes())},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let notify = ["chat", "moved"].map(|name| json!({"secretRef": {"name": name}, "on": ["Halted"]}));
    cluster
        .create(&policy(json!({"maxFailures": {"count": 1}, "notify": notify})))
        .await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    let halted = status_where(&cluster, "the rollout halts", |status| {
        status.phase == RolloutPhase::Halted
    })
    .await;
    eventually("both are notified", async || {
        (webhook.asked() >= 1 && redirect.asked() >= 1).then_some(())
    })
    .await;
    cluster.at_rest().await;
    assert_eq!((webhook.asked(), redirect.asked()), (1, 1));
    let event = webhook.asked.lock()[0].clone();
    assert_eq!(event["type"], "dev.mco.rollout.halted");
    assert_eq!(event["data"]["policy"], "workers");
    let message = format!("pool worker: {}", event["data"]["message"].as_str().unwrap());
    assert_eq!(message, halted.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_nodes_get_no_traffic_and_are_not_removed_and_marks_of_others_stay() {
    const LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"metadata": {"labels": {"tier": "compute"}}}))
        .await;
    let protected = json!({"metadata": {"annotations": {PROTECTED: "true"}}});
    let _: Node = cluster.patch("worker-1", protected).await;
    let drain = json!({"drain": {"excludeFromLoadBalancers": "1s", "protectFromAutoscaler": true}});
    cluster.create(&policy(drain)).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let has = |node: &Node| {
        let label = node.metadata.labels.as_ref().and_then(|all| all.get(LABEL));
        let annotation = node
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(PROTECTED));
        (label.is_some(), annotation.is_some())
    };
    for name in ["worker-0", "worker-1"] {
        eventually("the node is excluded and protected", async || {
            (has(&cluster.node(name).await) == (true, true)).then_some(())
        })
        .await;
    }
    cluster.updated("worker").await;
    cluster.at_rest().await;
    assert_eq!(has(&cluster.node("worker-0").await), (false, false));
    assert_eq!(
        has(&cluster.node("worker-1").await),
        (false, true),
        "it was set before"
    );
}
