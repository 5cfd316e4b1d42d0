//! Builds as processes of this host, with a script in the place of the program that drives buildah.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kube::api::DeleteParams;
use mco_api::MachineOSConfig;
use mco_builder::build::BuildTool;
use mco_builder::local::{self, LocalBuilds};
use mco_core::generators::os_builds::BuildState;
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Cluster, digest, eventually};

const NO_REGISTRY: &str = "127.0.0.1:19";

struct LocalHost {
    cluster: Cluster,
    directory: tempfile::TempDir,
    _stop: DropGuard,
}

impl LocalHost {
    /// Runs builds with a script, whose argument `$4` is the directory of the build.
    async fn start(script: &str) -> Self {
        let cluster = Cluster::start(NO_REGISTRY).await;
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let script = format!("#!/bin/sh\nset -e\ntest -s $4/final-image-push-creds/config.json\n{script}\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(directory.path().join("builds/worker-of-a-deleted-config/storage")).unwrap();
        let builds = LocalBuilds {
            directory: directory.path().join("builds"),
            program,
            tool: || Some(BuildTool::Buildah),
        };
        let stop = CancellationToken::new();
        tokio::spawn(local::run(cluster.client.clone(), builds, stop.clone()));
        Self {
            cluster,
            directory,
            _stop: stop.drop_guard(),
        }
    }

    fn builds(&self) -> Vec<PathBuf> {
        entries(&self.directory.path().join("builds"))
    }

    /// Waits for the end of the pool's build, and returns the log of its last attempt.
    async fn log(&self, state: BuildState) -> String {
        self.cluster.opt_in(json!({})).await;
        let build = self.cluster.started("").await;
        let ended = self.cluster.state(&build, state).await;
        let directory = self.directory.path().join("builds").join(&build);
        assert_eq!(entries(&directory), [directory.join("log")], "only its log stays");
        eventually("the directory of a deleted build is removed", async || {
            (self.builds() == [directory.clone()]).then_some(())
        })
        .await;
        ended.metadata.annotations.unwrap()["mco.dev/build-log"].clone()
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_left_its_credentials_and_images_behind() {
    let script = format!(
        "mkdir -p $4/storage $4/done $4/volume-1\necho key > $4/volume-1/entitlement.pem\necho built\n\
         echo {} > $4/done/digestfile",
        digest(4)
    );
    let host = LocalHost::start(&script).await;
    assert_eq!(host.log(BuildState::Succeeded).await, "built");
    eventually("the image is the pool's", async || {
        host.cluster.image().await.ends_with(&digest(4)).then_some(())
    })
    .await;
    let configs = host.cluster.all::<MachineOSConfig>();
    configs
        .delete("worker", &DeleteParams::background())
        .await
        .unwrap();
    eventually("the log is removed with its build", async || {
        host.builds().is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_left_its_credentials_and_images_behind() {
    let host = LocalHost::start("mkdir -p $4/storage/vfs\necho broken\nexit 1").await;
    assert_eq!(host.log(BuildState::Failed).await, "broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_a_digest_was_repeated_for_ever() {
    let host = LocalHost::start("echo built").await;
    let log = host.log(BuildState::Failed).await;
    assert!(log.starts_with("cannot read the digest"), "{log}");
}
