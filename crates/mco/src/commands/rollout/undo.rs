//! `mco rollout undo`

use crate::connection::FIELD_MANAGER;
use std::fmt::Write as _;

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_client::forecast::Edit;
use mco_client::undo::{self, Former, SourceEdit};
use mco_core::config::manifest::{Manifest, ManifestOrigin};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rendered_configs;
use mco_core::pipeline::bootstrap;
use serde::Serialize;
use serde_json::json;

use crate::cli::{BaseArguments, OutputFormat, UndoArguments};
use crate::commands::plan::{self, cluster};
use crate::connection::{describe_error, to_cli_error};
use crate::input::count;
use crate::output::{self, CommandOutcome, escape_control_chars};

pub async fn run(arguments: &UndoArguments) -> anyhow::Result<CommandOutcome> {
    let client = arguments.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let read = pools.get_opt(&arguments.pool).await;
    let pool = to_cli_error(read, &format!("read pool {}", arguments.pool))?
        .ok_or_else(|| anyhow!("there is no pool {}", arguments.pool))?;
    let objects = cluster::sources(&client).await.map_err(describe_error)?.objects;
    let sources = plan::assembled(bootstrap::adopt(objects.clone()))?;
    let renders = sources
        .render(plan::IDENTITY)
        .iter()
        .any(|outcome| outcome.name() == arguments.pool && outcome.result.is_ok());
    let rendered = rendered_of(&client, &arguments.pool).await?;
    let former = former(&client, arguments, &pool, &rendered, renders).await?;
    let created = former.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let entry = ParsedConfig::applicable(former.clone())?;
    let missing_source = missing_source(&pool, entry.name(), &objects);
    let former = Former {
        config: &entry,
        created,
        missing_source: &missing_source,
    };
    let undo = undo::undo(&sources, &arguments.pool, former, plan::IDENTITY)?;
    let report = UndoReport {
        pool: &arguments.pool,
        from: pool.target_name(),
        to: entry.name(),
        result: &undo.result,
        edits: undo.edits.iter().map(ReportedEdit::of).collect(),
        plan: plan::plan_cluster(&client, &plan_edits(&undo.edits)?, &BaseArguments::default()).await?,
        done: !arguments.dry_run,
    };
    match &arguments.output {
        Some(format) => for_a_program(&client, format, &undo.edits, &report).await,
        None => for_a_person(&client, arguments, &undo.edits, &report).await,
    }
}

/// The result of the undo, or of its dry run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UndoReport<'a> {
    pool: &'a str,
    from: &'a str,
    to: &'a str,
    /// The name of the rendered config, which differs when the pool's MachineConfigs differ from the former ones.
    result: &'a str,
    edits: Vec<ReportedEdit<'a>>,
    plan: mco_client::plan::PlanReport,
    done: bool,
}

/// The edit of one MachineConfig, without its contents, which may be secret; the plan shows their effect.
#[derive(Debug, Serialize)]
struct ReportedEdit<'a> {
    action: &'static str,
    name: &'a str,
}

impl<'a> ReportedEdit<'a> {
    fn of(edit: &'a SourceEdit) -> Self {
        Self {
            action: match edit {
                SourceEdit::Delete(_) => "delete",
                SourceEdit::Replace(_) => "change",
                SourceEdit::Create(_) => "create",
            },
            name: edit.name(),
        }
    }
}

/// Applies the undo and prints a report for programs.
async fn for_a_program(
    client: &Client,
    format: &OutputFormat,
    edits: &[SourceEdit],
    report: &UndoReport<'_>,
) -> anyhow::Result<CommandOutcome> {
    if report.done {
        write(client, edits).await?;
    }
    output::print_as(format, report)?;
    Ok(if report.done {
        CommandOutcome::Done
    } else {
        CommandOutcome::Changes
    })
}

/// Prints the plan, asks for confirmation and applies the undo.
async fn for_a_person(
    client: &Client,
    arguments: &UndoArguments,
    edits: &[SourceEdit],
    report: &UndoReport<'_>,
) -> anyhow::Result<CommandOutcome> {
    output::print(&describe(report))?;
    if arguments.dry_run {
        return Ok(CommandOutcome::Changes);
    }
    if !arguments.yes && !crate::input::confirmed()? {
        output::print("nothing was changed\n")?;
        return Ok(CommandOutcome::Refused);
    }
    write(client, edits).await?;
    output::print(&format!(
        "\npool {0} goes back to {1}; follow it with: mco status {0} --watch\n",
        report.pool, report.result
    ))?;
    Ok(CommandOutcome::Done)
}

async fn rendered_of(client: &Client, pool: &str) -> anyhow::Result<Vec<MachineConfig>> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let all = to_cli_error(
        configs.list(&ListParams::default()).await,
        "list the MachineConfigs",
    )?;
    let belongs = |config: &MachineConfig| rendered_configs::pool_of(&config.metadata) == Some(pool);
    Ok(all.items.into_iter().filter(belongs).collect())
}

async fn former(
    client: &Client,
    arguments: &UndoArguments,
    pool: &MachineConfigPool,
    rendered: &[MachineConfig],
    renders: bool,
) -> anyhow::Result<MachineConfig> {
    let named = |name: &str| rendered.iter().find(|config| config.name_any() == name).cloned();
    if let Some(name) = &arguments.to {
        return named(name).ok_or_else(|| {
            anyhow!(
                "pool {0} has no rendered config {name}; see those it has with: mco rollout history {0}",
                arguments.pool
            )
        });
    }
    // A pool whose MachineConfigs cannot be rendered is still at its target.
    if !renders && let Some(target) = named(pool.target_name()) {
        return Ok(target);
    }
    let events: Api<Event> = Api::all(client.clone());
    let about = format!(
        "involvedObject.kind=MachineConfigPool,involvedObject.name={}",
        arguments.pool
    );
    // Without permission for events, the age of the configs decides.
    let events = events.list(&ListParams::default().fields(&about)).await;
    let events = events.map(|list| list.items).unwrap_or_default();
    undo::former(pool, rendered, &events)
        .cloned()
        .ok_or_else(|| anyhow!("pool {} has no earlier config in the cluster", arguments.pool))
}

/// Returns the name of the MachineConfig for parts whose source is gone: the only missing source of the former config,
/// if the pool still lists its sources; else a name of ours.
fn missing_source(pool: &MachineConfigPool, former: &str, objects: &[Manifest]) -> String {
    let exists = |name: &str| {
        objects
            .iter()
            .any(|object| object.kind == "MachineConfig" && object.name == name)
    };
    let reached = pool.status.as_ref().map(|status| &status.configuration);
    let reached = reached.filter(|reached| reached.reference.name.as_deref() == Some(former));
    let listed = reached.into_iter().flat_map(|reached| &reached.source);
    let mut gone = listed
        .filter_map(|source| source.name.as_deref())
        .filter(|name| !exists(name));
    if let (Some(name), None) = (gone.next(), gone.next()) {
        return name.to_owned();
    }
    let ours = format!("99-{}-undo", pool.name_any());
    let numbered = (2..).map(|number| format!("{ours}-{number}"));
    std::iter::once(ours.clone())
        .chain(numbered)
        .find(|name| !exists(name))
        .unwrap_or(ours)
}

fn describe(report: &UndoReport<'_>) -> String {
    let UndoReport {
        pool,
        from,
        to,
        result,
        ..
    } = report;
    let mut text = format!("pool {pool} goes back from {from} to {to}\n");
    if result != to {
        let _ = writeln!(
            text,
            "  as {result}: the same on every machine, made from other MachineConfigs"
        );
    }
    for edit in &report.edits {
        let _ = writeln!(
            text,
            "  {} MachineConfig {}",
            edit.action,
            escape_control_chars(edit.name)
        );
    }
    text.push('\n');
    text.push_str(&plan::text::describe(&report.plan, false));
    text
}

/// Returns the edits in the form that a plan uses.
fn plan_edits(edits: &[SourceEdit]) -> anyhow::Result<Vec<Edit>> {
    let applied = |config: &MachineConfig| -> anyhow::Result<Edit> {
        let mut value = serde_json::to_value(config)?;
        value["apiVersion"] = json!("machineconfiguration.openshift.io/v1");
        value["kind"] = json!("MachineConfig");
        Ok(Edit::Apply(Manifest {
            origin: ManifestOrigin {
                file: "the former config".to_owned(),
                line: 0,
            },
            api_version: "machineconfiguration.openshift.io/v1".to_owned(),
            kind: "MachineConfig".to_owned(),
            name: config.name_any(),
            value,
        }))
    };
    edits
        .iter()
        .map(|edit| match edit {
            SourceEdit::Delete(config) => Ok(Edit::Delete(config.name_any())),
            SourceEdit::Replace(config) | SourceEdit::Create(config) => applied(config),
        })
        .collect()
}

/// Writes the edits: creates and updates before deletes, so that no file is missing in between. A concurrent change
/// wins, and an interrupted undo can be repeated.
async fn write(client: &Client, edits: &[SourceEdit]) -> anyhow::Result<()> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let (removals, others): (Vec<_>, Vec<_>) = edits
        .iter()
        .partition(|edit| matches!(edit, SourceEdit::Delete(_)));
    for (done, edit) in others.into_iter().chain(removals).enumerate() {
        let name = edit.name();
        let written = match edit {
            SourceEdit::Create(config) => configs
                .create(&FIELD_MANAGER.post_params(), config)
                .await
                .map(|_| ()),
            SourceEdit::Replace(config) => configs
                .replace(name, &FIELD_MANAGER.post_params(), config)
                .await
                .map(|_| ()),
            SourceEdit::Delete(config) => {
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    resource_version: config.resource_version(),
                    uid: config.uid(),
                });
                configs.delete(name, &parameters).await.map(|_| ())
            }
        };
        to_cli_error(written, &format!("change MachineConfig {name}")).with_context(|| {
            format!(
                "after {} of {}; run it again to resume",
                done,
                count(edits.len(), "change")
            )
        })?;
    }
    Ok(())
}
