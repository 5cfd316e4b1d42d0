//! The hooks of a node as its daemon reports them: programs that run before and after a change.

use std::fmt;

use serde::{Deserialize, Serialize};

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookPhase {
    /// After the drain, before anything is written.
    BeforeApply,
    /// All files are in place; no service was restarted yet.
    AfterApply,
    /// Immediately before the reboot of the change.
    BeforeReboot,
    /// The node is healthy after the reboot; the change is about to be confirmed.
    AfterReboot,
}

impl HookPhase {
    /// Returns whether a failure undoes the change.
    pub fn can_refuse(self) -> bool {
        self != Self::AfterReboot
    }
}

impl fmt::Display for HookPhase {
    /// Formats the phase as the name of its directory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeApply => "before-apply",
            Self::AfterApply => "after-apply",
            Self::BeforeReboot => "before-reboot",
            Self::AfterReboot => "after-reboot",
        })
    }
}

/// The result of one hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookResult {
    pub phase: HookPhase,
    /// The file name.
    pub hook: String,
    /// The config that the change leads to.
    pub config: String,
    /// How it failed, such as `exit code 3`; `None` if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The end of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

impl HookResult {
    /// Returns the last lines of the output in one line.
    pub fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.output.lines().filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }
}

const LAST_LINES: usize = 5;

impl fmt::Display for HookResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hook {}/{} ", self.phase, self.hook)?;
        match &self.failure {
            None => f.write_str("succeeded")?,
            Some(failure) => write!(f, "failed with {failure}")?,
        }
        match self.last_lines().as_str() {
            "" => Ok(()),
            lines => write!(f, ": {lines}"),
        }
    }
}

/// Reads the results from the annotation of a Node; one that cannot be parsed has none.
pub fn parse(annotation: &str) -> Vec<HookResult> {
    serde_json::from_str(annotation).unwrap_or_default()
}

/// Returns the annotation with these results: the latest ones that fit.
pub fn annotation(results: &[HookResult], limit: usize) -> String {
    let mut results = results;
    loop {
        let text = serde_json::to_string(results).unwrap_or_default();
        match results.split_first() {
            Some((_, rest)) if text.len() > limit => results = rest,
            _ => return text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(hook: &str, failure: Option<&str>, output: &str) -> HookResult {
        HookResult {
            phase: HookPhase::BeforeReboot,
            hook: hook.to_owned(),
            config: "rendered-worker-2".to_owned(),
            failure: failure.map(str::to_owned),
            output: output.to_owned(),
        }
    }

    #[test]
    fn a_failure_names_the_hook_the_exit_code_and_the_last_lines() {
        let failed = result("10-storage", Some("exit code 3"), "1\n2\n3\n\n4\n5\n6\n");
        assert_eq!(
            failed.to_string(),
            "hook before-reboot/10-storage failed with exit code 3: 2 | 3 | 4 | 5 | 6"
        );
        assert_eq!(
            result("a", None, "").to_string(),
            "hook before-reboot/a succeeded"
        );
    }

    #[test]
    fn the_annotation_keeps_the_latest_results_that_fit() {
        let results = [
            result("a", None, &"x".repeat(300)),
            result("b", Some("signal 9"), ""),
        ];
        assert_eq!(parse(&annotation(&results, 4096)), results);
        assert_eq!(parse(&annotation(&results, 200)), results[1..]);
        assert_eq!(parse("{"), []);
    }
}
