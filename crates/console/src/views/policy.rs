//! RolloutPolicies: the rules with their present state, and what each rollout does or waits for.

use askama::Template;
use jiff::Timestamp;
use mco_client::snapshot::Snapshot;
use mco_client::text::{ago, count};
use mco_core::rollout::policy::{
    BudgetOverview, GateOverview, GateState, PoolRolloutOverview, WaveOverview, WaveState, WindowOverview,
    in_words,
};

use super::{Frame, Text, Tone, link};

/// Groups of a budget that a page names, the fullest ones.
const GROUPS: usize = 8;
/// Failed or skipped nodes that a page names.
const NODES: usize = 10;

#[derive(Debug, Template)]
#[template(path = "policies.html")]
pub struct PoliciesPage {
    pub frame: Frame,
    pub policies: Vec<PolicyCard>,
}

#[derive(Debug, Clone)]
pub struct PolicyCard {
    pub name: Text,
    pub href: String,
    pub phase: String,
    pub tone: &'static str,
    pub problem: Option<Text>,
    pub pools: Vec<PoolLine>,
}

#[derive(Debug, Clone)]
pub struct PoolLine {
    pub name: Text,
    pub href: String,
    pub tone: &'static str,
    pub message: Text,
}

#[derive(Debug, Template)]
#[template(path = "policy.html")]
pub struct PolicyPage {
    pub frame: Frame,
    pub name: Text,
    pub phase: String,
    pub tone: &'static str,
    pub problem: Option<Text>,
    pub rollouts: Vec<RolloutPanel>,
    /// Policies that come first, and their pages.
    pub after: Vec<(Text, String)>,
    pub gates: Vec<GateRow>,
    pub windows: Vec<WindowRow>,
    pub budgets: Vec<BudgetRow>,
}

/// The rollout of one pool under its policy.
#[derive(Debug, Clone)]
pub struct RolloutPanel {
    pub title: Text,
    pub title_href: String,
    pub pool: Text,
    pub phase: String,
    pub tone: &'static str,
    pub message: Text,
    pub progress: String,
    pub waves: Vec<WaveRow>,
    /// Nodes that failed or were skipped.
    pub nodes: Vec<NodeLine>,
}

#[derive(Debug, Clone)]
pub struct WaveRow {
    pub label: Text,
    pub rule: Text,
    pub state: String,
    pub tone: &'static str,
    pub icon: &'static str,
}

#[derive(Debug, Clone)]
pub struct NodeLine {
    pub name: Text,
    pub href: String,
    pub word: &'static str,
    pub tone: &'static str,
    pub message: Text,
}

#[derive(Debug, Clone)]
pub struct GateRow {
    pub name: Text,
    pub check: Text,
    pub tone: &'static str,
    pub state: &'static str,
    pub message: Text,
    /// Since the last check.
    pub time: String,
}

#[derive(Debug, Clone)]
pub struct WindowRow {
    pub label: Text,
    pub tone: &'static str,
    pub state: String,
}

#[derive(Debug, Clone)]
pub struct BudgetRow {
    pub rule: Text,
    pub groups: Vec<Text>,
    pub more: usize,
}

/// Returns the page of all policies.
pub fn policies(frame: Frame, snapshot: &Snapshot) -> PoliciesPage {
    let cards = snapshot.policies.iter().map(|policy| PolicyCard {
        name: Text::new(&policy.name),
        href: link::policy(&policy.name),
        phase: format!("{:?}", policy.phase),
        tone: Tone::from(policy.phase).name(),
        problem: policy.problem.as_ref().map(Text::new),
        pools: policy
            .pools
            .iter()
            .map(|pool| PoolLine {
                name: Text::new(&pool.name),
                href: link::pool(&pool.name),
                tone: Tone::from(pool.phase).name(),
                message: Text::at_most(&pool.message, 300),
            })
            .collect(),
    });
    PoliciesPage {
        policies: cards.collect(),
        frame,
    }
}

/// Returns the page of a policy, or `None` if it does not exist.
pub fn policy(frame: Frame, snapshot: &Snapshot, name: &str, now: Timestamp) -> Option<PolicyPage> {
    let policy = snapshot.policies.iter().find(|policy| policy.name == name)?;
    Some(PolicyPage {
        frame,
        name: Text::new(name),
        phase: format!("{:?}", policy.phase),
        tone: Tone::from(policy.phase).name(),
        problem: policy.problem.as_ref().map(Text::new),
        rollouts: policy.pools.iter().map(RolloutPanel::on_policy_page).collect(),
        after: policy
            .after
            .iter()
            .map(|other| (Text::new(other), link::policy(other)))
            .collect(),
        gates: policy.gates.iter().map(|gate| gate_row(gate, now)).collect(),
        windows: policy
            .windows
            .iter()
            .map(|window| window_row(window, now))
            .collect(),
        budgets: policy.budgets.iter().map(budget_row).collect(),
    })
}

impl RolloutPanel {
    pub fn on_pool_page(policy: &str, rollout: &PoolRolloutOverview) -> Self {
        let title = Text::new(format!("Policy {policy}"));
        Self::new(title, link::policy(policy), rollout)
    }

    fn on_policy_page(rollout: &PoolRolloutOverview) -> Self {
        let title = Text::new(format!("Pool {}", rollout.name));
        Self::new(title, link::pool(&rollout.name), rollout)
    }

    fn new(title: Text, title_href: String, rollout: &PoolRolloutOverview) -> Self {
        let mut progress = format!("{} of {} updated", rollout.updated, count(rollout.total, "node"));
        if let Some(allowed) = rollout.allowed_failures {
            progress = format!(
                "{progress}, {} of {allowed} allowed failures",
                rollout.failed.len()
            );
        }
        let failed = rollout.failed.iter().map(|note| ("failed", Tone::Bad, note));
        let skipped = rollout
            .skipped
            .iter()
            .map(|note| ("was skipped", Tone::Warn, note));
        let nodes = failed
            .chain(skipped)
            .take(NODES)
            .map(|(word, tone, note)| NodeLine {
                name: Text::new(&note.node),
                href: link::node(&note.node),
                word,
                tone: tone.name(),
                message: Text::at_most(&note.message, 300),
            });
        Self {
            title,
            title_href,
            pool: Text::new(&rollout.name),
            phase: format!("{:?}", rollout.phase),
            tone: Tone::from(rollout.phase).name(),
            message: Text::at_most(&rollout.message, 600),
            progress,
            waves: rollout.waves.iter().map(wave_row).collect(),
            nodes: nodes.collect(),
        }
    }
}

fn wave_row(wave: &WaveOverview) -> WaveRow {
    let (word, tone, icon) = match wave.state {
        WaveState::Updated => ("updated", Tone::Good, "done"),
        WaveState::Soaking => ("updated, soaks", Tone::Busy, "running"),
        WaveState::Current => ("is being updated", Tone::Busy, "running"),
        WaveState::Pending => ("to come", Tone::Calm, "pending"),
    };
    let nodes = wave.nodes.map(|nodes| count(nodes, "node"));
    WaveRow {
        label: Text::new(&wave.label),
        rule: Text::at_most(&wave.rule, 300),
        state: match nodes {
            Some(nodes) => format!("{word}: {nodes}"),
            None => word.to_owned(),
        },
        tone: tone.name(),
        icon,
    }
}

fn gate_row(gate: &GateOverview, now: Timestamp) -> GateRow {
    GateRow {
        name: Text::new(&gate.name),
        check: Text::at_most(&gate.check, 300),
        tone: Tone::from(gate.state).name(),
        state: match gate.state {
            GateState::NotChecked => "not checked, because no node waits for it",
            GateState::Passed => "passed",
            GateState::Failed => "not passed",
            GateState::Unreachable => "cannot be checked",
        },
        message: Text::at_most(&gate.message, 300),
        time: gate.checked_at.map_or_else(String::new, |at| ago(now, at)),
    }
}

fn window_row(window: &WindowOverview, now: Timestamp) -> WindowRow {
    let (tone, state) = match (window.open_until, window.opens) {
        (Some(until), _) => {
            let rest = in_words(until.duration_since(now));
            (Tone::Good, format!("open, closes in {rest}"))
        }
        (None, Some(opens)) => {
            let rest = in_words(opens.duration_since(now));
            (Tone::Calm, format!("closed, opens in {rest}"))
        }
        (None, None) => (Tone::Warn, "never opens".to_owned()),
    };
    WindowRow {
        label: Text::new(&window.label),
        tone: tone.name(),
        state,
    }
}

fn budget_row(budget: &BudgetOverview) -> BudgetRow {
    let groups = budget.groups.iter().take(GROUPS).map(|group| {
        let name = match group.group.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        Text::at_most(&format!("{name}{} of {}", group.unavailable, group.limit), 300)
    });
    BudgetRow {
        rule: Text::at_most(&budget.rule, 300),
        groups: groups.collect(),
        more: budget.groups.len().saturating_sub(GROUPS),
    }
}
