//! `mco version`

use std::fmt::Write as _;

use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::annotations;
use serde::Serialize;

use super::VERSION;
use crate::cli::VersionArguments;
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// The commit that this program was built from, if its build has set `MCO_COMMIT`.
const COMMIT: Option<&str> = option_env!("MCO_COMMIT");

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: ClientVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerVersion>,
}

#[derive(Debug, Serialize)]
struct ClientVersion {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct ServerVersion {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<String>,
}

pub fn run(arguments: &VersionArguments) -> anyhow::Result<CommandOutcome> {
    let server = if arguments.client {
        None
    } else {
        match server(arguments) {
            Ok(server) => server,
            Err(error) => {
                output::warning(format_args!("the version of the cluster is unknown: {error:#}"));
                None
            }
        }
    };
    let versions = Versions {
        client: ClientVersion {
            version: VERSION,
            commit: COMMIT,
        },
        server,
    };
    output::show(arguments.output.format.as_ref(), &versions, || text(&versions))?;
    Ok(CommandOutcome::Done)
}

fn server(arguments: &VersionArguments) -> anyhow::Result<Option<ServerVersion>> {
    runtime::block_on(async {
        let configs = kube::Api::<ControllerConfig>::all(arguments.connection.client().await?);
        let found = configs.get_opt(CONTROLLER_CONFIG_NAME).await?;
        Ok(found.as_ref().and_then(version_of))
    })
}

/// Returns the versions that the operator has recorded.
fn version_of(config: &ControllerConfig) -> Option<ServerVersion> {
    let all = config.metadata.annotations.as_ref()?;
    Some(ServerVersion {
        version: all.get(annotations::GENERATED_BY_VERSION)?.clone(),
        release: all.get(annotations::RELEASE_IMAGE_VERSION).cloned(),
    })
}

fn text(versions: &Versions) -> String {
    let mut text = format!("Client: {}", versions.client.version);
    if let Some(commit) = versions.client.commit {
        let _ = write!(text, " ({commit})");
    }
    text.push('\n');
    if let Some(server) = &versions.server {
        let _ = write!(text, "Server: {}", output::escape_control_chars(&server.version));
        if let Some(release) = &server.release {
            let _ = write!(text, ", release {}", output::escape_control_chars(release));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_versions_of_client_and_server_are_printed() {
        let config = json!({"metadata": {"annotations": {
            annotations::GENERATED_BY_VERSION: "0.1.0", annotations::RELEASE_IMAGE_VERSION: "4.99.1"}}, "spec": {}});
        let config: ControllerConfig = serde_json::from_value(config).unwrap();
        let client = ClientVersion {
            version: "0.2.0",
            commit: Some("0123abc"),
        };
        let versions = Versions {
            client,
            server: version_of(&config),
        };
        assert_eq!(
            text(&versions),
            "Client: 0.2.0 (0123abc)\nServer: 0.1.0, release 4.99.1\n"
        );
        assert_eq!(version_of(&ControllerConfig::default()), None);
    }
}
