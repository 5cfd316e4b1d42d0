//! The files of a finished render, in the layout that the config server reads.

use serde::Serialize;

use super::Cluster;
use crate::goyaml;
use crate::offline::PoolOutcome;

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Relative to the output directory, as in `machine-pools/worker.yaml`.
    pub path: String,
    pub text: String,
}

/// All files of a render; pools that could not be rendered have none.
pub fn files(cluster: &Cluster, outcomes: &[PoolOutcome]) -> Vec<OutputFile> {
    let mut files = Vec::new();
    for outcome in outcomes {
        if let Ok(rendered) = &outcome.result {
            let pool = cluster.with_target(&outcome.pool, rendered);
            files.push(file("machine-configs", rendered.name(), &rendered.config));
            files.push(file("machine-pools", outcome.name(), &pool));
        }
    }
    if let Some(config) = &cluster.controller_config {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        files.push(file("controller-config", name, config));
    }
    if let Some(api_server) = &cluster.api_server {
        files.push(file("api-server", "api-server", api_server));
    }
    files
}

fn file(directory: &str, name: &str, object: &impl Serialize) -> OutputFile {
    OutputFile {
        path: format!("{directory}/{name}.yaml"),
        text: goyaml::to_string(&serde_json::to_value(object).unwrap_or_default()),
    }
}
