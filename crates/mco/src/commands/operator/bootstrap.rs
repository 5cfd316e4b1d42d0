//! `mco operator bootstrap`

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use mco_core::generators::os_streams::release::ReleaseImages;
use mco_operator::OperatorOptions;
use mco_operator::bootstrap::{
    self, BootstrapCopies, BootstrapFile, BootstrapImages, BootstrapInputs, Places,
};

use crate::cli::Bootstrap;
use crate::commands::VERSION;
use crate::input;
use crate::output::{self, CommandOutcome};

/// The default directory of an installer's manifests, and the names of the required ones.
const ASSETS: &str = "/assets/manifests";

pub fn run(arguments: &Bootstrap) -> anyhow::Result<CommandOutcome> {
    let (inputs, release_version) = read(arguments)?;
    let options = OperatorOptions {
        release_version,
        ..OperatorOptions::new(VERSION)
    };
    let files = bootstrap::files(&inputs, &Places::default(), &options)?;
    let mut summary = String::new();
    for file in &files {
        write(&arguments.dest_dir, file)?;
        let _ = writeln!(summary, "{}", arguments.dest_dir.join(&file.path).display());
    }
    output::print(&summary)?;
    Ok(CommandOutcome::Done)
}

fn read(arguments: &Bootstrap) -> anyhow::Result<(BootstrapInputs, Option<String>)> {
    let release = arguments.image_references.as_deref();
    let release = release.map(input::document).transpose()?;
    let images = release.as_ref().map(ReleaseImages::read).transpose();
    let images =
        images.with_context(|| format!("cannot use {}", shown(arguments.image_references.as_ref())))?;
    let version = images.as_ref().map(|images| images.version.clone());
    let version = arguments
        .payload_version
        .clone()
        .or(version)
        .filter(|version| !version.is_empty());
    let bytes = |file: &Option<PathBuf>| file.as_deref().map(input::bytes).transpose();
    let root_ca = bytes(&arguments.root_ca)?.unwrap_or_default();
    let inputs = BootstrapInputs {
        manifests: manifests(arguments)?,
        copies: if arguments.manifests.is_some() {
            BootstrapCopies::Made
        } else {
            BootstrapCopies::Elsewhere
        },
        root_ca: String::from_utf8(root_ca)
            .with_context(|| format!("{}: not text", shown(arguments.root_ca.as_ref())))?,
        kube_ca: bytes(&arguments.kube_ca)?.unwrap_or_default(),
        cloud_provider_ca: bytes(&arguments.cloud_provider_ca_file)?.unwrap_or_default(),
        pull_secret: bytes(&arguments.pull_secret)?,
        images: self::images(arguments, images.as_ref())?,
        release,
        release_image: arguments.release_image.clone(),
    };
    if let (Some(file), Some(secret)) = (&arguments.pull_secret, &inputs.pull_secret) {
        mco_core::pipeline::bootstrap::pull_secret(&file.display().to_string(), secret)?;
    }
    Ok((inputs, version))
}

fn shown(file: Option<&PathBuf>) -> String {
    file.map(|file| file.display().to_string()).unwrap_or_default()
}

/// Returns the manifests of the directory, overridden by those that have an option of their own.
fn manifests(arguments: &Bootstrap) -> anyhow::Result<Vec<mco_core::config::manifest::Manifest>> {
    let single = [
        &arguments.infra_config_file,
        &arguments.network_config_file,
        &arguments.proxy_config_file,
        &arguments.dns_config_file,
        &arguments.additional_trust_bundle_config_file,
        &arguments.cloud_config_file,
    ];
    let single: Vec<PathBuf> = single.into_iter().flatten().cloned().collect();
    let directory = match &arguments.manifests {
        Some(directory) => Some(directory.clone()),
        None if Path::new(ASSETS).is_dir() => Some(ASSETS.into()),
        None if arguments.infra_config_file.is_none() => {
            bail!(
                "no manifests: set the installer's directory with --manifests, or --infra-config-file and the others"
            )
        }
        None => None,
    };
    let paths: Vec<PathBuf> = directory.into_iter().chain(single).collect();
    let manifests = input::manifests(&paths)?;
    if manifests.unreadable > 0 {
        bail!(
            "{} cannot be used",
            input::count(manifests.unreadable, "manifest")
        );
    }
    Ok(manifests.read)
}

/// Returns the images of the release, overridden by those that have an option of their own.
fn images(arguments: &Bootstrap, release: Option<&ReleaseImages>) -> anyhow::Result<BootstrapImages> {
    let mut images = release
        .map(BootstrapImages::of_release)
        .transpose()?
        .unwrap_or_default();
    let given = &arguments.images;
    if let Some(image) = &given.machine_config_operator_image {
        images.set_operator(image);
    }
    let named = [
        ("infraImage", &given.infra_image),
        ("keepalivedImage", &given.keepalived_image),
        ("corednsImage", &given.coredns_image),
        ("haproxyImage", &given.haproxy_image),
        ("baremetalRuntimeCfgImage", &given.baremetal_runtimecfg_image),
        ("kubeRbacProxyImage", &given.kube_rbac_proxy_image),
        ("dockerRegistryImage", &given.docker_registry_image),
    ];
    for (name, image) in named {
        images.set(name, image.as_deref().unwrap_or_default());
    }
    for (place, image) in [
        (&mut images.os, &given.baseos_image),
        (&mut images.os_extensions, &given.baseos_extensions_image),
        (&mut images.os_url, &given.machine_config_oscontent_image),
    ] {
        if let Some(image) = image {
            place.clone_from(image);
        }
    }
    Ok(images)
}

fn write(destination: &Path, file: &BootstrapFile) -> anyhow::Result<()> {
    let path = destination.join(&file.path);
    let failed = || format!("cannot write {}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(failed)?;
    }
    // An existing file keeps its mode, so a secret is never written into one that others may read.
    if file.secret && path.exists() {
        fs::remove_file(&path).with_context(failed)?;
    }
    let mode = if file.secret { 0o600 } else { 0o644 };
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&path);
    opened
        .and_then(|mut opened| opened.write_all(&file.contents))
        .with_context(failed)
}
