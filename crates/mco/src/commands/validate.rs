//! `mco validate`

use anyhow::bail;
use mco_api::ClusterBase;
use mco_core::config::manifest::Manifest;
use mco_core::config::problem::Problem;
use mco_core::config::remote::RemoteReference;
use mco_core::pipeline::admission::{self, AdmissionContext};
use serde::Serialize;

use crate::cli::{ResolveArguments, Validate};
use crate::input::{self, count};
use crate::output::{self, CommandOutcome};
use crate::remote;

#[derive(Default, Serialize)]
struct ValidationReport {
    valid: usize,
    errors: Vec<ValidationFinding>,
    warnings: Vec<ValidationFinding>,
    /// Hashes of remote contents that have none; with --resolve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<ContentHash>,
}

#[derive(Serialize)]
struct ContentHash {
    name: String,
    path: String,
    url: String,
    hash: String,
}

#[derive(Serialize)]
struct ValidationFinding {
    file: String,
    line: u64,
    kind: String,
    name: String,
    #[serde(flatten)]
    problem: Problem,
}

pub fn run(arguments: &Validate) -> anyhow::Result<CommandOutcome> {
    let manifests = input::manifests(&arguments.files)?;
    let mut report = ValidationReport::default();
    for manifest in &manifests.read {
        check(manifest, arguments.base.unwrap_or_default(), &mut report);
        resolve(manifest, &arguments.remote, &mut report)?;
    }
    if manifests.read.is_empty() && manifests.unreadable == 0 {
        bail!("nothing to check: no object found");
    }
    let refused = manifests.unreadable > 0 || !report.errors.is_empty();
    if let Some(format) = &arguments.output {
        output::print_as(format, &report)?
    } else {
        print_findings(&report);
        print_hashes(&report)?;
    }
    if arguments.output.is_none() && !refused {
        output::print(&format!("{} valid\n", count(report.valid, "object")))?;
    }
    Ok(if refused {
        CommandOutcome::Refused
    } else {
        CommandOutcome::Done
    })
}

fn check(manifest: &Manifest, base: ClusterBase, report: &mut ValidationReport) {
    let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
    let context = || AdmissionContext {
        base,
        ..AdmissionContext::default()
    };
    let Some(result) = admission::check_on(context, group, &manifest.kind, &manifest.value) else {
        let text = format!(
            "{} {} is not a kind that this command checks; skipped",
            manifest.api_version, manifest.kind
        );
        report
            .warnings
            .push(finding(manifest, Problem::new("kind", text)));
        return;
    };
    match result {
        Ok(warnings) => {
            report.valid += 1;
            report
                .warnings
                .extend(warnings.into_iter().map(|problem| finding(manifest, problem)));
        }
        Err(problems) => report
            .errors
            .extend(problems.into_iter().map(|problem| finding(manifest, problem))),
    }
}

/// Fetches the remote contents of a MachineConfig: contents without a hash are reported with theirs.
fn resolve(
    manifest: &Manifest,
    arguments: &ResolveArguments,
    report: &mut ValidationReport,
) -> anyhow::Result<()> {
    let resolved = remote::resolve(manifest, arguments)?;
    let failed = |reference: &RemoteReference, why: &str| {
        let message = format!("{} cannot be fetched: {why}", reference.shown_url());
        finding(
            manifest,
            Problem::new(format!("{}.source", reference.field), message),
        )
    };
    for (reference, hash) in resolved.unverified {
        match hash {
            Ok(hash) => report.hashes.push(ContentHash {
                name: manifest.name.clone(),
                path: format!("{}.verification.hash", reference.field),
                url: reference.shown_url(),
                hash,
            }),
            Err(why) => report.errors.push(failed(&reference, &why)),
        }
    }
    for (reference, why) in resolved.failed {
        report.errors.push(failed(&reference, &why));
    }
    Ok(())
}

fn print_hashes(report: &ValidationReport) -> anyhow::Result<()> {
    let lines = report.hashes.iter().map(|found| {
        let text = format!("MachineConfig {:?}: {}: {}", found.name, found.path, found.hash);
        output::escape_control_chars(&format!("{text}  # {}", found.url)).clone() + "\n"
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        Ok(())
    } else {
        output::print(&lines)
    }
}

fn finding(manifest: &Manifest, problem: Problem) -> ValidationFinding {
    ValidationFinding {
        file: manifest.origin.file.clone(),
        line: manifest.origin.line,
        kind: manifest.kind.clone(),
        name: manifest.name.clone(),
        problem,
    }
}

fn print_findings(report: &ValidationReport) {
    let line = |finding: &ValidationFinding| {
        format!(
            "{}:{}: {} {:?}: {}",
            finding.file, finding.line, finding.kind, finding.name, finding.problem
        )
    };
    for finding in &report.warnings {
        output::warning(line(finding));
    }
    for finding in &report.errors {
        output::problem(line(finding));
    }
}
