//! How client commands connect to a cluster.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config, Resource};
use mco_client::ReadError;
use mco_runtime::{FieldManager, Lenient, list_lenient};
use serde::de::DeserializeOwned;

use crate::output;

/// The field manager of the writes that a user requests on the command line.
pub const FIELD_MANAGER: FieldManager = FieldManager::new("mco");

/// Connect timeout of interactive commands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which cluster")]
pub struct Connection {
    /// The kubeconfig to use; by default $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use; by default the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl Connection {
    pub async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    pub async fn config(&self) -> anyhow::Result<Config> {
        let kubeconfig = self.read().map_err(|error| self.unusable(&error))?;
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| self.unusable(&error))?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        Ok(config)
    }

    /// Returns the configuration of a component, which may run in a pod. Its read timeout is the default, which suits
    /// watches.
    pub async fn component_config(&self) -> anyhow::Result<Config> {
        if self.is_of_a_pod() {
            return Config::incluster().map_err(|error| {
                anyhow!("no kubeconfig, and not inside a pod: {error}; choose one with --kubeconfig")
            });
        }
        let mut config = self.config().await?;
        let ordinary = Config::new(config.cluster_url.clone());
        config.read_timeout = ordinary.read_timeout;
        Ok(config)
    }

    /// Returns whether the pod's service account is the only configuration.
    pub fn is_of_a_pod(&self) -> bool {
        self.kubeconfig.is_none() && self.context.is_none() && self.read().is_err()
    }

    fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
    }

    fn unusable(&self, error: &KubeconfigError) -> anyhow::Error {
        let wanted = match &self.kubeconfig {
            Some(path) => format!("cannot use the kubeconfig {}", path.display()),
            None => "cannot use $KUBECONFIG or ~/.kube/config".to_owned(),
        };
        // The position in the file follows on more lines; the first contains the error.
        let causes =
            anyhow::Chain::new(error).filter_map(|cause| cause.to_string().lines().next().map(str::to_owned));
        let mut said: Vec<String> = Vec::new();
        for cause in causes {
            // Many errors repeat their cause.
            if !said.iter().any(|earlier| earlier.contains(&cause)) {
                said.push(cause);
            }
        }
        anyhow!(
            "{wanted}: {}; choose one with --kubeconfig, or start a cluster with mco up",
            said.join(": ")
        )
    }
}

/// Converts an API error to a message with the attempt, the cause and a hint.
pub fn to_cli_error<T>(result: Result<T, kube::Error>, attempt: &str) -> anyhow::Result<T> {
    result.map_err(|error| describe_error(ReadError::new(error, attempt)))
}

/// Lists all objects of a kind. One that cannot be decoded is left out with a warning that names it.
pub async fn list_readable<K>(client: &Client, attempt: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = list_lenient(&Api::<Lenient<K>>::all(client.clone()), &ListParams::default()).await;
    let found = to_cli_error(found, attempt)?;
    for object in &found.unreadable {
        output::warning(format!("{object}; it is left out"));
    }
    Ok(found.items)
}

/// Lists all objects of a kind. The error names an object that cannot be decoded.
pub async fn list_all<K>(client: &Client, attempt: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = list_lenient(&Api::<Lenient<K>>::all(client.clone()), &ListParams::default()).await;
    let found = to_cli_error(found, attempt)?;
    match found.unreadable.first() {
        Some(object) => Err(anyhow!("cannot {attempt}: {object}")),
        None => Ok(found.items),
    }
}

/// Converts a read error to a message with command line hints.
pub fn describe_error(error: ReadError) -> anyhow::Error {
    match error {
        ReadError::Refused {
            attempt, code: 401, ..
        } => anyhow!(
            "cannot {attempt}: the cluster does not accept these credentials; log in again, or choose others with \
             --kubeconfig or --context"
        ),
        ReadError::Refused { code: 403, .. } => {
            anyhow!("{error}; request this permission, or choose another user with --context")
        }
        error => error.into(),
    }
}
