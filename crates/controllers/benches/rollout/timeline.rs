//! When each node reached which step of the update, from a watch: shows where time is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use mco_api::vocabulary::annotations::node as annotation;
use mco_core::rollout::NodeView;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The steps of a node, in order.
const STEPS: [&str; 8] = [
    "sent",
    "asks for its drain",
    "drained",
    "away",
    "back",
    "asks to be given back",
    "given back",
    "done",
];
const SENT: usize = 0;
const DONE: usize = STEPS.len() - 1;

type Stamps = [Option<Instant>; STEPS.len()];

/// Watches all nodes from its creation.
#[derive(Debug, Default)]
pub struct Timeline {
    machines: Mutex<HashMap<String, Stamps>>,
    somebody_was_sent: Notify,
}

impl Timeline {
    /// Starts the watch; returns when all nodes are listed.
    pub async fn follow(client: Client) -> Arc<Self> {
        let timeline = Arc::new(Self::default());
        let (known, begun) = tokio::sync::oneshot::channel();
        let following = Arc::clone(&timeline);
        tokio::spawn(async move {
            let nodes: Api<Node> = Api::all(client);
            let mut events = watcher(nodes, watcher::Config::default()).boxed();
            let mut known = Some(known);
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::InitDone) => {
                        let _ = known.take().map(|known| known.send(()));
                    }
                    Ok(Event::Apply(node)) => following.note(&node),
                    _ => {}
                }
            }
        });
        begun.await.unwrap();
        timeline
    }

    /// Returns when the first node got its desired config.
    pub async fn first_sent(&self) -> Instant {
        loop {
            let sent = self.somebody_was_sent.notified();
            if let Some(first) = self
                .machines
                .lock()
                .values()
                .filter_map(|steps| steps[SENT])
                .min()
            {
                return first;
            }
            sent.await;
        }
    }

    fn note(&self, node: &Node) {
        let view = NodeView::new(node);
        let on_its_way = view.desired_config != view.current_config && !view.current_config.is_empty();
        let mut machines = self.machines.lock();
        if !on_its_way && !machines.contains_key(view.name) {
            return;
        }
        let drain = |key| view.annotation(key).unwrap_or_default();
        let (asked, answered) = (
            drain(annotation::DESIRED_DRAIN),
            drain(annotation::LAST_APPLIED_DRAIN),
        );
        let for_target = |text: &str, request: fn(&str) -> String| text == request(view.desired_config);
        let steps = machines.entry(view.name.to_owned()).or_default();
        let reached = [
            true,
            for_target(asked, annotation::drain::drain),
            for_target(answered, annotation::drain::drain),
            !view.is_kubelet_healthy(),
            steps[3].is_some() && view.is_kubelet_healthy(),
            for_target(asked, annotation::drain::uncordon),
            for_target(answered, annotation::drain::uncordon),
            view.is_done(),
        ];
        let now = Instant::now();
        for (step, reached) in steps.iter_mut().zip(reached) {
            if reached {
                step.get_or_insert(now);
            }
        }
        drop(machines);
        self.somebody_was_sent.notify_waiters();
    }

    /// Returns the median and the 90th percentile of each step.
    pub fn print(&self, pool_of: impl Fn(&str) -> String) {
        let machines = self.machines.lock();
        for step in 1..STEPS.len() {
            let took = machines
                .values()
                .filter_map(|steps| Some(steps[step]?.duration_since(steps[step - 1]?)))
                .collect();
            print_row(&format!("{} -> {}", STEPS[step - 1], STEPS[step]), took);
        }
        let mut pools: HashMap<String, [Vec<Instant>; 2]> = HashMap::new();
        for (name, steps) in machines.iter() {
            let [sent, done] = pools.entry(pool_of(name)).or_default();
            sent.extend(steps[SENT]);
            done.extend(steps[DONE]);
        }
        let mut waits = Vec::new();
        for [sent, done] in pools.values_mut() {
            sent.sort();
            done.sort();
            // The first wave did not wait for others.
            let at_once = sent.len().div_ceil(10);
            let pairs = sent.iter().skip(at_once).zip(done.iter());
            waits.extend(pairs.map(|(next, before)| next.saturating_duration_since(*before)));
        }
        print_row("a machine done -> the next one sent", waits);
    }
}

fn print_row(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |part: usize| {
        took.get(took.len() * part / 100)
            .copied()
            .unwrap_or_default()
            .as_millis()
    };
    println!("     {:>6} ms {:>6} ms  {what}", at(50), at(90));
}
