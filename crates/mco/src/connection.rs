//! How client commands connect to a cluster.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use jiff::SignedDuration;
use kube::api::ListParams;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config, Resource};
use mco_client::ReadError;
use mco_runtime::{FieldManager, Lenient, list_lenient};
use serde::de::DeserializeOwned;

use crate::log;
use crate::output;
use crate::request_log::RequestLogLayer;

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
    /// User to impersonate.
    #[arg(long = "as", value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to impersonate; can be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    pub impersonate_groups: Vec<String>,
    /// Timeout of one request, for example 10s or 2m; 0 is none. By default 30s.
    #[arg(long, value_name = "TIME", value_parser = request_timeout)]
    pub request_timeout: Option<RequestTimeout>,
}

/// The timeout of one request; `None` waits without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeout(Option<Duration>);

fn request_timeout(text: &str) -> Result<RequestTimeout, String> {
    if text == "0" {
        return Ok(RequestTimeout(None));
    }
    // As kubectl: a number without a unit is seconds.
    let text = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    let parsed: Result<SignedDuration, _> = text.parse();
    match parsed.map(Duration::try_from) {
        Ok(Ok(time)) if time.is_zero() => Ok(RequestTimeout(None)),
        Ok(Ok(time)) => Ok(RequestTimeout(Some(time))),
        _ => Err("expected a time such as 10s or 2m".to_owned()),
    }
}

impl Connection {
    pub async fn client(&self) -> anyhow::Result<Client> {
        Self::client_of(self.config().await?)
    }

    /// Returns a client for responses that end only with the user's patience, such as a followed log.
    pub async fn streaming_client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        if self.request_timeout.is_none() {
            config.read_timeout = None;
        }
        Self::client_of(config)
    }

    fn client_of(config: Config) -> anyhow::Result<Client> {
        let cluster_url = config.cluster_url.to_string();
        let builder = ClientBuilder::try_from(config)?;
        Ok(if log::shows_requests() {
            builder.with_layer(&RequestLogLayer { cluster_url }).build()
        } else {
            builder.build()
        })
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
        config.read_timeout = match self.request_timeout {
            Some(RequestTimeout(timeout)) => timeout,
            None => Some(READ_TIMEOUT),
        };
        // Otherwise the time for which a pooled connection was idle counts too.
        config.reset_reader_on_write = true;
        if let Some(user) = &self.impersonate {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
        }
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
        if self.request_timeout.is_none() {
            let ordinary = Config::new(config.cluster_url.clone());
            config.read_timeout = ordinary.read_timeout;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_timeout_is_written_as_for_kubectl() {
        for (text, expected) in [
            ("0", Some(None)),
            ("0s", Some(None)),
            ("5", Some(Some(5))),
            ("10s", Some(Some(10))),
            ("2m", Some(Some(120))),
            ("soon", None),
            ("-1s", None),
        ] {
            let expected = expected.map(|seconds| RequestTimeout(seconds.map(Duration::from_secs)));
            assert_eq!(request_timeout(text).ok(), expected, "{text}");
        }
    }
}
