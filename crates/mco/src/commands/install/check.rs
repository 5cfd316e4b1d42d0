//! `mco install --check`: requirements, and what applying the manifests would change.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, Patch};
use kube::{Api, Client};
use mco_client::preflight::{self, KubernetesVersion, RequirementCheck, RequirementStatus, changed_fields};
use mco_runtime::FieldManager;
use serde::Serialize;
use serde_json::Value;

use crate::cli::InstallArguments;
use crate::commands::switch::cluster::ObjectPlace;
use crate::connection::{list_readable, to_cli_error};
use crate::output::{self, CommandOutcome};

/// The field manager of `kubectl apply --server-side`, which applies the manifests.
const KUBECTL: FieldManager = FieldManager::new("kubectl");
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

#[derive(Debug, Serialize)]
struct CheckReport {
    requirements: Vec<RequirementCheck>,
    changes: Vec<ObjectChange>,
}

/// What applying one manifest would do.
#[derive(Debug, Serialize)]
struct ObjectChange {
    object: String,
    #[serde(flatten)]
    effect: ChangeEffect,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "effect", rename_all = "camelCase")]
enum ChangeEffect {
    Create,
    Change {
        fields: Vec<String>,
    },
    Unchanged,
    /// The API server would reject it.
    Rejected {
        message: String,
    },
}

pub async fn run(arguments: &InstallArguments, manifests: Vec<Value>) -> anyhow::Result<CommandOutcome> {
    let client = arguments.connection.client().await?;
    let places: Vec<ObjectPlace> = manifests
        .iter()
        .map(ObjectPlace::of)
        .collect::<anyhow::Result<_>>()?;
    let requirements = requirements(&client, &places).await?;
    let mut changes = Vec::new();
    for (manifest, place) in manifests.iter().zip(&places) {
        changes.push(ObjectChange {
            object: place.to_string(),
            effect: effect(&client, manifest, place).await?,
        });
    }
    let report = CheckReport {
        requirements,
        changes,
    };
    output::show(arguments.output.as_ref(), &report, || to_text(&report))?;
    Ok(outcome(&report))
}

fn outcome(report: &CheckReport) -> CommandOutcome {
    let fails = |check: &RequirementCheck| check.status == RequirementStatus::NotMet;
    let is_rejected = |change: &ObjectChange| matches!(change.effect, ChangeEffect::Rejected { .. });
    if report.requirements.iter().any(fails) || report.changes.iter().any(is_rejected) {
        CommandOutcome::Refused
    } else if report
        .changes
        .iter()
        .any(|change| change.effect != ChangeEffect::Unchanged)
    {
        CommandOutcome::Changes
    } else {
        CommandOutcome::Done
    }
}

async fn requirements(client: &Client, places: &[ObjectPlace]) -> anyhow::Result<Vec<RequirementCheck>> {
    let version = to_cli_error(
        client.apiserver_version().await,
        "read the version of the API server",
    )?
    .git_version;
    let mut checks = vec![preflight::check_server_version(&version)];
    checks.push(admission(client).await?);
    checks.push(permissions(client, places).await?);
    let mut nodes: Vec<Node> = list_readable(client, "list the nodes").await?;
    nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let server = KubernetesVersion::parse(&version);
    checks.extend(nodes.iter().map(|node| preflight::check_node(node, server)));
    Ok(checks)
}

/// Checks that the API server enforces admission policies: without them a daemon could change other nodes.
async fn admission(client: &Client) -> anyhow::Result<RequirementCheck> {
    let subject = "admission";
    let needed = ["validatingadmissionpolicies", "validatingwebhookconfigurations"];
    let served = match client.list_api_group_resources(ADMISSION).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(kube::Error::Api(status)) if status.is_not_found() => BTreeSet::new(),
        failed => {
            to_cli_error(failed, "list the admission API")?;
            BTreeSet::new()
        }
    };
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|resource| !served.contains(*resource))
        .collect();
    Ok(if missing.is_empty() {
        RequirementCheck::new(
            subject,
            RequirementStatus::Met,
            format!("{ADMISSION} with policies"),
        )
    } else {
        let message = format!("{ADMISSION} does not serve {}", missing.join(" and "));
        RequirementCheck::new(subject, RequirementStatus::NotMet, message)
    })
}

/// Checks that the user may apply every kind of the manifests. Roles may only grant what their creator has, so that the
/// operator's needs the permission to escalate.
async fn permissions(client: &Client, places: &[ObjectPlace]) -> anyhow::Result<RequirementCheck> {
    let subject = "permissions";
    if is_allowed(client, "*", "*", "*").await? {
        return Ok(RequirementCheck::new(
            subject,
            RequirementStatus::Met,
            "you are a cluster administrator",
        ));
    }
    let kinds: BTreeSet<(&str, &str)> = places
        .iter()
        .map(|place| (place.resource.group.as_str(), place.resource.plural.as_str()))
        .collect();
    let mut needed: Vec<(&str, &str, &str)> = Vec::new();
    for (group, resource) in kinds {
        needed.extend(["get", "create", "patch"].map(|verb| (verb, group, resource)));
    }
    let roles = "rbac.authorization.k8s.io";
    needed.extend(["escalate", "bind"].map(|verb| (verb, roles, "clusterroles")));
    let mut missing = Vec::new();
    for (verb, group, resource) in needed {
        if !is_allowed(client, verb, group, resource).await? {
            missing.push(format!("{verb} {resource}"));
        }
    }
    Ok(if missing.is_empty() {
        RequirementCheck::new(subject, RequirementStatus::Met, "you may apply every object")
    } else {
        let message = format!(
            "you may not {}; use a cluster administrator's credentials",
            missing.join(", ")
        );
        RequirementCheck::new(subject, RequirementStatus::NotMet, message)
    })
}

async fn is_allowed(client: &Client, verb: &str, group: &str, resource: &str) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews
        .create(&crate::connection::FIELD_MANAGER.post_params(), &review)
        .await;
    let answer = to_cli_error(answer, "review your permissions")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Applies a manifest as a dry run and compares the result with the stored object.
async fn effect(client: &Client, manifest: &Value, place: &ObjectPlace) -> anyhow::Result<ChangeEffect> {
    let api: Api<DynamicObject> = place.api(client);
    let before = match api.get_opt(&place.name).await {
        // Its kind is defined by a CRD that does not exist yet.
        Err(kube::Error::Api(status)) if status.is_not_found() => None,
        found => to_cli_error(found, &format!("read {place}"))?,
    };
    let parameters = KUBECTL.patch_params().dry_run();
    let applied = api.patch(&place.name, &parameters, &Patch::Apply(manifest)).await;
    let after = match applied {
        Ok(after) => after,
        // Its namespace does not exist yet either.
        Err(kube::Error::Api(status)) if status.is_not_found() && before.is_none() => {
            return Ok(ChangeEffect::Create);
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 409 | 422) => {
            return Ok(ChangeEffect::Rejected {
                message: status.message,
            });
        }
        failed => to_cli_error(failed, &format!("apply {place} as a dry run"))?,
    };
    let Some(before) = before else {
        return Ok(ChangeEffect::Create);
    };
    let fields = changed_fields(&serde_json::to_value(before)?, &serde_json::to_value(after)?);
    Ok(if fields.is_empty() {
        ChangeEffect::Unchanged
    } else {
        ChangeEffect::Change { fields }
    })
}

fn to_text(report: &CheckReport) -> String {
    let mut text = String::from("Requirements\n");
    for check in &report.requirements {
        let word = match check.status {
            RequirementStatus::Met => "ok",
            RequirementStatus::Warning => "warning",
            RequirementStatus::NotMet => "not met",
        };
        line(&mut text, word, &format!("{}: {}", check.subject, check.message));
    }
    text.push_str("\nChanges\n");
    let mut unchanged = 0;
    for change in &report.changes {
        let object = &change.object;
        match &change.effect {
            ChangeEffect::Unchanged => unchanged += 1,
            ChangeEffect::Create => line(&mut text, "create", object),
            ChangeEffect::Change { fields } => {
                line(&mut text, "change", &format!("{object}: {}", fields.join(", ")));
            }
            ChangeEffect::Rejected { message } => {
                line(&mut text, "rejected", &format!("{object}: {message}"));
            }
        }
    }
    match unchanged {
        0 => {}
        count if count == report.changes.len() => line(&mut text, "none", "every object is up to date"),
        count => line(&mut text, "same", &crate::input::count(count, "object")),
    }
    text
}

fn line(text: &mut String, word: &str, rest: &str) {
    let _ = writeln!(text, "  {word:<8}  {}", output::escape_control_chars(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: RequirementStatus, effect: ChangeEffect) -> CheckReport {
        CheckReport {
            requirements: vec![RequirementCheck::new("Kubernetes", status, "v1.36.3")],
            changes: vec![ObjectChange {
                object: "Namespace x".to_owned(),
                effect,
            }],
        }
    }

    #[test]
    fn exit_codes() {
        use RequirementStatus::{Met, NotMet, Warning};
        let rejected = || ChangeEffect::Rejected {
            message: "conflict".to_owned(),
        };
        for (status, effect, expected) in [
            (Met, ChangeEffect::Unchanged, CommandOutcome::Done),
            (Warning, ChangeEffect::Unchanged, CommandOutcome::Done),
            (Warning, ChangeEffect::Create, CommandOutcome::Changes),
            (NotMet, ChangeEffect::Create, CommandOutcome::Refused),
            (Met, rejected(), CommandOutcome::Refused),
        ] {
            let report = report(status, effect);
            assert_eq!(outcome(&report), expected, "{report:?}");
        }
    }
}
