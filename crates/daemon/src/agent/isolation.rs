//! Isolation of work on the machine: a panic ends one step, never the daemon.

use std::sync::Arc;

use mco_host::Machine;
use mco_runtime::run_blocking;

use super::error::AgentError;
use crate::PANIC_COMPONENT;

/// Runs work on the machine on a thread for blocking work. A panic is counted and is an error without the panic's text,
/// which may contain what the machine does not publish on its Node.
pub(super) async fn isolated<T: Send + 'static>(
    machine: Arc<Machine>,
    node: &str,
    work: impl FnOnce(&Machine) -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    run_blocking(PANIC_COMPONENT, format!("node {node:?}"), move || work(&machine)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_text_of_a_panic_was_reported_on_the_node() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Arc::new(Machine::directory(directory.path()).unwrap());
        let panicked = isolated(machine, "worker-1", |_| -> Result<(), AgentError> {
            panic!("contents of a secret file")
        });
        assert_eq!(
            panicked.await.unwrap_err().to_string(),
            "the work on the machine was interrupted: daemon of node \"worker-1\" panicked; the log contains the cause"
        );
    }
}
