//! Drift as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_client::drift::{Drift, DriftReport};
use mco_client::text::ago;

use crate::input::count;
use crate::output::escape_control_chars;

pub fn describe(report: &DriftReport, now: Timestamp) -> String {
    let mut text = String::new();
    if report.drifted.is_empty() {
        text.push_str("No node reports drift.\n");
    }
    for drift in &report.drifted {
        describe_one(drift, now, &mut text);
    }
    for healed in &report.healed {
        let when = healed.at.map(|at| format!(", {} ago", ago(now, at)));
        let _ = writeln!(
            text,
            "{} put back: {}{}",
            escape_control_chars(&healed.node),
            escape_control_chars(&healed.what),
            when.unwrap_or_default()
        );
    }
    if !report.drifted.is_empty() {
        text.push_str(
            "\nRestore each file to the contents in its MachineConfig, or put your change into a MachineConfig.\n",
        );
        text.push_str(if report.drifted.iter().all(|drift| drift.was_installed) {
            "To apply a node's config again, create /run/machine-config-daemon-force on it.\n"
        } else {
            "To see what a config replaces on a node that existed before, run mco adopt NODE.\n"
        });
    }
    text
}

fn describe_one(drift: &Drift, now: Timestamp, text: &mut String) {
    let since = drift.since.map(|since| format!(", for {}", ago(now, since)));
    let _ = writeln!(
        text,
        "{} (pool {}){}",
        escape_control_chars(&drift.node),
        escape_control_chars(&drift.pool),
        since.unwrap_or_default()
    );
    let subject = drift
        .subject
        .as_deref()
        .map_or(String::new(), |subject| format!("{subject}: "));
    let more = match drift.more {
        0 => String::new(),
        more => format!(", and {} more", count(more, "difference")),
    };
    let _ = writeln!(
        text,
        "  {}{more}",
        escape_control_chars(&format!("{subject}{}", drift.difference))
    );
    if let Some(wanted) = &drift.wanted {
        let hash: String = wanted.sha256.chars().take(12).collect();
        let _ = writeln!(
            text,
            "  should be {} bytes sha256:{hash}, mode {}",
            wanted.size, wanted.mode
        );
    }
    if let Some(source) = &drift.set_by {
        let _ = writeln!(text, "  set by MachineConfig {}", escape_control_chars(source));
    }
    for other in &drift.others {
        let subject = other
            .subject
            .as_deref()
            .map_or(String::new(), |subject| format!("{subject}: "));
        let _ = writeln!(
            text,
            "  {}",
            escape_control_chars(&format!("{subject}{}", other.difference))
        );
    }
    let _ = writeln!(text, "  compared with {}", escape_control_chars(&drift.config));
}
