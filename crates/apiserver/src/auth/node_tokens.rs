//! Revokes the tokens of a node when its Node is deleted.
//!
//! A token is bound to the UID of a Node and authenticates nothing without it. This task removes it from the file, and
//! ends the streams that are open with it.

use std::sync::Arc;

use tokio::sync::watch;

use super::{TokenStore, TokenStoreError};
use crate::store::{EventChange, ObjectKey, ObjectStore, StoreEvent};

const RESOURCE: &str = "nodes";
const BATCH: usize = 256;

/// Removes the tokens of Nodes that were deleted while the server did not run.
pub(crate) fn prune(store: &ObjectStore, tokens: &TokenStore) -> Result<(), TokenStoreError> {
    let resource = Arc::from(RESOURCE);
    tokens.prune(|name| {
        let node = store.get(&ObjectKey::new(&resource, "", name))?;
        let is_deleted = node.metadata.deletion_timestamp.is_some();
        (!is_deleted).then(|| node.metadata.uid.clone())
    })
}

/// Follows the Nodes until the stop.
pub(crate) async fn run(
    store: Arc<ObjectStore>,
    tokens: Arc<TokenStore>,
    mut read_to: u64,
    mut stopped: watch::Receiver<bool>,
) {
    let mut tip = store.subscribe(&Arc::from(RESOURCE));
    loop {
        tip.mark_unchanged();
        read_to = revoke_deleted(&store, &tokens, read_to);
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            changed = tip.changed() => if changed.is_err() { return },
        }
    }
}

/// Revokes the tokens of the Nodes that were deleted after a revision. Returns the revision up to which it has read.
fn revoke_deleted(store: &ObjectStore, tokens: &TokenStore, mut read_to: u64) -> u64 {
    loop {
        let Ok(batch) = store.events_after(RESOURCE, read_to, BATCH) else {
            // The history is gone. Tokens of deleted Nodes stay in the file until the next start, without any access.
            tokens.announce_revocation();
            return store.revision();
        };
        for uid in batch.events.iter().filter_map(|event| deleted_uid(event)) {
            if let Err(error) = tokens.revoke_node(uid) {
                tracing::error!(%error, uid, "the token of a deleted Node is revoked, but still in the file");
            }
        }
        if batch.events.is_empty() {
            return batch.read_to;
        }
        read_to = batch.read_to;
    }
}

fn deleted_uid(event: &StoreEvent) -> Option<&str> {
    let metadata = &event.object().metadata;
    let is_gone = matches!(event.change, EventChange::Removed(_)) || metadata.deletion_timestamp.is_some();
    is_gone.then_some(metadata.uid.as_str())
}
