//! `mco gather`: the state of a cluster for a support case, without secrets.

mod bundle;
mod collect;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::Client;
use mco_client::redaction::{self, Redactor};
use mco_core::config::goyaml;
use serde::Serialize;
use serde_json::json;

use self::bundle::Bundle;
use self::collect::{Collection, GatherKind};
use super::{VERSION, status};
use crate::cli::Gather;
use crate::input::count;
use crate::output::{self, CommandOutcome};
use crate::runtime;

const ABOUT: &str = "\
A support bundle of mco gather.

version.yaml   version of mco, cluster and time
status.txt     the output of mco status --nodes
objects/       one file per object, by kind
logs/          the last lines of the logs of our pods
missing.txt    what could not be read, and why

Secrets were removed: the data of Secrets and ConfigMaps, the contents of files and units in MachineConfigs, kernel
arguments with the name of a secret, keys, password hashes, pull secrets, and everything that could be a token or a
private key. What is left of them is a hash with a random key, which is not stored: equal contents of this bundle have
equal hashes, and the hashes are of no use outside of it. Names, paths, addresses, annotations and messages are unchanged: review them before you share
the bundle.
";

pub fn run(arguments: &Gather) -> anyhow::Result<CommandOutcome> {
    let started = Timestamp::now();
    let path = match &arguments.out {
        Some(path) => path.clone(),
        None => PathBuf::from(format!(
            "mco-gather-{}.tar.gz",
            started.strftime("%Y%m%dT%H%M%SZ")
        )),
    };
    if path.exists() {
        bail!(
            "{} exists already; choose another file with --out",
            path.display()
        );
    }
    runtime::block_on(async move {
        let client = arguments.query.connection.client().await?;
        let gathered = gather(&client, &path, started).await?;
        output::show(arguments.query.output.format.as_ref(), &gathered, || {
            describe(&gathered)
        })?;
        Ok(CommandOutcome::Done)
    })
}

#[derive(Debug, Serialize)]
struct GatheredFiles {
    path: PathBuf,
    objects: usize,
    logs: usize,
    /// The names in the bundle.
    files: Vec<String>,
    /// What could not be read, with the error.
    missing: Vec<String>,
}

async fn gather(client: &Client, path: &Path, started: Timestamp) -> anyhow::Result<GatheredFiles> {
    // First, because it reports an unreachable cluster in one sentence.
    let pools = status::read(client).await?;
    let mut bundle = Bundle::create(path, started)?;
    let redactor = redactor()?;
    bundle.add("README.txt", ABOUT.as_bytes())?;
    bundle.add(
        "status.txt",
        redaction::text(&status::text::describe(&pools, true, started)).as_bytes(),
    )?;
    bundle.add("version.yaml", versions(client, started).await.as_bytes())?;
    let mut gathered = GatheredFiles {
        path: path.to_owned(),
        objects: 0,
        logs: 0,
        files: Vec::new(),
        missing: Vec::new(),
    };
    for wanted in collect::WANTED {
        match wanted.list(client).await {
            Collection::Found(objects) => {
                for object in objects {
                    add_object(&mut bundle, &redactor, wanted, object)?;
                    gathered.objects += 1;
                }
            }
            Collection::UnknownKind => {}
            Collection::Refused(why) => gathered.missing.push(format!("{}: {why}", wanted.kind)),
        }
    }
    collect::logs(client, &mut bundle, &mut gathered).await?;
    for why in &mut gathered.missing {
        *why = redaction::text(why);
    }
    if !gathered.missing.is_empty() {
        bundle.add("missing.txt", (gathered.missing.join("\n") + "\n").as_bytes())?;
    }
    gathered.files = bundle.finish()?;
    Ok(gathered)
}

async fn versions(client: &Client, started: Timestamp) -> String {
    let server = match client.apiserver_version().await {
        Ok(info) => json!(info.git_version),
        Err(error) => json!(format!("unknown: {error}")),
    };
    goyaml::to_string(&json!({"mco": VERSION, "server": server, "gathered": started}))
}

/// Returns a redactor with a new key, so that hashes of the bundle can be compared with each other only.
fn redactor() -> anyhow::Result<Redactor> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("no random numbers for the hashes of the bundle")?;
    Ok(Redactor::new(key))
}

fn add_object(
    bundle: &mut Bundle,
    redactor: &Redactor,
    wanted: &GatherKind,
    mut object: serde_json::Value,
) -> anyhow::Result<()> {
    let text = |pointer: &str| object.pointer(pointer).and_then(|value| value.as_str());
    let name = text("/metadata/name").unwrap_or("unnamed");
    let file = match text("/metadata/namespace") {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    };
    let path = format!("objects/{}/{}.yaml", wanted.kind, bundle::safe(&file));
    redactor.object(&mut object);
    bundle.add(&path, goyaml::to_string(&object).as_bytes())
}

fn describe(gathered: &GatheredFiles) -> String {
    let mut text = format!(
        "{}: {} and {}, secrets removed\n",
        gathered.path.display(),
        count(gathered.objects, "object"),
        count(gathered.logs, "log")
    );
    if !gathered.missing.is_empty() {
        let _ = writeln!(
            text,
            "{} could not be read; see missing.txt in it",
            count(gathered.missing.len(), "thing")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of such keys in goyaml is a cycle, on which Rust's own sort panics.
    #[test]
    fn a_node_with_hostile_annotation_keys_is_gathered() {
        let keys = (0..400).map(|i| format!("a{:02}{}{i}", i % 13, ["", "a", "-"][i % 3]));
        let annotations: serde_json::Map<String, serde_json::Value> =
            keys.map(|key| (key, json!("x"))).collect();
        let node = json!({"kind": "Node", "metadata": {"name": "evil-0", "annotations": annotations}});
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let mut bundle = Bundle::create(&path, Timestamp::UNIX_EPOCH).unwrap();
        let wanted = collect::WANTED
            .iter()
            .find(|wanted| wanted.kind == "Node")
            .unwrap();
        add_object(&mut bundle, &redactor().unwrap(), wanted, node).unwrap();
        assert_eq!(bundle.finish().unwrap(), ["mco-gather/objects/Node/evil-0.yaml"]);
        assert!(path.exists());
    }
}
