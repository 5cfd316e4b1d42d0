//! Check that the missing images fit on the node's disk.

use thiserror::Error;

/// Free space that prefetched images never use: workloads, their logs and the next OS image need it.
pub const RESERVE: u64 = 16 << 30;
/// Disk space per compressed byte: the unpacked layers, in addition to the download.
const UNPACKED: u64 = 2;

/// The node's storage. An unset value is not checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// The ephemeral storage that the kubelet reports as allocatable.
    pub allocatable: Option<u64>,
    /// The free space of the image file system.
    pub free: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("storage available is less than minimum required: the missing images need about {}, {} can be used", size(*.needed), size(*.available))]
pub struct StorageError {
    needed: u64,
    available: u64,
}

/// Checks that images of this compressed size leave the reserve of the node's storage free, and that they fit on the
/// disk now.
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

/// Formats a size in the units of Kubernetes quantities.
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
