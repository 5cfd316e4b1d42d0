//! A plan as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use mco_client::forecast::PoolForecast;
use mco_client::image_builds::ImageForecast;
use mco_client::plan::PlanReport;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::rollout::PoolWaves;

use crate::commands::diff::text as diff;
use crate::input::count;
use crate::output::escape_control_chars;

pub fn describe(report: &PlanReport, show_contents: bool) -> String {
    let mut text = String::new();
    for refusal in &report.refused {
        for problem in &refusal.problems {
            let _ = writeln!(
                text,
                "refused: {} {:?}: {}",
                refusal.kind,
                refusal.name,
                escape_control_chars(&problem.to_string())
            );
        }
    }
    if !report.refused.is_empty() {
        text.push_str("The rest of the plan omits what is rejected.\n\n");
    }
    for object in report.objects.iter().filter(|object| !object.accepted) {
        let _ = writeln!(
            text,
            "{} {:?} is invalid, so pools keep the config that was generated from it before: {}",
            object.kind,
            object.name,
            escape_control_chars(&object.message)
        );
    }
    let nothing = ParsedConfig::default();
    let pools = report.pools.iter().map(|pool| {
        let old = report.current.get(&pool.pool).unwrap_or(&nothing);
        describe_pool(pool, old, show_contents)
    });
    text + &pools.collect::<Vec<_>>().join("\n")
}

fn describe_pool(pool: &PoolForecast, old: &ParsedConfig, show_contents: bool) -> String {
    if let Some(error) = &pool.error {
        return format!(
            "pool {}: cannot be rendered, so its nodes do not change\n  {}\n",
            pool.pool,
            escape_control_chars(error).replace('\n', "\n  ")
        );
    }
    let texts = if show_contents {
        diff::unified(&pool.comparison, old, &pool.next)
    } else {
        BTreeMap::new()
    };
    let mut text = diff::describe(Some(&pool.pool), &pool.comparison, &texts);
    for one in &pool.overrides {
        let names = |parts: &[mco_client::explain::ConfigPart]| {
            let names = parts.iter().map(|part| part.machine_config.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(
            text,
            "  {} {}: {} overrides {}",
            one.section,
            escape_control_chars(&one.name),
            names(&one.from),
            names(&one.overridden)
        );
    }
    if let Some(image) = &pool.image {
        describe_image(image, show_contents, &mut text);
    }
    if let Some(rollout) = &pool.rollout {
        describe_rollout(rollout, &mut text);
    }
    for node in &pool.not_drained {
        let _ = writeln!(
            text,
            "  ! {node} is updated without a drain: it is the whole control plane"
        );
    }
    for blocker in &pool.blocked {
        let _ = writeln!(text, "  ! a drain would be blocked now: {blocker}");
    }
    for loss in &pool.losses {
        let _ = writeln!(
            text,
            "  ! a drain would delete {}",
            escape_control_chars(&loss.to_string())
        );
    }
    text
}

fn describe_image(image: &ImageForecast, show_contents: bool, text: &mut String) {
    for (index, line) in image.describe().iter().enumerate() {
        let line = escape_control_chars(line).replace('\n', "\n      ");
        let _ = match index {
            0 => writeln!(text, "  image {line}"),
            _ => writeln!(text, "    {line}"),
        };
    }
    if show_contents && image.requires_build && image.error.is_empty() {
        let _ = writeln!(text, "    Containerfile:");
        for line in image.containerfile.lines() {
            let _ = writeln!(text, "      {}", escape_control_chars(line));
        }
    }
}

fn describe_rollout(rollout: &PoolWaves, text: &mut String) {
    if let Some(pool) = &rollout.after {
        let _ = writeln!(text, "  after pool {pool} is updated");
    }
    if !rollout.one_at_a_time_with.is_empty() {
        let others = rollout.one_at_a_time_with.join(", ");
        let _ = writeln!(
            text,
            "  one control-plane node at a time, together with pool {others}"
        );
    }
    if let Some(hold) = &rollout.policy {
        let hold_text = escape_control_chars(&hold.at(Timestamp::now()));
        let _ = writeln!(text, "  {hold_text} (RolloutPolicy {})", hold.policy);
    }
    if !rollout.under_way.is_empty() {
        let _ = writeln!(text, "  turned around: {}", rollout.under_way.join(", "));
    }
    let nodes: usize = rollout.waves.iter().map(Vec::len).sum();
    if nodes > 0 {
        let _ = writeln!(
            text,
            "  rollout: {} in {}",
            count(nodes, "node"),
            count(rollout.waves.len(), "wave")
        );
    }
    for (index, wave) in rollout.waves.iter().enumerate() {
        let _ = writeln!(text, "    {}. {}", index + 1, wave.join(", "));
    }
    for held in &rollout.stuck {
        let _ = writeln!(text, "  ! {held}");
    }
}
