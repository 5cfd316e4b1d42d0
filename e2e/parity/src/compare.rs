//! Compares what a server answered with what was expected and says where they part.

use similar::TextDiff;

use crate::golden::{Recording, yaml};

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub check: String,
    pub request: String,
    /// The difference as text; `None` when there is none.
    pub difference: Option<String>,
}

/// One verdict for every expected check, in order.
///
/// Checks are matched by position, because a transcript is a story; a missing answer is a difference.
pub fn compare(expected: &[Recording], actual: &[Recording]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = expected
        .iter()
        .enumerate()
        .map(|(index, wanted)| Verdict {
            check: wanted.check.clone(),
            request: wanted.request.clone(),
            difference: match actual.get(index) {
                None => Some("the transcript ended before this check\n".to_owned()),
                Some(seen) => difference(wanted, seen),
            },
        })
        .collect();
    for extra in actual.iter().skip(expected.len()) {
        verdicts.push(Verdict {
            check: extra.check.clone(),
            request: extra.request.clone(),
            difference: Some("there is no golden answer for this check\n".to_owned()),
        });
    }
    verdicts
}

fn difference(expected: &Recording, actual: &Recording) -> Option<String> {
    if expected == actual {
        return None;
    }
    let text = |recording: &Recording| yaml(recording).unwrap_or_else(|message| message);
    let (expected, actual) = (text(expected), text(actual));
    let diff = TextDiff::from_lines(&expected, &actual);
    Some(
        diff.unified_diff()
            .context_radius(3)
            .header("expected", "actual")
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recording(check: &str, status: u16) -> Recording {
        Recording {
            check: check.into(),
            request: "GET /".into(),
            answer: json!({"status": status}),
        }
    }

    #[test]
    fn equal_answers_pass_and_others_show_their_lines() {
        let verdicts = compare(
            &[
                recording("same", 200),
                recording("other", 200),
                recording("missing", 200),
            ],
            &[recording("same", 200), recording("other", 404)],
        );
        assert_eq!(verdicts[0].difference, None);
        let shown = verdicts[1].difference.as_deref().unwrap();
        assert!(
            shown.contains("-  status: 200") && shown.contains("+  status: 404"),
            "{shown}"
        );
        assert!(verdicts[2].difference.is_some());
    }

    #[test]
    fn an_answer_without_a_golden_one_fails() {
        let verdicts = compare(&[], &[recording("new", 200)]);
        assert!(verdicts[0].difference.is_some());
    }
}
