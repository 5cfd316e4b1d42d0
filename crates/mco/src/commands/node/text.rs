//! One node as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_client::text::{ago, lasting, moment};

use super::NodeStatusReport;
use crate::output::escape_control_chars;
use crate::style::Severity;
use crate::table::Table;

pub fn describe(report: &NodeStatusReport, now: Timestamp) -> String {
    let node = &report.node;
    let mut text = String::new();
    let state = match node.state.as_str() {
        "" => "unknown: its daemon has not reported yet",
        state => state,
    };
    let pool = report.pool.as_deref().unwrap_or("none");
    let mut lines = vec![
        ("node", node.name.clone()),
        ("pool", pool.to_owned()),
        ("state", state.to_owned()),
        ("config", configs(&node.current, &node.desired)),
    ];
    let kubelet = if node.ready { "ready" } else { "not ready" };
    let cordon = if node.cordoned { ", cordoned" } else { "" };
    lines.push(("kubelet", format!("{kubelet}{cordon}")));
    let since = node.since.map(|since| format!(", for {}", ago(now, since)));
    lines.push(("now", format!("{}{}", node.doing, since.unwrap_or_default())));
    for (name, value) in lines {
        let severity = if name == "state" {
            Severity::of_node(&node.state)
        } else {
            Severity::Plain
        };
        let _ = writeln!(text, "{name:9} {}", severity.paint(&escape_control_chars(&value)));
    }
    if let Some(trouble) = &report.trouble {
        let _ = writeln!(
            text,
            "\ndegraded  {}",
            escape_control_chars(&trouble.complaint).replace('\n', "\n          ")
        );
        let _ = writeln!(text, "meaning   {}", trouble.advice.meaning);
        for (index, step) in trouble.advice.steps.iter().enumerate() {
            let label = if index == 0 { "to do" } else { "" };
            let _ = writeln!(text, "{label:9} {}. {step}", index + 1);
        }
    }
    for (index, hook) in report.hooks.iter().enumerate() {
        let label = if index == 0 { "\nhooks" } else { "" };
        let width = if index == 0 { 10 } else { 9 };
        let _ = writeln!(text, "{label:width$} {}", escape_control_chars(&hook.to_string()));
    }
    text.push('\n');
    text.push_str(&timeline(report));
    text
}

fn configs(current: &str, desired: &str) -> String {
    match (current, desired) {
        ("", "") => "none yet".to_owned(),
        (current, desired) if current == desired => current.to_owned(),
        ("", desired) => format!("none yet, goes to {desired}"),
        (current, "") => current.to_owned(),
        (current, desired) => format!("{current}, goes to {desired}"),
    }
}

fn timeline(report: &NodeStatusReport) -> String {
    let timeline = &report.timeline;
    if timeline.moments.is_empty() {
        return "No events of its last update exist; the cluster deletes events after a while.\n".to_owned();
    }
    let mut table = Table::new(["TIME", "STEP", "TOOK", "WHAT"]);
    for one in &timeline.moments {
        table.row([
            moment(one.at),
            one.step.as_str().to_owned(),
            one.seconds.map_or_else(String::new, lasting),
            one_line(&one.message),
        ]);
    }
    let mut text = table.to_string();
    if let Some(seconds) = timeline.seconds {
        let _ = writeln!(text, "\nThe last update took {}.", lasting(seconds));
    }
    text
}

/// Joins the lines of a message, so that a table has one line per row.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_where_it_is_and_where_it_goes() {
        for (current, desired, shown) in [
            ("", "", "none yet"),
            ("a", "a", "a"),
            ("a", "b", "a, goes to b"),
            ("", "b", "none yet, goes to b"),
            ("a", "", "a"),
        ] {
            assert_eq!(configs(current, desired), shown);
        }
    }
}
