//! Manifests from files, directories and standard input, with size limits.

use std::fs::{self, File};
use std::io::{self, BufRead as _, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use mco_api::ClusterBase;
pub use mco_client::text::count;
use mco_core::config::manifest::{self, LARGEST_FILE, Manifest};
use mco_core::generators::templates::TemplateTree;
use mco_core::pipeline::ClusterStage;
use mco_core::pipeline::bootstrap::{self, BootstrapCluster, BootstrapSettings};
use mco_core::pipeline::offline::Inventory;
use serde_json::Value;

use crate::cli::{BaseArguments, ResolveArguments};
use crate::commands::VERSION;
use crate::output;
use crate::remote;

/// File extensions of manifests in a directory.
const ENDINGS: [&str; 4] = ["yaml", "yml", "json", "bu"];

/// Files that make a directory an input of kustomize. What they patch or generate would be missing here.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The parsed manifests, and the number of inputs that failed, each of which has been reported.
#[derive(Debug, Default)]
pub struct Manifests {
    pub read: Vec<Manifest>,
    pub unreadable: usize,
}

/// Reads all manifests below the paths. A file that cannot be parsed is reported and skipped.
pub fn manifests(paths: &[PathBuf]) -> anyhow::Result<Manifests> {
    let mut manifests = Manifests::default();
    for path in paths {
        for file in files(path)? {
            match read(&file) {
                Ok(objects) => manifests.read.extend(objects),
                Err(error) => {
                    output::problem(format!("{error:#}"));
                    manifests.unreadable += 1;
                }
            }
        }
    }
    Ok(manifests)
}

/// Reads a directory as a cluster and generates the configs that derive from its objects. Anything that cannot be
/// parsed is an error; unknown kinds are only reported.
pub fn cluster(
    path: &Path,
    base: &BaseArguments,
    remote: &ResolveArguments,
) -> anyhow::Result<BootstrapCluster> {
    let mut manifests = manifests(&[path.to_owned()])?;
    if manifests.unreadable > 0 {
        bail!(
            "{}: {} cannot be used",
            path.display(),
            count(manifests.unreadable, "manifest")
        );
    }
    manifests.read.extend(fetched(&manifests.read, remote)?);
    let base = BaseInputs::read(base)?;
    let cluster = bootstrap::assemble(manifests.read, &base.settings()).map_err(|errors| {
        for error in &errors {
            output::problem(error);
        }
        anyhow!(
            "{}: {} cannot be used",
            path.display(),
            count(errors.len(), "manifest")
        )
    })?;
    warn_about_skipped(&cluster.inventory);
    for warning in &cluster.warnings {
        output::warning(warning);
    }
    if cluster.inventory.configs.is_empty() && base.base.is_none_or(ClusterBase::has_templates) {
        bail!(
            "{}: no MachineConfig found; is this the right directory?",
            path.display()
        );
    }
    Ok(cluster)
}

/// Returns the remote contents of the MachineConfigs. Those that cannot be fetched are reported, here and by the pools
/// that need them.
fn fetched(manifests: &[Manifest], arguments: &ResolveArguments) -> anyhow::Result<Vec<Manifest>> {
    let mut stored: Vec<Manifest> = Vec::new();
    for manifest in manifests {
        let resolved = remote::resolve(manifest, arguments)?;
        for (reference, why) in &resolved.failed {
            output::problem(format!(
                "{}: {} {:?}: {}: {} cannot be fetched: {why}",
                manifest.origin,
                manifest.kind,
                manifest.name,
                reference.field,
                reference.shown_url()
            ));
        }
        stored.extend(resolved.stored);
    }
    Ok(stored)
}

/// The files that the options about the base configuration refer to.
#[derive(Debug)]
pub struct BaseInputs {
    templates: Option<TemplateTree>,
    pull_secret: Option<String>,
    payload_version: Option<String>,
    stage: Option<ClusterStage>,
    base: Option<ClusterBase>,
}

impl BaseInputs {
    pub fn read(base: &BaseArguments) -> anyhow::Result<Self> {
        Ok(Self {
            templates: base.templates.as_deref().map(template_tree).transpose()?,
            pull_secret: base.pull_secret.as_deref().map(pull_secret).transpose()?,
            payload_version: base.payload_version.clone(),
            stage: base.stage.map(ClusterStage::from),
            base: base.base,
        })
    }

    pub fn settings(&self) -> BootstrapSettings<'_> {
        BootstrapSettings {
            templates: self.templates.as_ref(),
            pull_secret: self.pull_secret.as_deref(),
            controller_version: VERSION,
            payload_version: self.payload_version.as_deref(),
            stage: self.stage,
            base: self.base,
        }
    }
}

fn pull_secret(path: &Path) -> anyhow::Result<String> {
    let bytes = File::open(path)
        .and_then(bounded)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bootstrap::pull_secret(&path.display().to_string(), &bytes)?)
}

pub fn template_tree(root: &Path) -> anyhow::Result<TemplateTree> {
    let mut tree = TemplateTree::default();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read template directory {}", directory.display()))?;
        for entry in entries {
            let path = entry
                .with_context(|| format!("cannot read template directory {}", directory.display()))?
                .path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let bytes = File::open(&path)
                .and_then(bounded)
                .with_context(|| format!("cannot read template {}", path.display()))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            tree.insert(&relative.to_string_lossy(), bytes);
        }
    }
    Ok(tree)
}

pub fn warn_about_skipped(inventory: &Inventory) {
    for skipped in &inventory.skipped {
        output::warning(format!(
            "{}: skipped {} {:?} ({}): this kind is not used for rendering",
            skipped.origin, skipped.kind, skipped.name, skipped.api_version
        ));
    }
}

/// Asks for confirmation on the terminal; an error without a terminal.
pub fn confirmed() -> anyhow::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        bail!("no terminal to confirm this; use --yes to proceed, or --dry-run to only show it");
    }
    output::print("\nDo this? [y/N] ")?;
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path == Path::new("-") || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    if let Some(kustomization) = KUSTOMIZATIONS.iter().find(|name| path.join(name).is_file()) {
        bail!(
            "{0}: {kustomization} is built by kustomize first; run: kustomize build {0} | mco ... with - for standard input",
            path.display()
        );
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read directory {}", path.display()))? {
        let file = entry
            .with_context(|| format!("cannot read directory {}", path.display()))?
            .path();
        let ending = file
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        if file.is_file() && ENDINGS.contains(&ending) {
            files.push(file);
        }
    }
    if files.is_empty() {
        bail!(
            "{}: no .yaml, .yml, .json or .bu file in this directory",
            path.display()
        );
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<Vec<Manifest>> {
    let (name, bytes) = named(path)?;
    let reading = manifest::read_with_warnings(&name, &bytes)?;
    for warning in &reading.warnings {
        output::warning(warning);
    }
    Ok(reading.manifests)
}

/// Reads one JSON or YAML document of any shape.
pub fn document(path: &Path) -> anyhow::Result<Value> {
    let (name, bytes) = named(path)?;
    if bytes.len() > LARGEST_FILE {
        bail!("{name}: more than {LARGEST_FILE} bytes");
    }
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{name}: not text"))?;
    manifest::value(text).map_err(|message| anyhow!("{name}: {message}"))
}

/// Reads a small file of any kind.
pub fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    named(path).map(|(_, bytes)| bytes)
}

fn named(path: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    if path == Path::new("-") {
        let bytes = bounded(io::stdin().lock()).context("cannot read standard input")?;
        return Ok(("standard input".to_owned(), bytes));
    }
    let bytes = File::open(path)
        .and_then(bounded)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), bytes))
}

/// Reads up to one byte more than the limit, which is enough to detect an oversized input.
fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(LARGEST_FILE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
