//! A large simulated fleet: nodes that follow the daemon's protocol and change nothing, with configurable latency and
//! failures.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mco_simulator::{self as fleet, Behaviour, SimulatedFailure, SimulatedNodeSpec};
use tokio_util::sync::CancellationToken;

const MASTERS: usize = 3;
const ZONES: usize = 3;

/// The maximum latency: one day.
const MAX_SECONDS: f64 = 86_400.0;

/// The duration of an update without the drain, as in `3` or `0.5` seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedLatency(Duration);

impl FromStr for SimulatedLatency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text
            .parse()
            .ok()
            .filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
        let latency = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        latency
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a number of seconds from 0 to {MAX_SECONDS}"))
    }
}

/// The nodes that fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureSelector {
    /// A percentage of the nodes for each config, always the same ones.
    Share(u64),
    /// Nodes with this name, in which `*` matches anything.
    Named(String),
}

impl FromStr for FailureSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(share) = text.strip_suffix('%') else {
            let is_name = |character: char| character.is_ascii_alphanumeric() || "-.*".contains(character);
            return if !text.is_empty() && text.chars().all(is_name) {
                Ok(Self::Named(text.to_owned()))
            } else {
                Err(format!(
                    "{text:?} is neither a node name nor a percentage like 5%"
                ))
            };
        };
        match share.parse() {
            Ok(share @ 0..=100) => Ok(Self::Share(share)),
            _ => Err(format!("{text:?} is not a percentage from 0% to 100%")),
        }
    }
}

impl FailureSelector {
    fn fails_node(&self, node: &str, config: &str) -> bool {
        match self {
            Self::Named(pattern) => matches(pattern, node),
            Self::Share(share) => {
                let mut hasher = DefaultHasher::new();
                (node, config).hash(&mut hasher);
                hasher.finish() % 100 < *share
            }
        }
    }
}

/// Returns whether a name matches the pattern, in which `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|left| {
            let mut ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            ends.any(|at| matches(rest, &left[at..]))
        }),
    }
}

/// The behaviour of simulated nodes.
#[derive(Debug, Clone)]
pub struct SimulationProfile {
    pub latency: SimulatedLatency,
    pub failing: Vec<FailureSelector>,
}

impl SimulationProfile {
    fn behaviour(self) -> Behaviour {
        let Self {
            latency: SimulatedLatency(change),
            failing,
        } = self;
        let apply = change / 3;
        let fails = move |node: &str, config: &str| {
            let fails_node = failing.iter().any(|one| one.fails_node(node, config));
            // After the drain, so that a rollback to the previous config recovers the node.
            fails_node
                .then(|| SimulatedFailure::Late(format!("simulated failure: {node} cannot apply {config}")))
        };
        Behaviour {
            apply,
            reboot: Some(change.saturating_sub(apply)),
            report_steps: true,
            fails: Some(Arc::new(fails)),
            ..Behaviour::default()
        }
    }
}

pub async fn run(
    client: Client,
    number: usize,
    profile: SimulationProfile,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let masters = (0..MASTERS).map(|index| blueprint("master", index));
    let workers = (0..number.saturating_sub(MASTERS)).map(|index| blueprint("worker", index));
    let machines: Vec<SimulatedNodeSpec> = masters.chain(workers).take(number).collect();
    fleet::create(&client, &machines).await?;
    fleet::run(client, profile.behaviour(), stop).await;
    Ok(())
}

fn blueprint(role: &str, index: usize) -> SimulatedNodeSpec {
    SimulatedNodeSpec::new(format!("{role}-{index}"), role).in_zone(format!("zone-{}", index % ZONES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_percentages_select_the_nodes_that_fail() {
        for (pattern, name, expected) in [
            ("worker-1", "worker-1", true),
            ("worker-1", "worker-10", false),
            ("worker-1*", "worker-10", true),
            ("worker-*", "master-0", false),
            ("*-1", "worker-1", true),
            ("*-1", "worker-12", false),
            ("w*-1*", "worker-10", true),
            ("*", "master-0", true),
        ] {
            let failing: FailureSelector = pattern.parse().unwrap();
            assert_eq!(failing.fails_node(name, "any"), expected, "{pattern} {name}");
        }
        let struck = |share: &str, config: &str| {
            let failing: FailureSelector = share.parse().unwrap();
            let nodes = (0..1_000).map(|index| format!("worker-{index}"));
            nodes
                .filter(|node| failing.fails_node(node, config))
                .collect::<Vec<_>>()
        };
        assert_eq!(struck("0%", "a").len(), 0);
        assert_eq!(struck("100%", "a").len(), 1_000);
        let tenth = struck("10%", "a");
        assert!((50..200).contains(&tenth.len()), "{}", tenth.len());
        assert_eq!(tenth, struck("10%", "a"), "the same nodes fail again");
        assert_ne!(tenth, struck("10%", "b"), "with another config other nodes fail");
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (text, expected) in [
            ("101%", "\"101%\" is not a percentage from 0% to 100%"),
            ("-1%", "\"-1%\" is not a percentage from 0% to 100%"),
            ("", "\"\" is neither a node name nor a percentage like 5%"),
            ("a b", "\"a b\" is neither a node name nor a percentage like 5%"),
        ] {
            assert_eq!(text.parse::<FailureSelector>().unwrap_err(), expected);
        }
        for text in ["", "soon", "-1", "NaN", "inf", "86401"] {
            let refusal = text.parse::<SimulatedLatency>().unwrap_err();
            assert!(
                refusal.ends_with("is not a number of seconds from 0 to 86400"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn machines_are_as_slow_and_as_bad_as_asked() {
        let profile = SimulationProfile {
            latency: "4.5".parse().unwrap(),
            failing: vec!["worker-7".parse().unwrap()],
        };
        let behaviour = profile.behaviour();
        assert_eq!(behaviour.apply, Duration::from_millis(1_500));
        assert_eq!(behaviour.reboot, Some(Duration::from_secs(3)));
        let fails = behaviour.fails.unwrap();
        assert_eq!(fails("worker-8", "rendered-worker-1"), None);
        let failure = "simulated failure: worker-7 cannot apply rendered-worker-1".to_owned();
        assert_eq!(
            fails("worker-7", "rendered-worker-1"),
            Some(SimulatedFailure::Late(failure))
        );
    }
}
