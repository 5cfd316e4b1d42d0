//! What every long-running command needs: an async runtime and a way to be stopped.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs a component until it ends or SIGINT or SIGTERM asks it to.
pub fn run<Work>(threads: usize, work: impl FnOnce(CancellationToken) -> Work) -> anyhow::Result<()>
where
    Work: Future<Output = anyhow::Result<()>>,
{
    // Fails only if one is installed already, which serves as well.
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
            // Whoever asks twice does not want to wait.
            signals.next().await;
            std::process::exit(1);
        });
        work(stop).await
    })
}

/// Runs a command that asks a cluster something. Ctrl-C ends it as it ends any command.
pub fn ask<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
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
