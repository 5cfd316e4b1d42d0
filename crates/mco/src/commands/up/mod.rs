//! `mco up`: every component in one process, on an embedded control plane.

mod control_plane;
mod data_directory;

use std::sync::Mutex;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::Up;
use crate::output::{self, Outcome};
use crate::runtime;
use control_plane::ControlPlane;
use data_directory::DataDirectory;

pub fn run(arguments: Up) -> anyhow::Result<Outcome> {
    let directory = DataDirectory::open(arguments.data_dir.clone(), arguments.fresh)?;
    runtime::log_to(Mutex::new(directory.log()?));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    runtime::run(threads, |stop| everything(arguments, directory, stop))?;
    Ok(Outcome::Done)
}

async fn everything(arguments: Up, directory: DataDirectory, stop: CancellationToken) -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(&arguments, &directory).await?;
    let mut components = Components::new(stop.clone());
    let serving = control_plane.clone();
    components.start("the API", async move { serving.serve().await });
    output::print(&welcome(&directory, &control_plane))?;
    let ended = components.until_stopped().await;
    control_plane.stop().await;
    ended
}

fn welcome(directory: &DataDirectory, control_plane: &ControlPlane) -> String {
    let kubeconfig = directory.kubeconfig().display().to_string();
    let url = control_plane.url();
    format!(
        "kubeconfig  {kubeconfig}\n\n\
         Try in another terminal, after export KUBECONFIG={kubeconfig}\n  \
         kubectl get nodes\n  \
         kubectl get machineconfigpools\n  \
         kubectl get machineconfigs\n\n\
         API         {url}\n\
         log         {log}\n\
         Ctrl-C stops it; the next start carries on.\n",
        log = directory.log_path().display(),
    )
}

/// What runs beside each other. They end together: a system of which a part is missing only looks as if it worked.
struct Components {
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
    stop: CancellationToken,
}

impl Components {
    fn new(stop: CancellationToken) -> Self {
        Self {
            running: JoinSet::new(),
            stop,
        }
    }

    fn start(
        &mut self,
        name: &'static str,
        component: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.running.spawn(async move { (name, component.await) });
    }

    /// Waits for the order to stop, or for the first component that ends without one.
    async fn until_stopped(&mut self) -> anyhow::Result<()> {
        let early = tokio::select! {
            () = self.stop.cancelled() => return Ok(()),
            early = self.running.join_next() => early,
        };
        self.stop.cancel();
        match early.transpose().context("a component broke down")? {
            Some((name, Err(error))) => Err(error.context(format!("{name} stopped"))),
            Some((name, Ok(()))) => anyhow::bail!("{name} ended unexpectedly"),
            None => Ok(()),
        }
    }
}
