//! The limit of open files, and the connections that it allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// More would not be used, and programs that this process starts may iterate over all possible descriptors.
const WANTED: u64 = 65_536;
/// Descriptors for files, the store and outgoing connections.
const RESERVED: u64 = 256;
/// Listeners with many connections in one process, of which there are up to four; each may have an eighth more
/// connections that it is about to refuse.
const SHARES: u64 = 5;

/// Raises the soft limit of open files as far as the hard limit allows. Long-running processes call it at start.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let Some(raised) = raised(limit.current, limit.maximum) else {
        return;
    };
    let limit = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    if let Err(problem) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open files to {raised}: {problem}");
    }
}

/// Returns the soft limit to set; `None` if it is high enough or cannot be raised.
fn raised(soft: Option<u64>, hard: Option<u64>) -> Option<u64> {
    let possible = hard.map_or(WANTED, |hard| hard.min(WANTED));
    soft.is_some_and(|soft| soft < possible).then_some(possible)
}

/// Returns how many connections a listener may have: `wanted`, or fewer where descriptors would run out.
pub(crate) fn allowed_connections(wanted: usize) -> usize {
    let allowed = allowed(wanted, getrlimit(Resource::Nofile).current);
    if allowed < wanted {
        warn!("the limit of open files allows {allowed} connections instead of {wanted}; raise LimitNOFILE");
    }
    allowed
}

fn allowed(wanted: usize, descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else {
        return wanted;
    };
    let available = descriptors - RESERVED.min(descriptors / 2);
    let share = usize::try_from(available / SHARES).unwrap_or(usize::MAX);
    wanted.min(share.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_were_allowed_than_descriptors() {
        for (wanted, descriptors, expected) in [
            (10_000, Some(65_536), 10_000),
            (10_000, Some(1024), 153),
            (64, Some(1024), 64),
            (10_000, Some(64), 6),
            (10_000, Some(0), 1),
            (10_000, None, 10_000),
        ] {
            assert_eq!(
                allowed(wanted, descriptors),
                expected,
                "{wanted} with {descriptors:?}"
            );
        }
    }

    #[test]
    fn the_soft_limit_is_raised_up_to_the_hard_one() {
        for (soft, hard, expected) in [
            (Some(1024), Some(4096), Some(4096)),
            (Some(1024), Some(1 << 30), Some(WANTED)),
            (Some(1024), None, Some(WANTED)),
            (Some(4096), Some(4096), None),
            (Some(1 << 20), None, None),
            (None, None, None),
        ] {
            assert_eq!(raised(soft, hard), expected, "{soft:?} of {hard:?}");
        }
    }
}
