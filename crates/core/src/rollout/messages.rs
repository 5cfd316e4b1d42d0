//! Messages that are parsed again: a constructor and a parser for each, side by side.
//!
//! The daemon and the controllers write these texts into annotations, conditions and events; `mco drift`, `mco node`,
//! the console and the controllers themselves read them back. Most are texts of the reference implementation, which
//! administrators and their tools search for, so their bytes do not change.

use std::fmt;

/// One difference between a node's disk and its config, as in `reason`, events and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriftCause {
    /// A file has other contents.
    Content { path: String },
    /// A file, directory or link is missing.
    Missing { path: String },
    /// Mode, owner or link target differ.
    Attribute {
        attribute: DriftAttribute,
        path: String,
        expected: String,
        received: String,
    },
}

/// What of a file differs other than its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftAttribute {
    Mode,
    Owner,
    /// The target of a symbolic link.
    Target,
    /// The link that masks a systemd unit.
    MaskedUnit,
}

impl DriftAttribute {
    const ALL: [Self; 4] = [Self::Mode, Self::Owner, Self::Target, Self::MaskedUnit];

    /// The attribute as one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Target | Self::MaskedUnit => "target",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Mode => "mode mismatch for file: ",
            Self::Owner => "owner mismatch for file: ",
            Self::Target => "target mismatch for link ",
            Self::MaskedUnit => "state validation: invalid unit masked setting. path: ",
        }
    }
}

const CONTENT: &str = "content mismatch for file ";
const MISSING: &str = "could not stat file ";
const EXPECTED: &str = "; expected: ";
const RECEIVED: &str = "; received: ";

impl fmt::Display for DriftCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { path } => write!(formatter, "{CONTENT}{path:?}"),
            Self::Missing { path } => {
                write!(
                    formatter,
                    "{MISSING}{path:?}: lstat {path}: no such file or directory"
                )
            }
            Self::Attribute {
                attribute,
                path,
                expected,
                received,
            } => write!(
                formatter,
                "{}{path:?}{EXPECTED}{expected}{RECEIVED}{received}",
                attribute.prefix()
            ),
        }
    }
}

impl DriftCause {
    /// Parses the text of one difference; `None` for texts of other kinds.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(CONTENT) {
            return Some(Self::Content { path: quoted(rest)? });
        }
        if let Some(rest) = text.strip_prefix(MISSING) {
            return Some(Self::Missing { path: quoted(rest)? });
        }
        DriftAttribute::ALL.into_iter().find_map(|attribute| {
            let rest = text.strip_prefix(attribute.prefix())?;
            let (path, rest) = rest.split_once(EXPECTED)?;
            let (expected, received) = rest.split_once(RECEIVED)?;
            Some(Self::Attribute {
                attribute,
                path: quoted(path)?,
                expected: expected.to_owned(),
                received: received.to_owned(),
            })
        })
    }
}

/// The reason of a node whose disk differs from its config: the first difference and the number of further ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedState {
    /// The config that the disk was compared with.
    pub config: String,
    pub cause: String,
    pub more: usize,
    /// Why the previous boot lost its staged deployment, if it did.
    pub root_cause: Option<String>,
}

const UNEXPECTED_STATE: &str = "unexpected on-disk state validating against ";
const ROOT_CAUSE: &str = "; possible root cause: ";

impl fmt::Display for UnexpectedState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{UNEXPECTED_STATE}{}: {}", self.config, self.cause)?;
        if self.more > 0 {
            write!(formatter, " (and {} more)", self.more)?;
        }
        match &self.root_cause {
            Some(cause) => write!(formatter, "{ROOT_CAUSE}{cause}"),
            None => Ok(()),
        }
    }
}

impl UnexpectedState {
    pub fn parse(text: &str) -> Option<Self> {
        let (config, rest) = text.strip_prefix(UNEXPECTED_STATE)?.split_once(": ")?;
        let (rest, root_cause) = match rest.split_once(ROOT_CAUSE) {
            Some((rest, cause)) => (rest, Some(cause.to_owned())),
            None => (rest, None),
        };
        let (cause, more) = split_more(rest);
        Some(Self {
            config: config.to_owned(),
            cause: cause.to_owned(),
            more,
            root_cause,
        })
    }
}

/// The event of a node that has repaired drift under the policy `heal`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftHealed {
    pub cause: String,
    pub more: usize,
}

const HEALED: &str = "; restored according to the pool's drift policy";

impl fmt::Display for DriftHealed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.cause)?;
        if self.more > 0 {
            write!(formatter, " (and {} more)", self.more)?;
        }
        write!(formatter, "{HEALED}")
    }
}

impl DriftHealed {
    pub fn parse(text: &str) -> Option<Self> {
        let (cause, more) = split_more(text.strip_suffix(HEALED)?);
        Some(Self {
            cause: cause.to_owned(),
            more,
        })
    }
}

/// The pool's event for a node that got a new desired config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetedNode {
    pub node: String,
    /// The rendered config, and the built image in a layered pool.
    pub target: String,
}

const TARGETED: &str = "Targeted node ";
const TO_CONFIG: &str = " to MachineConfig: ";

impl fmt::Display for TargetedNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{TARGETED}{}{TO_CONFIG}{}", self.node, self.target)
    }
}

impl TargetedNode {
    pub fn parse(text: &str) -> Option<Self> {
        let (node, target) = text.strip_prefix(TARGETED)?.split_once(TO_CONFIG)?;
        Some(Self {
            node: node.to_owned(),
            target: target.to_owned(),
        })
    }
}

/// The message of a MachineConfigNode condition that belongs to an earlier update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastUpdateStep {
    pub config: String,
    pub message: String,
}

const PAST: &str = "Action during update to ";

impl fmt::Display for PastUpdateStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PAST}{}: {}", self.config, self.message)
    }
}

impl PastUpdateStep {
    pub fn parse(text: &str) -> Option<Self> {
        let (config, message) = text.strip_prefix(PAST)?.split_once(": ")?;
        Some(Self {
            config: config.to_owned(),
            message: message.to_owned(),
        })
    }
}

/// What a drain waits for, in the Node's `reason` and at the end of a drain timeout.
pub fn drain_waits_for(obstacle: &str) -> String {
    format!("the drain waits for {obstacle}")
}

/// The start of the daemon's message for a drain that timed out.
pub const DRAIN_TIMED_OUT: &str = "failed to drain node";
/// The start of the daemon's message for an uncordon request that timed out.
pub const UNCORDON_TIMED_OUT: &str = "failed to uncordon node";

/// The daemon's message for a drain that timed out.
pub fn drain_timed_out(node: &str) -> String {
    timed_out(DRAIN_TIMED_OUT, node, "1 hour")
}

/// The daemon's message for an uncordon request that timed out.
pub fn uncordon_timed_out(node: &str) -> String {
    timed_out(UNCORDON_TIMED_OUT, node, "10 minutes")
}

fn timed_out(what: &str, node: &str, timeout: &str) -> String {
    format!("{what}: {node} after {timeout}. Please see machine-config-controller logs for more information")
}

/// Texts of which each message about drift contains one.
pub const DRIFT_SIGNS: &[&str] = &[
    "unexpected on-disk state",
    "content mismatch for file",
    "mode mismatch for file",
    "owner mismatch for file",
    "target mismatch for link",
    "could not stat file",
    "invalid unit masked setting",
    "is not the configured one",
    "state validation:",
];

fn split_more(text: &str) -> (&str, usize) {
    let more =
        |(cause, rest): (&'_ str, &'_ str)| Some((cause.len(), rest.strip_suffix(" more)")?.parse().ok()?));
    match text.rsplit_once(" (and ").and_then(more) {
        Some((end, more)) => (text.get(..end).unwrap_or(text), more),
        None => (text, 0),
    }
}

/// Returns the first text in quotation marks, unescaped.
pub fn quoted(text: &str) -> Option<String> {
    let start = text.find('"')?;
    let mut texts = serde_json::Deserializer::from_str(text.get(start..)?).into_iter::<String>();
    match texts.next() {
        Some(Ok(text)) => Some(text),
        // Escapes that only Rust and Go write.
        _ => text.get(start + 1..)?.split('"').next().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes() -> Vec<DriftCause> {
        let attribute = |attribute: DriftAttribute| DriftCause::Attribute {
            attribute,
            path: "/etc/a \"b\"".to_owned(),
            expected: "-rw-r--r--".to_owned(),
            received: "-rw-------".to_owned(),
        };
        let path = || "/etc/chrony.conf".to_owned();
        let mut causes = vec![
            DriftCause::Content { path: path() },
            DriftCause::Missing { path: path() },
        ];
        causes.extend(DriftAttribute::ALL.map(attribute));
        causes
    }

    #[test]
    fn causes_of_drift_survive_a_round_trip() {
        for cause in causes() {
            let text = cause.to_string();
            assert_eq!(DriftCause::parse(&text), Some(cause), "{text}");
            assert!(DRIFT_SIGNS.iter().any(|sign| text.contains(sign)), "{text}");
        }
        assert_eq!(DriftCause::parse("disk full"), None);
    }

    #[test]
    fn unexpected_states_survive_a_round_trip() {
        for cause in causes() {
            for (more, root_cause) in [(0, None), (29, None), (1, Some("no space left".to_owned()))] {
                let state = UnexpectedState {
                    config: "rendered-worker-1".to_owned(),
                    cause: cause.to_string(),
                    more,
                    root_cause,
                };
                assert_eq!(UnexpectedState::parse(&state.to_string()), Some(state));
                let healed = DriftHealed {
                    cause: cause.to_string(),
                    more,
                };
                assert_eq!(DriftHealed::parse(&healed.to_string()), Some(healed));
            }
        }
        assert_eq!(UnexpectedState::parse("unexpected"), None);
    }

    #[test]
    fn targets_and_past_steps_survive_a_round_trip() {
        let targeted = TargetedNode {
            node: "w-1".to_owned(),
            target: "rendered-worker-1 / Image: registry/os@sha256:1".to_owned(),
        };
        assert_eq!(TargetedNode::parse(&targeted.to_string()), Some(targeted));
        let step = PastUpdateStep {
            config: "rendered-worker-1".to_owned(),
            message: "Drained: everything".to_owned(),
        };
        assert_eq!(PastUpdateStep::parse(&step.to_string()), Some(step));
    }

    #[test]
    fn timeouts_have_the_wording_that_administrators_search_for() {
        assert_eq!(
            drain_timed_out("w"),
            "failed to drain node: w after 1 hour. Please see machine-config-controller logs for more information"
        );
        assert_eq!(
            uncordon_timed_out("w"),
            "failed to uncordon node: w after 10 minutes. Please see machine-config-controller logs for more information"
        );
        let minutes = |text: &str| drain_timed_out("w").contains(text);
        assert_eq!(super::super::drain::timing::DRAIN_TIMEOUT.as_secs(), 3600);
        assert!(minutes("1 hour"));
        assert_eq!(super::super::drain::timing::UNCORDON_TIMEOUT.as_secs(), 600);
    }
}
