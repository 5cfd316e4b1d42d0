//! The changes between two configs, line by line, with contents if requested and allowed.

use std::collections::BTreeMap;

use mco_client::change_list;
use mco_client::comparison::ConfigComparison;
use mco_core::config::diff::ChangeKind;
use mco_core::config::disruption::Drain;
use mco_core::config::parsed_config::ParsedConfig;
use similar::{ChangeTag, TextDiff};

use super::secrecy;
use super::{Show, Text, Tone, link};

/// Maximum number of lines; the rest is counted.
const LINES: usize = 200;
/// Maximum number of diff lines on one page.
const DIFF_LINES: usize = 600;
/// Larger texts are not diffed, because that takes too long.
const LARGEST_TEXT: usize = 256 << 10;
const LONGEST_LINE: usize = 300;

#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub lines: Vec<ChangeRow>,
    /// The number of omitted lines.
    pub more: usize,
    /// Why the change cannot be applied to running nodes.
    pub obstacles: Vec<Text>,
}

#[derive(Debug, Clone)]
pub struct ChangeRow {
    pub sign: char,
    /// `added`, `removed`, `changed`
    pub kind: &'static str,
    pub what: &'static str,
    pub name: Text,
    /// The search page for the MachineConfigs that set it.
    pub search: String,
    pub details: Text,
    pub diff: Vec<DiffLine>,
    /// Why no diff is shown.
    pub hidden: Option<&'static str>,
    /// Its effect in each pool; only on the page of one MachineConfig.
    pub fates: Vec<ChangeEffect>,
}

#[derive(Debug, Clone)]
pub struct DiffLine {
    /// `add`, `del`, `same`
    pub kind: &'static str,
    pub sign: char,
    pub text: Text,
}

#[derive(Debug, Clone)]
pub struct ChangeEffect {
    pub tone: &'static str,
    pub text: Text,
}

/// The disruption of a change.
#[derive(Debug, Clone)]
pub struct Price {
    pub level: String,
    pub tone: &'static str,
    /// Each change with its action.
    pub causes: Vec<(Text, Text, Text)>,
    pub more: usize,
    pub drain: Option<Text>,
}

pub fn changes(comparison: &ConfigComparison, old: &ParsedConfig, new: &ParsedConfig, show: Show) -> Changes {
    let lines = change_list::lines(&comparison.changes);
    let more = lines.len().saturating_sub(LINES);
    let mut texts = match show {
        Show::Summaries => BTreeMap::new(),
        Show::Contents => texts(comparison, old, new),
    };
    let lines = lines.into_iter().take(LINES).map(|line| {
        let shown = texts.remove(&line.name).filter(|_| line.what == "file");
        let (diff, hidden) = match shown {
            None => (Vec::new(), None),
            Some(Ok(diff)) => (diff, None),
            Some(Err(why)) => (Vec::new(), Some(why)),
        };
        ChangeRow {
            sign: line.kind.sign(),
            kind: kind(line.kind),
            what: line.what,
            search: link::search(&line.name),
            name: line.name.into(),
            details: line.details.into(),
            diff,
            hidden,
            fates: Vec::new(),
        }
    });
    Changes {
        lines: lines.collect(),
        more,
        obstacles: comparison
            .obstacles
            .iter()
            .map(|one| one.to_string().into())
            .collect(),
    }
}

pub fn price(comparison: &ConfigComparison) -> Price {
    let causes = comparison.cost.causes.iter().take(LINES).map(|cause| {
        let actions: Vec<String> = cause.actions.iter().map(ToString::to_string).collect();
        (
            Text::new(&cause.change),
            Text::new(actions.join(", ")),
            Text::new(&cause.rule),
        )
    });
    Price {
        level: comparison.level.to_string(),
        tone: Tone::from(comparison.level).name(),
        causes: causes.collect(),
        more: comparison.cost.causes.len().saturating_sub(LINES),
        drain: match &comparison.cost.drain {
            Drain::Needed { because } => Some(because.into()),
            Drain::NotNeeded => None,
        },
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

fn kind(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Changed => "changed",
    }
}

type Shown = Result<Vec<DiffLine>, &'static str>;

fn texts(comparison: &ConfigComparison, old: &ParsedConfig, new: &ParsedConfig) -> BTreeMap<String, Shown> {
    let mut room = DIFF_LINES;
    let shown = comparison.texts(old, new).map(|(path, before, after)| {
        let secret = secrecy::hidden(old, path, &before).or_else(|| secrecy::hidden(new, path, &after));
        let shown = match secret {
            Some(why) => Err(why),
            None if before.len().max(after.len()) > LARGEST_TEXT => {
                Err("It is too large to be shown line by line.")
            }
            None => Ok(difference(&before, &after, &mut room)),
        };
        (path.to_owned(), shown)
    });
    shown.collect()
}

fn difference(before: &str, after: &str, room: &mut usize) -> Vec<DiffLine> {
    let diff = TextDiff::from_lines(before, after);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(3) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            if *room == 0 {
                lines.push(DiffLine {
                    kind: "same",
                    sign: ' ',
                    text: Text::new("… and more, which is not shown"),
                });
                return lines;
            }
            *room -= 1;
            let (kind, sign) = match change.tag() {
                ChangeTag::Insert => ("add", '+'),
                ChangeTag::Delete => ("del", '-'),
                ChangeTag::Equal => ("same", ' '),
            };
            let text = change.value().trim_end_matches('\n');
            lines.push(DiffLine {
                kind,
                sign,
                text: Text::at_most(text, LONGEST_LINE),
            });
        }
    }
    lines
}
