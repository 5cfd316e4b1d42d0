//! The plan page: preview a pasted change.

use askama::Template;
use mco_client::explain::ConfigPart;
use mco_client::forecast::PoolForecast;
use mco_client::image_builds::ImageForecast;
use mco_client::plan::PlanReport;
use mco_client::text::{count, escape_control_chars};
use mco_core::config::parsed_config::ParsedConfig;

use super::changes::{self, Changes, Price};
use super::{Frame, Show, Text, link};

/// Maximum number of waves, and of names in each.
const WAVES: usize = 20;
const NAMES: usize = 12;
const OVERRIDES: usize = 50;
const BLOCKED: usize = 50;

#[derive(Debug, Template)]
#[template(path = "plan.html")]
pub struct PlanPage {
    pub frame: Frame,
    pub asked: PlanQuestion,
    pub csrf: String,
    pub problem: Option<Text>,
    pub answer: Option<PlanAnswer>,
}

/// The submitted form, shown again.
#[derive(Debug, Clone, Default)]
pub struct PlanQuestion {
    /// The user's own input, shown to that user only; escaped, but not shortened.
    pub yaml: String,
    pub delete: String,
    pub contents: bool,
}

#[derive(Debug, Clone)]
pub struct PlanAnswer {
    pub headline: &'static str,
    pub tone: &'static str,
    pub icon: &'static str,
    pub refused: Vec<(Text, Text)>,
    /// Objects that would be stored, but from which no config would be generated.
    pub unusable: Vec<(Text, Text)>,
    pub pools: Vec<PoolPlanView>,
}

#[derive(Debug, Clone)]
pub struct PoolPlanView {
    pub pool: Text,
    pub href: String,
    pub error: Option<Text>,
    pub changed: bool,
    pub old: Text,
    pub new: Text,
    pub changes: Changes,
    pub price: Price,
    pub overrides: Vec<Text>,
    /// What happens to the OS image of the pool.
    pub image: Vec<Text>,
    pub rollout: Option<String>,
    pub after: Option<Text>,
    pub turned: Option<Text>,
    pub waves: Vec<Text>,
    pub more_waves: usize,
    pub stuck: Vec<Text>,
    pub blocked: Vec<Text>,
    pub losses: Vec<Text>,
    pub more_losses: usize,
    pub not_drained: Option<Text>,
}

pub fn plan(frame: Frame, mut asked: PlanQuestion, outcome: Option<Result<&PlanReport, String>>) -> PlanPage {
    for text in [&mut asked.yaml, &mut asked.delete] {
        *text = escape_control_chars(text);
    }
    let show = if asked.contents {
        Show::Contents
    } else {
        Show::Summaries
    };
    let csrf = frame
        .viewer
        .as_ref()
        .map(|viewer| viewer.csrf.clone())
        .unwrap_or_default();
    let (problem, answer) = match outcome {
        None => (None, None),
        Some(Err(problem)) => (Some(problem.into()), None),
        Some(Ok(report)) => (None, Some(answer(report, show))),
    };
    PlanPage {
        frame,
        asked,
        csrf,
        problem,
        answer,
    }
}

fn answer(report: &PlanReport, show: Show) -> PlanAnswer {
    let refused: Vec<(Text, Text)> = report
        .refused
        .iter()
        .flat_map(|refusal| {
            let object = Text::new(format!("{} {}", refusal.kind, refusal.name));
            refusal
                .problems
                .iter()
                .map(move |problem| (object.clone(), problem.to_string().into()))
        })
        .take(BLOCKED)
        .collect();
    let unusable = report.objects.iter().filter(|object| !object.accepted);
    let unusable: Vec<(Text, Text)> = unusable
        .take(BLOCKED)
        .map(|object| {
            let name = Text::new(format!("{} {}", object.kind, object.name));
            (name, object.message.clone().into())
        })
        .collect();
    let nothing = ParsedConfig::default();
    let mut pools: Vec<PoolPlanView> = report
        .pools
        .iter()
        .map(|pool| pool_plan(pool, report.current.get(&pool.pool).unwrap_or(&nothing), show))
        .collect();
    let failed = !refused.is_empty() || report.pools.iter().any(|pool| pool.error.is_some());
    pools.sort_by_key(|pool| !pool.changed);
    let (tone, icon, headline) = match report.is_change() {
        _ if failed => ("bad", "bad", "This would be rejected"),
        true => ("busy", "plan", "This is what would happen"),
        false => ("good", "good", "No node would change"),
    };
    PlanAnswer {
        headline,
        tone,
        icon,
        refused,
        unusable,
        pools,
    }
}

fn pool_plan(pool: &PoolForecast, old: &ParsedConfig, show: Show) -> PoolPlanView {
    let name = |name: &Option<String>| Text::new(name.as_deref().unwrap_or("nothing"));
    let names = |parts: &[ConfigPart]| {
        let names: Vec<&str> = parts.iter().map(|part| part.machine_config.as_str()).collect();
        names.join(", ")
    };
    let overrides = pool.overrides.iter().take(OVERRIDES).map(|one| {
        let (winners, losers) = (names(&one.from), names(&one.overridden));
        Text::new(format!(
            "{} {}: {winners} overrides {losers}",
            one.section, one.name
        ))
    });
    let waves = pool.rollout.as_ref().map_or(&[][..], |rollout| &rollout.waves);
    let nodes: usize = waves.iter().map(Vec::len).sum();
    let rollout = pool.rollout.as_ref();
    PoolPlanView {
        pool: Text::new(&pool.pool),
        href: link::pool(&pool.pool),
        error: pool.error.as_deref().map(Text::new),
        changed: pool.is_change(),
        old: name(&pool.comparison.old),
        new: name(&pool.comparison.new),
        changes: changes::changes(&pool.comparison, old, &pool.next, show),
        price: changes::price(&pool.comparison),
        overrides: overrides.collect(),
        image: pool
            .image
            .iter()
            .flat_map(ImageForecast::describe)
            .map(Text::new)
            .collect(),
        rollout: (nodes > 0).then(|| format!("{} in {}", count(nodes, "node"), count(waves.len(), "wave"))),
        after: rollout
            .and_then(|rollout| rollout.after.as_deref())
            .map(Text::new),
        turned: rollout
            .filter(|rollout| !rollout.under_way.is_empty())
            .map(|rollout| some_of(&rollout.under_way)),
        waves: waves.iter().take(WAVES).map(|wave| some_of(wave)).collect(),
        more_waves: waves.len().saturating_sub(WAVES),
        stuck: rollout
            .map_or(&[][..], |rollout| &rollout.stuck)
            .iter()
            .take(BLOCKED)
            .map(|held| held.to_string().into())
            .collect(),
        blocked: pool
            .blocked
            .iter()
            .take(BLOCKED)
            .map(|blocker| blocker.to_string().into())
            .collect(),
        losses: pool
            .losses
            .iter()
            .take(BLOCKED)
            .map(|loss| loss.to_string().into())
            .collect(),
        more_losses: pool.losses.len().saturating_sub(BLOCKED),
        not_drained: (!pool.not_drained.is_empty()).then(|| some_of(&pool.not_drained)),
    }
}

fn some_of(names: &[String]) -> Text {
    let more = names.len().saturating_sub(NAMES);
    let shown: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
    let shown = shown.join(", ");
    match more {
        0 => shown.into(),
        more => format!("{shown} and {more} more").into(),
    }
}
