//! Rolls back a new OS image on which the daemon itself cannot run, for example because the kubelet does not start.
//!
//! A timer of the machine's own systemd fires if the change is still not proven long after the boot: it requests the
//! rollback as the daemon does, and boots the previous deployment, whose daemon rolls back the config. The files are part
//! of the change, so they are removed with it; see [`crate::boot_proof`].

use mco_host::os::{OsBackend, OsChange};
use mco_host::systemd::UNIT_DIRECTORY;
use mco_host::{Attributes, FsError, Machine, Root, RootedPath};

use crate::paths;
use crate::plan::{NewContents, PlanAction, PlanStep};

const SERVICE: &str = "machine-config-daemon-rollback.service";
const TIMER: &str = "machine-config-daemon-rollback.timer";
const SCRIPT: &str = "/etc/machine-config-daemon/roll-back-unhealthy";
/// Twice the daemon's own deadline, so that it acts only where the daemon cannot.
const AFTER_BOOT: &str = "30min";

/// Exits without a rollback unless the change waits for its proof, another boot has happened, and the staged image is the
/// booted one. A lost image is none of its business.
const ROLL_BACK: &str = r#"#!/bin/sh
# Written by the machine-config-daemon with a new OS image; removed when the image is proven.
set -eu
root=
journal=$root/etc/machine-config-daemon/transaction.json
request=$root/var/lib/machine-config-daemon/rollback.json
[ -e "$journal" ] || exit 0
grep -q '"phase":"awaitingBoot"' "$journal" || exit 0
boot=$(cat "$root/proc/sys/kernel/random/boot_id")
if grep -qF "\"boot\":\"$boot\"" "$journal"; then exit 0; fi
id=$(sed -n 's/^{"format":[0-9]*,"id":"\([0-9a-f]*\)".*/\1/p' "$journal")
digest=$(sed -n 's/.*"deployment":{[^}]*"digest":"\([^"]*\)".*/\1/p' "$journal")
[ -n "$id" ] && [ -n "$digest" ] || exit 0
if command -v rpm-ostree >/dev/null; then tool=rpm-ostree; else tool=bootc; fi
$tool status --json --booted | grep -qF "$digest" || exit 0
mkdir -p "${request%/*}"
because="the daemon did not confirm the new OS within 30 minutes after its boot"
printf '{"id":"%s","boot":"%s","because":"%s"}' "$id" "$boot" "$because" >"$request.new"
sync "$request.new"
mv "$request.new" "$request"
$tool rollback
systemctl reboot
"#;

/// Returns whether a change can be rolled back this way: it boots another image.
pub fn is_needed(backend: OsBackend, change: Option<&OsChange>) -> bool {
    let image = change.is_some_and(|change| change.image.is_some());
    image && matches!(backend, OsBackend::RpmOstree | OsBackend::Bootc)
}

/// Returns the steps that arm the timer for the next boot.
pub fn preparation(root: &Root) -> Result<Vec<PlanStep<'static>>, FsError> {
    let service = format!(
        "[Unit]\nDescription=Machine Config Daemon: roll back an OS image that is not confirmed\n\
         ConditionPathExists=/run/ostree-booted\nConditionPathExists={}\n\n[Service]\nType=oneshot\n\
         ExecStart=/bin/sh {SCRIPT}\n",
        paths::JOURNAL
    );
    let timer = format!(
        "[Unit]\nDescription=Machine Config Daemon: deadline of a new OS image\n\n[Timer]\nOnBootSec={AFTER_BOOT}\n\
         AccuracySec=1min\nUnit={SERVICE}\n\n[Install]\nWantedBy=timers.target\n"
    );
    let mut steps = vec![
        write(SCRIPT, ROLL_BACK)?,
        write(&unit(SERVICE), &service)?,
        write(&unit(TIMER), &timer)?,
        PlanStep {
            path: RootedPath::new(&link())?,
            action: PlanAction::Link { target: unit(TIMER) },
        },
    ];
    let wants = RootedPath::new(&link())?.parent();
    for missing in wants
        .iter()
        .map(|wants| root.missing_directories(wants))
        .collect::<Result<Vec<_>, _>>()?
    {
        let directories = missing.into_iter().map(|path| PlanStep {
            path,
            action: PlanAction::CreateDirectory {
                attributes: Attributes::root(0o755),
            },
        });
        steps.splice(0..0, directories);
    }
    Ok(steps)
}

/// Removes the timer of a change that is proven. One that still fires finds no change.
pub fn disarm(machine: &Machine) -> Result<(), FsError> {
    for path in [link(), unit(TIMER), unit(SERVICE), SCRIPT.to_owned()] {
        machine.root.remove_file(&RootedPath::new(&path)?)?;
    }
    Ok(())
}

fn unit(name: &str) -> String {
    format!("{UNIT_DIRECTORY}/{name}")
}

fn link() -> String {
    format!("{UNIT_DIRECTORY}/timers.target.wants/{TIMER}")
}

fn write(path: &str, text: &str) -> Result<PlanStep<'static>, FsError> {
    Ok(PlanStep {
        path: RootedPath::new(path)?,
        action: PlanAction::Write {
            contents: NewContents::Bytes(text.as_bytes().to_vec()),
            attributes: Attributes::root(0o644),
        },
    })
}

/// Returns the script for a machine in a directory, for tests.
pub fn script_for(root: &std::path::Path) -> String {
    ROLL_BACK.replace("\nroot=\n", &format!("\nroot={}\n", root.display()))
}
