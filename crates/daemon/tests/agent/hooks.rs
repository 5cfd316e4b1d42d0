//! Hooks before and after a change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use mco_api::vocabulary::annotations::{HOOKS, node as annotation};
use mco_core::rollout::hooks;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use mco_host::{HostPrograms, ProgramError, ProgramRequest, ProgramResult, Programs};

use crate::support::{config, file, files};
use crate::world::World;

/// Runs the programs of a directory machine as they are.
#[derive(Debug)]
pub struct OfDirectory(pub PathBuf);

impl Programs for OfDirectory {
    fn run(&self, request: &ProgramRequest<'_>) -> Result<ProgramResult, ProgramError> {
        let program = self.0.join(request.program.trim_start_matches('/'));
        HostPrograms::default().run(&ProgramRequest {
            program: program.to_str().unwrap(),
            ..*request
        })
    }
}

fn rendered(number: u32) -> NodeConfig {
    config(
        &format!("rendered-worker-{number}"),
        &files(&[file("/etc/a", &format!("{number}\n"))]),
    )
}

fn hook(world: &World, phase: &str, script: &str) {
    let path = format!("/etc/mco/hooks.d/{phase}/10-test");
    world.write(&path, &format!("#!/bin/sh\n{script}\n"));
    // A user's umask may leave the directories writable by the group.
    let directories = [
        "/etc",
        "/etc/mco",
        "/etc/mco/hooks.d",
        path.trim_end_matches("/10-test"),
    ];
    for path in directories.into_iter().chain([path.as_str()]) {
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_before_the_reboot_undoes_the_change() {
    let first = rendered(1);
    let mut world = World::installed(&first).await;
    world.runs_programs = true;
    world.start_daemon();
    world.until_done(&first).await;
    let boot = world.boot();
    let mut number = 1;
    for (phase, outcome) in [
        ("before-apply", "Nothing was changed"),
        ("after-apply", "The change was undone"),
        ("before-reboot", "The change was undone"),
    ] {
        number += 1;
        let next = rendered(number);
        hook(&world, phase, "echo not now; exit 3");
        world.publish_and_target(&next).await;
        let reason = format!("hook {phase}/10-test failed with exit code 3: not now. {outcome}");
        world.until_failing("Degraded", &reason).await;
        // The next attempt may already be under way.
        world
            .eventually("the change is undone", async |world: &World| {
                world.read("/etc/a") == "1\n" && !world.path(paths::JOURNAL).exists()
            })
            .await;
        assert_eq!(world.boot(), boot, "{phase}");
        let reported = hooks::parse(&world.annotations().await[HOOKS]);
        assert!(
            reported
                .iter()
                .any(|result| reason.starts_with(&result.to_string()))
        );
        hook(&world, phase, "exit 0");
    }
    world.until_done(&rendered(number)).await;
    assert_eq!(world.read("/etc/a"), format!("{number}\n"));
    let now = world.annotations().await;
    assert!(!now[HOOKS].contains("failure"), "{}", now[HOOKS]);
    assert_eq!(now[annotation::REASON], "");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_after_the_reboot_is_only_reported() {
    let first = rendered(1);
    let mut world = World::installed(&first).await;
    world.runs_programs = true;
    world.start_daemon();
    world.until_done(&first).await;
    hook(
        &world,
        "after-reboot",
        "echo $MCO_CURRENT_CONFIG $MCO_DESIRED_CONFIG; exit 1",
    );
    let second = rendered(2);
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    let failed = "hook after-reboot/10-test failed with exit code 1: rendered-worker-1 rendered-worker-2";
    assert_eq!(world.event_texts("HookFailed").await, [failed]);
    world.stop_daemon().await;
}
