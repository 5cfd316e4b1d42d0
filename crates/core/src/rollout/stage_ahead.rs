//! When a node that waits for its turn stages the OS of its pool's next config.
//!
//! All waiting nodes know from their update taint that a rollout is under way. If all of them pulled an image at once, the
//! registry of a large cluster would not serve the first wave. So each starts in a time slot of its own choice, one slot
//! per wave; a node whose turn comes earlier stages the OS before its drain.

use std::time::Duration;

/// The time in which one wave pulls.
const SLOT: Duration = Duration::from_mins(1);

/// Returns how long a node waits before it stages ahead.
pub fn delay(node: &str, members: usize, max_unavailable: i64) -> Duration {
    let at_once = usize::try_from(max_unavailable).unwrap_or(0).max(1);
    let waves = u32::try_from(members.div_ceil(at_once))
        .unwrap_or(u32::MAX)
        .max(1);
    // FNV-1a: the same slot after a restart, and different ones for numbered names.
    let hash = node.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    SLOT * (hash % waves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_is_staged_at_a_time() {
        assert_eq!(delay("worker-1", 1, 1), Duration::ZERO);
        assert_eq!(delay("worker-1", 10, 10), Duration::ZERO);
        assert_eq!(delay("worker-1", 0, 0), Duration::ZERO);
        let mut slots = vec![0; 10];
        for number in 0..1000 {
            let delay = delay(&format!("worker-{number}"), 1000, 100);
            slots[usize::try_from(delay.as_secs() / 60).unwrap()] += 1;
        }
        assert!(slots.iter().all(|nodes| (50..150).contains(nodes)), "{slots:?}");
    }
}
