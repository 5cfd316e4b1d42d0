//! Compares the responses of a server with the expected ones and reports the differences.

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

/// Returns one verdict for every check of either side, in the order of the expected ones.
///
/// Checks are matched by their sentence; a missing or an unexpected response is a difference.
pub fn compare(expected: &[Recording], actual: &[Recording]) -> Vec<Verdict> {
    let judged = expected.iter().map(|wanted| {
        let seen = actual.iter().find(|seen| seen.check == wanted.check);
        verdict(
            wanted,
            seen.map_or_else(
                || Some("there was no answer\n".to_owned()),
                |seen| difference(wanted, seen),
            ),
        )
    });
    let unexpected = actual
        .iter()
        .filter(|seen| !expected.iter().any(|wanted| wanted.check == seen.check))
        .map(|seen| {
            verdict(
                seen,
                Some("there is no golden answer for this check\n".to_owned()),
            )
        });
    judged.chain(unexpected).collect()
}

fn verdict(recording: &Recording, difference: Option<String>) -> Verdict {
    Verdict {
        check: recording.check.clone(),
        request: recording.request.clone(),
        difference,
    }
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
