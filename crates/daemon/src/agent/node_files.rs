//! Values of the node and of Secrets in the files of its config: resolved before a change, and followed while the config
//! stays the same.
//!
//! A changed label or annotation changes only this node, and takes a place in the budget of its pool as an update does:
//! the agent asks for its turn as update agents of others do, and keeps it until the node is done.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::config::AuthInfo;
use mco_api::vocabulary::annotations::{NODE_FILES_PROBLEM, NODE_FILES_UPDATE, REBOOT_LOCK, REBOOT_REQUEST};
use mco_api::vocabulary::events::daemon as event;
use mco_core::config::node_files::{ANSWER_PATH, NodeFiles, NodeValues, SecretAnswer, SecretFile};
use mco_http::pki;
use thiserror::Error;

use super::error::AgentError;
use super::report::{self, NodeReport};
use super::run::{AfterStep, Agent, Pause};
use crate::config::NodeConfig;
use crate::disk;
use crate::node_files::{self, ResolvedFiles, SecretContents};

/// The controller forgets requests that are older than twice this.
const REPEAT_REQUEST: Duration = Duration::from_secs(8);
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
const WAITING: &str = "values of its files have changed; waits for a place in the budget of its pool";

/// Whether the values of the node's files are resolved again: they have changed, and the node has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRenewal {
    NotDue,
    Due,
}

/// Where the values of Secrets are fetched.
#[derive(Debug, Clone)]
pub struct SecretEndpoint {
    /// Such as `https://machine-config-operator.openshift-machine-config-operator.svc`.
    pub url: String,
    /// A directory with the files `token` and `ca.crt`, both of which are replaced from time to time.
    pub credentials: PathBuf,
}

#[derive(Debug, Error)]
pub enum SecretError {
    #[error("the credentials in {path}: {why}", path = path.display())]
    Credentials { path: PathBuf, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Unreachable(Box<kube::Error>),
    #[error("there was no answer within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the answer is not valid: {0}")]
    Answer(String),
    #[error("no randomness available: {0}")]
    Random(getrandom::Error),
}

impl SecretEndpoint {
    fn client(&self) -> Result<kube::Client, SecretError> {
        let wrong = |why: String| SecretError::Credentials {
            path: self.credentials.clone(),
            why,
        };
        let authority = self.credentials.join("ca.crt");
        let authority =
            std::fs::read_to_string(authority).map_err(|error| wrong(format!("ca.crt: {error}")))?;
        let authorities = pki::certificates(&authority).map_err(|error| wrong(format!("ca.crt: {error}")))?;
        let url = self
            .url
            .parse()
            .map_err(|_| wrong(format!("{:?} is no URL", self.url)))?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(authorities.iter().map(|one| one.to_vec()).collect());
        config.auth_info = AuthInfo {
            token_file: self.credentials.join("token").to_str().map(str::to_owned),
            ..AuthInfo::default()
        };
        kube::Client::try_from(config).map_err(|error| wrong(error.to_string()))
    }
}

/// Fetches the values of all Secrets of a config. The answer is not logged, not even if it is malformed.
async fn fetch(client: kube::Client, config: &str) -> Result<SecretAnswer, SecretError> {
    let request = Request::get(format!("{ANSWER_PATH}{config}")).body(Vec::new());
    let request = request.map_err(|error| SecretError::Answer(error.to_string()))?;
    let answered = tokio::time::timeout(FETCH_TIMEOUT, client.request_text(request)).await;
    let text = match answered.map_err(|_| SecretError::TimedOut)? {
        Ok(text) => text,
        Err(kube::Error::Api(status)) => return Err(SecretError::Refused(status.message)),
        Err(error) => return Err(SecretError::Unreachable(Box::new(error))),
    };
    serde_json::from_str(&text)
        .map_err(|_| SecretError::Answer("it is not the expected JSON document".to_owned()))
}

impl Agent {
    /// Returns a config with everything that this node has in its files. Fails before anything is changed, also before a
    /// drain.
    pub(super) async fn resolved(&self, config: NodeConfig) -> Result<NodeConfig, AgentError> {
        let lists = NodeFiles::of(&config.ignition);
        if lists.is_empty() {
            return Ok(config);
        }
        let node = self.cluster.read_node().await?;
        let values = self.values(&lists, &node, config.name())?;
        let secrets = self.secrets(&lists, config.name()).await?;
        self.with_files(config, ResolvedFiles { values, secrets })
    }

    /// Returns a config with what this node has in its files according to its record. Values of Secrets are fetched again
    /// for files that were changed.
    pub(super) async fn as_recorded(&self, config: NodeConfig) -> Result<NodeConfig, AgentError> {
        let lists = NodeFiles::of(&config.ignition);
        let record = self
            .blocking(|machine| Ok(node_files::recorded(&machine.root)?))
            .await?;
        if lists.is_empty() {
            return Ok(config);
        }
        let Some(mut record) = record else {
            // A new node, whose files are written when it has its turn. Without their values it would never have them.
            self.values(&lists, &self.cluster.read_node().await?, config.name())?;
            return Ok(config);
        };
        let written = NodeFiles {
            secrets: lists
                .secrets
                .iter()
                .filter(|file| {
                    record
                        .secrets
                        .get(&file.path)
                        .is_some_and(|known| known.version == file.version)
                })
                .cloned()
                .collect(),
            values: Vec::new(),
        };
        record.secrets = self.secrets(&written, config.name()).await?;
        self.with_files(config, record)
    }

    fn with_files(&self, config: NodeConfig, files: ResolvedFiles) -> Result<NodeConfig, AgentError> {
        let name = config.name().to_owned();
        let resolved = config.with_node_files(self.cluster.node(), files);
        resolved.map_err(|problems| AgentError::NodeValues {
            config: name,
            problems,
        })
    }

    /// Returns the values of the node that the files of a config need.
    fn values(&self, lists: &NodeFiles, node: &Node, config: &str) -> Result<NodeValues, AgentError> {
        let values = NodeValues::of_node(node, &lists.value_names());
        let expanded = lists.expand(self.cluster.node(), &values);
        expanded.map_err(|problems| AgentError::NodeValues {
            config: config.to_owned(),
            problems,
        })?;
        Ok(values)
    }

    /// Returns the Secrets of a config by path. Nothing is fetched if all files have theirs.
    async fn secrets(
        &self,
        lists: &NodeFiles,
        config: &str,
    ) -> Result<BTreeMap<String, SecretContents>, AgentError> {
        if lists.secrets.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted = lists.clone();
        let mut secrets = self
            .blocking(move |machine| {
                let record = node_files::recorded(&machine.root)?.unwrap_or_default();
                Ok(node_files::intact_secrets(&machine.root, &record, &wanted)
                    .map_err(disk::DiskError::from)?)
            })
            .await?;
        if lists.secrets.iter().all(|file| secrets.contains_key(&file.path)) {
            return Ok(secrets);
        }
        let failed = |source: SecretError| AgentError::Secrets {
            config: config.to_owned(),
            source,
        };
        let client = match &self.secret_endpoint {
            Some(endpoint) => endpoint.client().map_err(failed)?,
            None => self.cluster.client(),
        };
        let answer = fetch(client, config).await.map_err(failed)?;
        let missing = |file: &&SecretFile| !secrets.contains_key(&file.path);
        let missing: Vec<&SecretFile> = lists.secrets.iter().filter(missing).collect();
        for file in missing {
            let found = answer
                .files
                .iter()
                .find(|found| found.path == file.path && found.version == file.version);
            let found = found
                .ok_or_else(|| failed(SecretError::Answer(format!("it has no value for {}", file.path))))?;
            let value = STANDARD
                .decode(&found.value)
                .map_err(|_| failed(SecretError::Answer("a value is not base64".to_owned())))?;
            let contents = SecretContents::new(&file.version, value);
            let contents = contents.map_err(|error| failed(SecretError::Random(error)))?;
            secrets.insert(file.path.clone(), contents);
        }
        Ok(secrets)
    }

    /// Follows the values of the node and the Secrets of its config while the node is up to date otherwise. Returns what
    /// to do if they have changed.
    pub(super) async fn follow_node_files(&mut self) -> Result<Option<AfterStep>, AgentError> {
        let current = self
            .blocking(|machine| Ok(disk::current_config(&machine.root)?))
            .await?;
        let Some(current) = current else {
            return Ok(None);
        };
        let lists = NodeFiles::of(&current.ignition);
        let is_annotated = self.node.as_ref().is_some_and(|node| node.has_file_annotations);
        if lists.is_empty() && !is_annotated {
            return Ok(None);
        }
        let node = self.cluster.read_node().await?;
        let values = match (self.values(&lists, &node, current.name()), &current.node_files) {
            (Ok(values), _) => values,
            // The node works with the values that it had.
            (Err(error), Some(_)) => {
                self.report_missing_values(&node, &error).await?;
                return Ok(None);
            }
            (Err(error), None) => return Err(error),
        };
        let has = current.node_files.unwrap_or_default();
        if has.are_current(&lists, &values) {
            if has_annotations(&node) {
                self.write(&turn_is_over(&node)).await?;
            }
            return Ok(None);
        }
        let annotations = node.metadata.annotations.unwrap_or_default();
        if annotations.contains_key(NODE_FILES_UPDATE) && annotations.contains_key(REBOOT_LOCK) {
            tracing::info!(
                node = self.cluster.node(),
                "values of files have changed; writing them again"
            );
            self.file_renewal = FileRenewal::Due;
            return Ok(Some(AfterStep::Again));
        }
        let report = NodeReport::from([
            (NODE_FILES_UPDATE, Some(WAITING.to_owned())),
            (NODE_FILES_PROBLEM, None),
            (REBOOT_REQUEST, Some(Timestamp::now().to_string())),
        ]);
        self.write(&report).await?;
        Ok(Some(AfterStep::Wait(Pause::after(REPEAT_REQUEST))))
    }

    /// Reports once that the files cannot follow the values of the node.
    async fn report_missing_values(&mut self, node: &Node, error: &AgentError) -> Result<(), AgentError> {
        let text = report::shortened(&error.to_string());
        let annotations = node.metadata.annotations.as_ref();
        if annotations.and_then(|all| all.get(NODE_FILES_PROBLEM)) == Some(&text) {
            return Ok(());
        }
        self.events.warning(event::NODE_VALUES_MISSING, text.as_str());
        let mut report = turn_is_over(node);
        report.insert(NODE_FILES_PROBLEM, Some(text));
        self.write(&report).await
    }
}

/// Whether a Node has annotations about files with changed values.
pub(super) fn has_annotations(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|all| {
        [NODE_FILES_UPDATE, NODE_FILES_PROBLEM]
            .iter()
            .any(|key| all.contains_key(*key))
    })
}

/// Returns the annotations of a node that gives its place in the budget back, if it has asked for one.
fn turn_is_over(node: &Node) -> NodeReport {
    let mut report = NodeReport::from([(NODE_FILES_PROBLEM, None)]);
    let annotations = node.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(NODE_FILES_UPDATE)) {
        report.extend([
            (NODE_FILES_UPDATE, None),
            (REBOOT_REQUEST, None),
            (REBOOT_LOCK, None),
        ]);
    }
    report
}
