//! The Ignition endpoint of `mco up`: with a certificate of the operator, and tokens required.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use mco_api::vocabulary::names;
use mco_apiserver::files;
use mco_server::cluster::ClusterBackend;
use mco_server::http::DEFAULT_LIMITS;
use mco_server::tokens::PoolTokens;
use mco_server::{ConfigBackend, ServerSettings};
use tokio_util::sync::CancellationToken;

use super::data_directory::START_OVER;

/// The interval at which the operator's certificate is copied; it is replaced long before it expires.
const CERTIFICATE_INTERVAL: Duration = Duration::from_mins(1);
const FIRST_CERTIFICATE_INTERVAL: Duration = Duration::from_millis(200);

/// The server's files, inside the data directory.
#[derive(Debug, Clone)]
pub struct IgnitionServerFiles(PathBuf);

impl IgnitionServerFiles {
    pub fn create(data_directory: &Path) -> anyhow::Result<Self> {
        let files = Self(data_directory.join("server"));
        let bootstrap = files.bootstrap();
        fs::create_dir_all(&bootstrap).with_context(|| format!("cannot create {}", bootstrap.display()))?;
        if files.tokens().exists() {
            PoolTokens::read(&files.tokens()).map_err(|error| {
                anyhow!("{error}; remove the file to continue without its tokens, or {START_OVER}")
            })?;
        } else {
            write(&files.tokens(), b"{\"tokens\": []}\n")?;
        }
        Ok(files)
    }

    pub fn tokens(&self) -> PathBuf {
        self.0.join("tokens.json")
    }

    pub fn authority(&self) -> PathBuf {
        self.0.join("ca.crt")
    }

    fn certificate(&self) -> PathBuf {
        self.0.join("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.0.join("tls.key")
    }

    fn bootstrap(&self) -> PathBuf {
        self.0.join("bootstrap")
    }

    /// Writes the bootstrap credentials of new machines.
    pub fn write_bootstrap(&self, token: &str, authority: &str) -> anyhow::Result<()> {
        write(&self.bootstrap().join("token"), token.as_bytes())?;
        write(&self.bootstrap().join("ca.crt"), authority.as_bytes())
    }

    /// Returns the bootstrap token that an earlier start has written.
    pub fn bootstrap_token(&self) -> Option<String> {
        fs::read_to_string(self.bootstrap().join("token")).ok()
    }
}

/// Serves as soon as the operator has created a certificate.
pub async fn run(
    client: Client,
    files: IgnitionServerFiles,
    address: IpAddr,
    port: u16,
    api_server_url: String,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    while !copy_certificate(&client, &files).await? {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(FIRST_CERTIFICATE_INTERVAL) => {}
        }
    }
    let settings = ServerSettings {
        address: Some(address),
        secure_port: port,
        insecure_port: 0,
        metrics: None,
        certificate: files.certificate(),
        key: files.key(),
        tls_minimum: "VersionTLS12".to_owned(),
        tls_suites: Vec::new(),
        tokens: Some(files.tokens()),
        limits: DEFAULT_LIMITS,
    };
    let backend = ConfigBackend::Cluster(ClusterBackend {
        client: client.clone(),
        api_server_url,
        token_directory: files.bootstrap(),
    });
    let following = async {
        loop {
            tokio::time::sleep(CERTIFICATE_INTERVAL).await;
            if let Err(error) = copy_certificate(&client, &files).await {
                tracing::warn!("cannot renew the certificate of the Ignition server: {error:#}");
            }
        }
    };
    tokio::select! {
        ended = mco_server::run(settings, backend, stop) => Ok(ended?),
        () = following => Ok(()),
    }
}

/// Copies the operator's certificate to the server's files. Returns false while there is none.
async fn copy_certificate(client: &Client, files: &IgnitionServerFiles) -> anyhow::Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::NAMESPACE);
    let Some(serving) = secrets.get_opt(names::secret::SERVER_TLS).await? else {
        return Ok(false);
    };
    let authority = secrets.get_opt(names::secret::SERVER_CA).await?;
    let value = |secret: &Secret, key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|value| value.0.clone())
    };
    let (Some(certificate), Some(key)) = (value(&serving, "tls.crt"), value(&serving, "tls.key")) else {
        return Ok(false);
    };
    let authority = authority.and_then(|secret| value(&secret, "tls.crt"));
    let wanted = [
        (files.key(), Some(key)),
        (files.certificate(), Some(certificate)),
        (files.authority(), authority),
    ];
    let missing: Vec<_> = wanted
        .iter()
        .filter_map(|(path, bytes)| Some((path, bytes.as_ref()?)))
        .filter(|(path, bytes)| fs::read(path).ok().as_ref() != Some(*bytes))
        .collect();
    if missing.is_empty() {
        return Ok(true);
    }
    for (path, bytes) in missing {
        write(path, bytes)?;
    }
    tracing::info!(at = %Timestamp::now(), "the Ignition server has a certificate");
    Ok(true)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    files::write_private(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
