//! Selects the previous config of a pool. A cluster keeps no history, so the best available evidence decides.

use k8s_openapi::api::core::v1::Event;
use mco_api::vocabulary::events::rollout;
use mco_api::{MachineConfig, MachineConfigPool};

use crate::timeline::time_of;

/// Returns the config before the pool's target: the one that its nodes are being updated from; else the one that the
/// pool completed before, according to events; else the newest one older than the target.
pub fn former<'a>(
    pool: &MachineConfigPool,
    rendered: &'a [MachineConfig],
    events: &[Event],
) -> Option<&'a MachineConfig> {
    let target = pool.target_name();
    // Before the first target there is no previous config.
    if target.is_empty() {
        return None;
    }
    let named = |name: &str| {
        rendered
            .iter()
            .find(|config| name_of(config) == name && name != target)
    };
    let reached = pool.status.as_ref();
    let reached = reached.and_then(|status| status.configuration.reference.name.as_deref());
    if let Some(config) = reached.and_then(named) {
        return Some(config);
    }
    let mut completed: Vec<&Event> = events.iter().filter(|event| is_completion(pool, event)).collect();
    completed.sort_by_key(|event| std::cmp::Reverse(time_of(event)));
    let reported = completed.into_iter().find_map(|event| {
        let words = event.message.as_deref()?.split_whitespace();
        words.rev().find_map(named)
    });
    let created = |config: &MachineConfig| config.metadata.creation_timestamp.clone().map(|time| time.0);
    reported.or_else(|| {
        let target = rendered.iter().find(|config| name_of(config) == target)?;
        let older = rendered.iter().filter(|config| created(config) < created(target));
        older.max_by_key(|config| created(config))
    })
}

fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

fn is_completion(pool: &MachineConfigPool, event: &Event) -> bool {
    event.reason.as_deref() == Some(rollout::COMPLETED)
        && event.involved_object.kind.as_deref() == Some("MachineConfigPool")
        && event.involved_object.name == pool.metadata.name
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pool(target: &str, reached: &str) -> MachineConfigPool {
        object(
            json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": target}},
            "status": {"configuration": {"name": reached}}}),
        )
    }

    fn completed(config: &str, second: u32) -> Event {
        object(
            json!({"metadata": {}, "involvedObject": {"kind": "MachineConfigPool", "name": "worker"},
            "reason": "Completed", "message": format!("Pool worker has completed update to MachineConfig {config}"),
            "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z")}),
        )
    }

    #[test]
    fn the_best_witness_decides() {
        let rendered: Vec<MachineConfig> = ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(index, name)| {
                object(json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{index}Z")}}))
            })
            .collect();
        let cases = [
            ("on the way", pool("c", "a"), vec![completed("b", 1)], Some("a")),
            (
                "done, according to events",
                pool("c", "c"),
                vec![completed("b", 1), completed("a", 2), completed("c", 3)],
                Some("a"),
            ),
            ("done, without events", pool("c", "c"), vec![], Some("b")),
            ("the first one", pool("a", "a"), vec![], None),
            ("not even the first one", pool("", ""), vec![], None),
            (
                "events name a deleted config",
                pool("b", "b"),
                vec![completed("z", 1)],
                Some("a"),
            ),
        ];
        for (name, pool, events, expected) in cases {
            let found = former(&pool, &rendered, &events).map(name_of);
            assert_eq!(found, expected, "{name}");
        }
    }
}
