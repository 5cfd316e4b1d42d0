//! The web console of `mco up`, for the user who started it.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use mco_console::ConsoleOptions;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::control_plane::ControlPlane;
use super::{Components, DataDirectory, VERSION};
use crate::commands::console::access;
use crate::connection::Connection;

/// Only users on this machine log in here; other machines use the API.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts the console and returns the address for one login, or where to find it.
pub async fn start(
    port: u16,
    directory: &DataDirectory,
    control_plane: &ControlPlane,
    components: &mut Components,
) -> anyhow::Result<String> {
    let listener = match TcpListener::bind((ADDRESS, port)).await {
        // Another port than the default is no reason to fail.
        Err(_) => TcpListener::bind((ADDRESS, 0))
            .await
            .context("there is no free port for the console")?,
        Ok(listener) => listener,
    };
    let address = listener
        .local_addr()
        .context("there is no free port for the console")?;
    let connection = Connection {
        kubeconfig: Some(directory.kubeconfig()),
        ..Connection::default()
    };
    let host = mco_console::local_host()?;
    let name = format!("{host}:{}", address.port());
    let (announced, mut first) = watch::channel(None);
    let path = directory.console();
    let announce = move |code: &str| {
        let url = format!("http://{name}/login?code={code}");
        // Private: the code logs in as the administrator, as the kubeconfig beside it does.
        if let Err(error) = mco_http::write_private(&path, format!("{url}\n").as_bytes()) {
            tracing::error!("writing {}: {error}", path.display());
        }
        announced.send_replace(Some(url));
    };
    let access = access(connection.component_config().await?)
        .with_owner(control_plane.client_of_administrator(), announce);
    let console = mco_console::run(
        listener,
        access,
        ConsoleOptions {
            host: Some(host),
            ..ConsoleOptions::new(VERSION)
        },
        components.stop.clone(),
    );
    components.start("the console", async move { Ok(console.await?) });
    let announced = first.wait_for(Option::is_some).await;
    let announced = announced.context("the console did not start")?.clone();
    let announced = announced.context("the console did not start")?;
    if io::stdout().is_terminal() {
        return Ok(announced);
    }
    // Standard output may be a journal, which other users read.
    Ok(format!(
        "http://127.0.0.1:{}; the address for one login is in {}",
        address.port(),
        directory.console().display()
    ))
}
