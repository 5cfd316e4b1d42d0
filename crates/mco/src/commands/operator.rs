//! `mco operator`

mod bootstrap;

use anyhow::Context;
use futures::TryFutureExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use mco_api::vocabulary::names;
use mco_operator::{MetricsAccess, OperandMode, OperatorOptions, Webhook};
use tokio_util::sync::CancellationToken;

use super::VERSION;
use crate::cli::{OperatorArguments, OperatorCommand};
use crate::leader;
use crate::log::Log;
use crate::output::CommandOutcome;
use crate::runtime;

/// The operator is idle most of the time.
const THREADS: usize = 2;
/// The leader election Lease, shared with other implementations so that only one of them is active.
const LEASE: &str = "machine-config";

pub fn run(arguments: OperatorArguments) -> anyhow::Result<CommandOutcome> {
    if let Some(OperatorCommand::Bootstrap(arguments)) = &arguments.command {
        return bootstrap::run(arguments);
    }
    let log = Log::start(std::io::stderr);
    runtime::run(THREADS, |stop| operate(arguments, log, stop))?;
    Ok(CommandOutcome::Done)
}

async fn operate(arguments: OperatorArguments, log: Log, stop: CancellationToken) -> anyhow::Result<()> {
    let client = Client::try_from(arguments.connection.component_config().await?)?;
    let image = match (&arguments.image, arguments.deploy) {
        (Some(image), _) => image.clone(),
        (None, false) => String::new(),
        (None, true) => own_image(&client).await?,
    };
    let options = options(&arguments, image);
    tokio::spawn(log.follow(options.log_levels.subscribe(), |levels| levels.operator));
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        // Creates the namespace of the Lease.
        prepared = mco_operator::prepare(client.clone()) => prepared.context("cannot use the cluster")?,
    }
    let election = arguments.election;
    let work = |stop| Box::pin(mco_operator::run(client.clone(), options, stop)).map_err(Into::into);
    leader::lead(client.clone(), names::NAMESPACE, LEASE, &election, stop, work).await
}

/// Returns the image of the operator's Deployment, so that a tool that replaces images updates all components at once.
async fn own_image(client: &Client) -> anyhow::Result<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::NAMESPACE);
    let name = names::component::OPERATOR;
    let found = deployments
        .get_opt(name)
        .await
        .context("cannot read the image to deploy")?;
    found.and_then(operator_image).with_context(|| {
        format!(
            "there is no Deployment {}/{name} whose image could be deployed; specify one with --image",
            names::NAMESPACE
        )
    })
}

fn operator_image(deployment: Deployment) -> Option<String> {
    let containers = deployment.spec?.template.spec?.containers;
    let operator = containers
        .into_iter()
        .find(|container| container.name == names::component::OPERATOR);
    operator?.image.filter(|image| !image.is_empty())
}

fn options(arguments: &OperatorArguments, image: String) -> OperatorOptions {
    OperatorOptions {
        release_version: arguments.release_version.clone(),
        image,
        templates_image: arguments.templates_image.clone().unwrap_or_default(),
        builder_image: arguments.builder_image.clone().unwrap_or_default(),
        keep_builds: arguments.keep_builds,
        api_server_url: arguments.apiserver_url.clone(),
        config_server: arguments.config_server.clone(),
        workloads: if arguments.deploy {
            OperandMode::Deployed
        } else {
            OperandMode::Elsewhere
        },
        profile: arguments.profile.options(),
        ignition_tokens: arguments.ignition_tokens.into(),
        webhook: arguments.webhook_listen.map(|listen| Webhook {
            listen,
            url: arguments.webhook_url.clone(),
        }),
        metrics_address: arguments.metrics_listen,
        metrics_access: if arguments.guard_metrics {
            MetricsAccess::Guarded
        } else {
            MetricsAccess::Open
        },
        ..OperatorOptions::new(VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_deploys_the_image_of_its_own_container() {
        let deployment = |name: &str, image: &str| -> Deployment {
            serde_json::from_value(
                serde_json::json!({"spec": {"selector": {}, "template": {"spec": {"containers": [
                    {"name": "sidecar", "image": "registry.example.com/sidecar:1"},
                    {"name": name, "image": image},
                ]}}}}),
            )
            .unwrap()
        };
        let own = operator_image(deployment(
            "machine-config-operator",
            "registry.example.com/mco:2",
        ));
        assert_eq!(own.as_deref(), Some("registry.example.com/mco:2"));
        assert_eq!(
            operator_image(deployment("other", "registry.example.com/mco:2")),
            None
        );
        assert_eq!(operator_image(deployment("machine-config-operator", "")), None);
        assert_eq!(operator_image(Deployment::default()), None);
    }
}
