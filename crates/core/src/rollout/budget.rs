//! The `maxUnavailable` budget of a pool.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("maxUnavailable: {value:?} is neither a number nor a percentage like \"50%\"")]
pub struct BudgetError {
    pub value: String,
}

/// The hint of an error about an invalid limit.
pub const HINT: &str = "use a number like 2 without quotes or a percentage like \"10%\"; 0 and \"0%\" mean 1, and \
                        spec.paused stops a rollout";

/// Returns why a limit never allows an update, regardless of the size of the pool; `None` for a valid one.
pub fn objection(setting: &IntOrString) -> Option<String> {
    let negative = |limit: &dyn std::fmt::Display| {
        Some(format!(
            "maxUnavailable: {limit} is negative, so no node is ever updated"
        ))
    };
    match setting {
        IntOrString::Int(count) if *count < 0 => negative(count),
        IntOrString::Int(_) => None,
        IntOrString::String(text) => match percentage(text) {
            Ok(percent) if percent < 0 => negative(&format_args!("{text:?}")),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        },
    }
}

/// The nodes that a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolNodes {
    /// Nodes that hold etcd members.
    ControlPlane,
    Workers,
}

/// Returns the pool's limit. 0 means 1, because pausing is the way to stop a rollout; a negative number allows no
/// update. Control-plane nodes are always updated one at a time: they hold etcd members, and two of three unavailable
/// at once lose the quorum.
pub fn max_unavailable(
    nodes: PoolNodes,
    setting: Option<&IntOrString>,
    members: usize,
) -> Result<i64, BudgetError> {
    let limit = match setting {
        None => 1,
        Some(IntOrString::Int(count)) => i64::from(*count),
        Some(IntOrString::String(text)) => percentage(text)?.saturating_mul(len(members)).div_euclid(100),
    };
    let limit = if limit == 0 { 1 } else { limit };
    Ok(match nodes {
        PoolNodes::ControlPlane => limit.min(1),
        PoolNodes::Workers => limit,
    })
}

/// Converts a count to a signed number.
pub(super) fn len(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn percentage(text: &str) -> Result<i64, BudgetError> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<i32>().ok());
    number.map(i64::from).ok_or_else(|| BudgetError {
        value: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_four_machines() {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        let cases = [
            ("nothing said", None, Ok(1)),
            ("a number", Some(IntOrString::Int(2)), Ok(2)),
            ("more than there are", Some(IntOrString::Int(9)), Ok(9)),
            ("zero cannot stop a rollout", Some(IntOrString::Int(0)), Ok(1)),
            (
                "a negative number allows no update",
                Some(IntOrString::Int(-1)),
                Ok(-1),
            ),
            ("a negative percentage allows no update", text("-50%"), Ok(-2)),
            ("zero percent cannot stop a rollout either", text("0%"), Ok(1)),
            ("half", text("50%"), Ok(2)),
            ("rounded down", text("60%"), Ok(2)),
            ("rounded down to nothing", text("10%"), Ok(1)),
            ("all of them", text("100%"), Ok(4)),
            ("words", text("50 percent"), Err("50 percent")),
            ("no percent sign", text("60"), Err("60")),
            ("a space", text("40 %"), Err("40 %")),
            ("nothing in front of the sign", text("%"), Err("%")),
        ];
        for (name, setting, expected) in cases {
            let expected = expected.map_err(|value| BudgetError {
                value: value.to_owned(),
            });
            assert_eq!(
                max_unavailable(PoolNodes::Workers, setting.as_ref(), 4),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn what_stops_a_pool_for_ever_is_objected_to() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for useful in [
            IntOrString::Int(0),
            IntOrString::Int(7),
            text("0%"),
            text("50%"),
            text("150%"),
        ] {
            assert_eq!(objection(&useful), None, "{useful:?}");
        }
        for (useless, expected) in [
            (IntOrString::Int(-1), "-1 is negative"),
            (text("-50%"), "\"-50%\" is negative"),
            (text("abc"), "\"abc\" is neither a number nor a percentage"),
            (text("60"), "\"60\" is neither a number nor a percentage"),
        ] {
            let objection = objection(&useless).unwrap();
            assert!(objection.contains(expected), "{objection}");
        }
    }

    #[test]
    fn control_plane_nodes_are_updated_one_at_a_time_regardless_of_the_pool() {
        let limit = |setting| max_unavailable(PoolNodes::ControlPlane, Some(&setting), 5);
        for setting in [IntOrString::Int(3), IntOrString::String("100%".to_owned())] {
            assert_eq!(limit(setting), Ok(1));
        }
        assert_eq!(limit(IntOrString::Int(-1)), Ok(-1));
    }
}
