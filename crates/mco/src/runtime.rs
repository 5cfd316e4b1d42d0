//! The async runtime and shutdown of long-running commands.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs a component until it ends or receives SIGINT or SIGTERM.
pub fn run<Work>(threads: usize, work: impl FnOnce(CancellationToken) -> Work) -> anyhow::Result<()>
where
    Work: Future<Output = anyhow::Result<()>>,
{
    mco_http::raise_descriptor_limit();
    // Fails only if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(threads.max(4))
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut signals = Signals::new().context("cannot wait for signals")?;
        let asked = stop.clone();
        tokio::spawn(async move {
            signals.next().await;
            asked.cancel();
            // A second signal ends the process immediately.
            signals.next().await;
            std::process::exit(1);
        });
        work(stop).await
    })
}

/// Runs a command that queries a cluster, without a graceful shutdown.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?
        .block_on(work)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
