//! A node's page: its state, its pending update, and its problems with their remedies.

use askama::Template;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use mco_client::advice;
use mco_client::comparison::ConfigComparison;
use mco_client::drift::Drift;
use mco_client::overview::NodeStanding;
use mco_client::snapshot::Snapshot;
use mco_client::text::ago;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::rollout::node_progress::{StageReport, StageState};

use super::changes::{self, Changes, Price};
use super::{Frame, Show, Text, Tone, link, tone};
use crate::hub::time_of;

/// Maximum number of events, which covers the last days.
const EVENTS: usize = 40;

#[derive(Debug, Template)]
#[template(path = "node.html")]
pub struct NodePage {
    pub frame: Frame,
    pub name: Text,
    pub pool: Option<(Text, String)>,
    pub standing: &'static str,
    pub tone: &'static str,
    pub doing: Text,
    pub time: String,
    pub stages: Vec<StageView>,
    /// Whether the stages are those of a completed update.
    pub arrived: bool,
    pub facts: Vec<Fact>,
    pub trouble: Option<NodeTrouble>,
    pub update: Option<NodeUpdateView>,
    /// Why the changes of the update are unknown.
    pub update_unknown: Option<Text>,
    pub contents: ContentsLink,
    pub events: Vec<EventView>,
    pub events_unknown: Option<Text>,
}

impl NodePage {
    fn adoption(&self) -> String {
        link::adoption(self.name.as_str())
    }
}

/// The link that shows or hides file contents.
#[derive(Debug, Clone)]
pub struct ContentsLink {
    pub href: String,
    pub shown: bool,
}

impl ContentsLink {
    pub fn of(page: &str, show: Show) -> Self {
        match show {
            Show::Summaries => Self {
                href: format!("{page}?contents=1#changes"),
                shown: false,
            },
            Show::Contents => Self {
                href: format!("{page}#changes"),
                shown: true,
            },
        }
    }
}

#[derive(Debug, Clone)]
pub struct StageView {
    pub name: &'static str,
    pub class: &'static str,
    pub word: &'static str,
    pub time: String,
    pub message: Text,
}

#[derive(Debug, Clone)]
pub struct Fact {
    pub name: &'static str,
    pub value: Text,
    /// The full value, where it is shortened.
    pub full: Text,
    pub href: Option<String>,
}

#[derive(Debug, Clone)]
pub struct NodeTrouble {
    pub title: &'static str,
    /// The daemon's message.
    pub complaint: Text,
    pub meaning: &'static str,
    pub steps: &'static [&'static str],
}

#[derive(Debug, Clone)]
pub struct NodeUpdateView {
    pub changes: Changes,
    pub price: Price,
}

#[derive(Debug, Clone)]
pub struct EventView {
    pub tone: &'static str,
    pub reason: Text,
    pub message: Text,
    pub time: String,
    pub times: i32,
}

/// The changes between a node's two configs, if both could be read.
#[derive(Debug)]
pub enum Between<'a> {
    Nothing,
    Configs(&'a ConfigComparison, &'a ParsedConfig, &'a ParsedConfig),
    Unknown(String),
}

/// Returns the page of a node, or `None` if it does not exist.
pub fn node(
    frame: Frame,
    snapshot: &Snapshot,
    name: &str,
    between: &Between<'_>,
    events: Result<Vec<Event>, String>,
    show: Show,
    now: Timestamp,
) -> Option<NodePage> {
    let (details, overview) = snapshot.node(name)?;
    let standing = overview.map(|node| node.standing);
    let mut facts = vec![
        fact("Current config", overview.map_or("", |node| &node.current)),
        fact("Desired config", overview.map_or("", |node| &node.desired)),
    ];
    for fact in &mut facts {
        let is_known = fact.value.as_str() != UNKNOWN;
        fact.href = is_known.then(|| link::config(fact.value.as_str()));
        fact.value = Text::config(fact.full.as_str());
    }
    let yes_no = |value: bool| if value { "yes" } else { "no" };
    facts.extend([
        fact("Daemon says", overview.map_or("", |node| &node.state)),
        fact("Ready", overview.map_or("", |node| yes_no(node.ready))),
        fact("Cordoned", overview.map_or("", |node| yes_no(node.cordoned))),
        fact(
            "On drift",
            details.drift_policy.as_deref().unwrap_or("degrade (the default)"),
        ),
        drift(details.drift.as_ref(), name),
        fact("Operating system", &details.os),
        fact("Kubelet", &details.kubelet),
    ]);
    let trouble = standing
        .filter(|standing| *standing == NodeStanding::Degraded)
        .map(|_| {
            let advice = advice::for_complaint(&details.reason);
            NodeTrouble {
                title: advice.title,
                complaint: Text::new(&details.reason),
                meaning: advice.meaning,
                steps: advice.steps,
            }
        });
    let (events, events_unknown) = match events {
        Ok(events) => (event_views(&events, now), None),
        Err(error) => (Vec::new(), Some(error.into())),
    };
    let (update, update_unknown) = match between {
        Between::Nothing => (None, None),
        Between::Configs(comparison, old, new) => (
            Some(NodeUpdateView {
                changes: changes::changes(comparison, old, new, show),
                price: changes::price(comparison),
            }),
            None,
        ),
        Between::Unknown(why) => (None, Some(Text::new(why))),
    };
    Some(NodePage {
        name: Text::new(name),
        pool: details
            .pool
            .as_deref()
            .map(|pool| (Text::new(pool), link::pool(pool))),
        standing: standing.map_or("Not managed", tone::standing),
        tone: standing.map_or("calm", |standing| Tone::from(standing).name()),
        doing: Text::new(overview.map_or("belongs to no pool", |node| &node.doing)),
        time: overview
            .and_then(|node| node.since)
            .map_or_else(String::new, |since| ago(now, since)),
        stages: details
            .timeline
            .iter()
            .map(|report| stage_view(report, now))
            .collect(),
        arrived: details
            .timeline
            .last()
            .is_some_and(|last| last.state == StageState::Done),
        facts,
        trouble,
        update,
        update_unknown,
        contents: ContentsLink::of(&link::node(name), show),
        events,
        events_unknown,
        frame,
    })
}

const UNKNOWN: &str = "not known";

fn fact(name: &'static str, value: &str) -> Fact {
    let value = Text::new(if value.is_empty() { UNKNOWN } else { value });
    Fact {
        name,
        full: value.clone(),
        value,
        href: None,
    }
}

/// Returns the drift of a node, with a link to the MachineConfig that sets the file.
fn drift(drift: Option<&Drift>, node: &str) -> Fact {
    let Some(drift) = drift else {
        return fact("Drift", "none reported");
    };
    let subject = drift.subject.as_deref();
    let more = match drift.others.len() + drift.more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let text = format!("{} {}{more}", subject.unwrap_or_default(), drift.difference);
    Fact {
        href: subject.map(|path| format!("{}&node={}", link::search(path), link::encoded(node))),
        ..fact("Drift", text.trim())
    }
}

fn stage_view(report: &StageReport, now: Timestamp) -> StageView {
    let (class, word) = tone::stage(report.state);
    let message = match report.state {
        StageState::Running | StageState::Failed => Text::at_most(&report.message, 400),
        _ => Text::default(),
    };
    StageView {
        name: report.stage.as_str(),
        class,
        word,
        time: report
            .since
            .map_or_else(String::new, |since| format!("{} ago", ago(now, since))),
        message,
    }
}

fn event_views(events: &[Event], now: Timestamp) -> Vec<EventView> {
    let shown = events.iter().take(EVENTS);
    shown
        .map(|event| EventView {
            tone: match event.type_.as_deref() {
                Some("Warning") => "warn",
                _ => "calm",
            },
            reason: Text::new(event.reason.as_deref().unwrap_or_default()),
            message: Text::at_most(event.message.as_deref().unwrap_or_default(), 500),
            time: time_of(event).map_or_else(String::new, |at| format!("{} ago", ago(now, at))),
            times: event
                .series
                .as_ref()
                .and_then(|series| series.count)
                .or(event.count)
                .unwrap_or(1),
        })
        .collect()
}
