//! `mco console`

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use kube::config::AuthInfo;
use kube::{Client, Config};
use mco_console::{ConsoleAccess, ConsoleOptions};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::VERSION;
use super::up::bind;
use crate::cli::Console;
use crate::input;
use crate::log::Log;
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: Console) -> anyhow::Result<CommandOutcome> {
    Log::start(std::io::stderr);
    runtime::run(2, |stop| async move {
        let tls = match (&arguments.tls_cert, &arguments.tls_key) {
            (Some(certificate), Some(key)) => Some(tls(certificate, key)?),
            _ if arguments.listen.is_loopback() => None,
            _ => bail!(
                "other machines reach {}, so tokens would be sent unencrypted: serve TLS with --tls-cert and --tls-key",
                arguments.listen
            ),
        };
        let config = arguments.connection.component_config().await?;
        let listener = bind(arguments.listen, arguments.port, "--port").await?;
        let address = listener.local_addr().context("cannot listen")?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        // Over TLS the certificate ties the address to its names.
        let host = match (&arguments.host, &tls) {
            (Some(host), _) => Some(host.clone()),
            (None, None) => Some(mco_console::local_host()?),
            (None, Some(_)) => None,
        };
        let url = match &host {
            Some(host) => format!("{scheme}://{host}:{}", address.port()),
            None => format!("{scheme}://{address}"),
        };
        let mut access = access(config.clone());
        if arguments.listen.is_loopback() && !arguments.connection.is_of_a_pod() {
            let (url, file) = (url.clone(), login_file(address.port()));
            access = access.with_owner(Client::try_from(config)?, move |code| {
                announce(&format!("{url}/login?code={code}"), file.as_deref());
            });
        } else {
            output::print(&format!(
                "console     {url}; log in with a token of the cluster\n"
            ))?;
        }
        let options = ConsoleOptions {
            templates: arguments
                .templates
                .as_deref()
                .map(input::template_tree)
                .transpose()?,
            host,
            tls,
            ..ConsoleOptions::new(VERSION)
        };
        Ok(mco_console::run(listener, access, options, stop).await?)
    })?;
    Ok(CommandOutcome::Done)
}

/// Returns the file for the address of one login where standard output is no terminal: it may be a journal, which other
/// users read.
fn login_file(port: u16) -> Option<PathBuf> {
    if io::stdout().is_terminal() {
        return None;
    }
    let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())?;
    Some(Path::new(&directory).join(format!("mco-console-{port}")))
}

/// Prints the address of one login, or where to find it.
fn announce(url: &str, file: Option<&Path>) {
    let written = file.map(|file| (file, mco_http::write_private(file, format!("{url}\n").as_bytes())));
    let text = match written {
        None => format!("console     {url}\n"),
        Some((file, Ok(()))) => format!("console     the address for one login is in {}\n", file.display()),
        Some((file, Err(error))) => return tracing::error!("cannot write {}: {error}", file.display()),
    };
    // Without standard output there is no user to log in.
    let _ = output::print(&text);
}

/// Returns the access control of the console: each user authenticates with a token of the cluster and acts with its
/// permissions.
pub fn access(config: Config) -> ConsoleAccess {
    ConsoleAccess::new(move |token| {
        let mut config = config.clone();
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        Client::try_from(config)
    })
}

fn tls(certificate: &Path, key: &Path) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let unusable = |path: &Path| format!("cannot use {}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| unusable(certificate))?;
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| unusable(key))?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .with_context(|| unusable(certificate))?;
    Ok(Arc::new(config))
}
