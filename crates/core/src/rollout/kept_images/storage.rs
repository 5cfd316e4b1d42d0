//! Do the missing images fit onto the machine?

use thiserror::Error;

/// Never taken by images in advance: workloads, their logs and the next system need room too.
pub const RESERVE: u64 = 16 << 30;
/// What a runtime needs for each compressed byte: the unpacked layers, beside what is being downloaded.
const UNPACKED: u64 = 2;

/// What is known of a machine's storage. What is unknown is no obstacle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// What the kubelet says that workloads may use.
    pub allocatable: Option<u64>,
    /// What is free now where images are stored.
    pub free: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("storage available is less than minimum required: the missing images need about {}, {} can be used", size(*.needed), size(*.available))]
pub struct StorageError {
    needed: u64,
    available: u64,
}

/// Checks that images of this compressed size leave the reserve of the node's storage alone, and that they fit onto the
/// disk as it is now.
pub fn check_storage(room: Room, reserve: u64, compressed: u64) -> Result<(), StorageError> {
    let needed = compressed.saturating_mul(UNPACKED);
    let unreserved = room
        .allocatable
        .map(|allocatable| allocatable.saturating_sub(reserve));
    let available = match (unreserved, room.free) {
        (Some(unreserved), Some(free)) => unreserved.min(free),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => return Ok(()),
    };
    if needed < available {
        Ok(())
    } else {
        Err(StorageError { needed, available })
    }
}

/// In the units people know from the definition of machines.
fn size(bytes: u64) -> String {
    for (unit, bits) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if bytes >> bits > 0 {
            let tenths = ((bytes >> (bits - 10)) * 10) >> 10;
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    #[test]
    fn images_fit_when_twice_their_size_leaves_the_reserve_alone() {
        let node = |allocatable: u64| Room {
            allocatable: Some(allocatable),
            free: None,
        };
        let disk = |free: u64| Room {
            allocatable: Some(100 * GI),
            free: Some(free),
        };
        for (name, room, reserve, images, fits) in [
            (
                "25Gi, 10Gi reserved, 5Gi of images",
                node(25 * GI),
                10 * GI,
                5 * GI,
                true,
            ),
            (
                "25Gi, 10Gi reserved, 10Gi of images",
                node(25 * GI),
                10 * GI,
                10 * GI,
                false,
            ),
            (
                "exactly as much as there is",
                node(20 * GI),
                10 * GI,
                5 * GI,
                false,
            ),
            ("less than the reserve", node(9 * GI), 10 * GI, 0, false),
            (
                "a disk that is fuller than the node says",
                disk(9 * GI),
                RESERVE,
                5 * GI,
                false,
            ),
            ("a disk with room", disk(11 * GI), RESERVE, 5 * GI, true),
            ("nothing is known", Room::default(), RESERVE, 500 * GI, true),
        ] {
            assert_eq!(check_storage(room, reserve, images).is_ok(), fits, "{name}");
        }
        let error = check_storage(node(25 * GI), 10 * GI, 10 * GI).unwrap_err();
        assert_eq!(
            error.to_string(),
            "storage available is less than minimum required: the missing images need about 20.0Gi, 15.0Gi can be used"
        );
        assert_eq!(
            (size(1536 << 20), size(900)),
            ("1.5Gi".to_owned(), "900 bytes".to_owned())
        );
    }
}
