//! Serves a data directory on a port: `cargo run -p mco-apiserver --example serve -- DIR PORT [bare] [SECONDS OF
//! HISTORY]`.
#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::path::PathBuf;
use std::time::Duration;

use mco_apiserver::server::{ApiServer, ApiServerOptions};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: serve DIR PORT [bare]")?);
    let port: u16 = arguments.next().ok_or("usage: serve DIR PORT [bare]")?.parse()?;
    let mut options = ApiServerOptions::default();
    for argument in arguments {
        match argument.as_str() {
            "bare" => options.controllers = false,
            seconds => options.retention.age = Duration::from_secs(seconds.parse()?),
        }
    }
    let server = ApiServer::open(&directory, options).await?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let url = format!("https://{}", listener.local_addr()?);
    println!("{url}, kubeconfig in {}", directory.join("kubeconfig").display());
    server.serve(listener, &url).await?;
    Ok(())
}
