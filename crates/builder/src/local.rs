//! Runs the Jobs of builds as processes of this host, where there is no kubelet.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use mco_api::MachineOSBuild;
use mco_api::vocabulary::annotations::build as annotation;
use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::{self, config_map, secret};
use mco_core::generators::os_builds::{InputPaths, JobView};
use mco_runtime::{ErrorClass, ReconcileError as _, is_not_found, object_name};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::build::BuildTool;
use crate::build_directory;
use crate::context::{FIELD_MANAGER, label};
use crate::digest::{DigestConfigMap, publish_digest};
use crate::error::Error;

/// How often Jobs are listed. They are few, and builds take minutes.
const POLL: Duration = Duration::from_secs(1);
/// Directories of builds that do not exist any more are looked for once in so many polls.
const POLLS_PER_SWEEP: u32 = 10;
/// The delay after an error that is not the build's: as long as it lasts, each try would prepare the whole build.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_mins(2);
/// As many attempts as a Job has in a cluster.
const ATTEMPTS: i32 = 4;
const LOG_LINES: usize = 5;
const LOG_BYTES: usize = 2048;

/// Where builds run.
#[derive(Debug, Clone)]
pub struct LocalBuilds {
    /// A directory of the builds' own.
    pub directory: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// Returns the tool that builds drive.
    pub tool: fn() -> Option<BuildTool>,
}

type Running = Arc<Mutex<HashMap<String, CancellationToken>>>;

/// Runs the Jobs of builds until `stop` is cancelled. A build that was running when the process ended starts again.
pub async fn run(client: Client, local: LocalBuilds, stop: CancellationToken) -> Result<(), Error> {
    let running = Running::default();
    let api: Api<Job> = Api::namespaced(client.clone(), names::NAMESPACE);
    for poll in (0..POLLS_PER_SWEEP).cycle() {
        if poll == 0 {
            sweep(&client, &local.directory).await;
        }
        let selected = ListParams::default().labels(labels::build::EPHEMERAL);
        match api.list(&selected).await {
            Ok(jobs) => follow(&client, &local, &running, &stop, jobs.items),
            Err(error) if is_not_found(&error) => {}
            Err(error) => warn!("listing the Jobs of builds: {error}"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(POLL) => {}
        }
    }
    for (_, build) in running.lock().drain() {
        build.cancel();
    }
    Ok(())
}

/// Starts Jobs that are not finished, and ends the processes of deleted ones.
fn follow(client: &Client, local: &LocalBuilds, running: &Running, stop: &CancellationToken, jobs: Vec<Job>) {
    let unfinished = jobs.into_iter().filter(|job| {
        let view = JobView::from(job);
        !view.is_deleting && !view.is_complete && !view.has_failed
    });
    let wanted: HashMap<String, Job> = unfinished
        .filter_map(|job| Some((job.metadata.uid.clone()?, job)))
        .collect();
    running.lock().retain(|uid, build| {
        let is_wanted = wanted.contains_key(uid);
        if !is_wanted {
            build.cancel();
        }
        is_wanted
    });
    for (uid, job) in wanted {
        let mut builds = running.lock();
        if builds.contains_key(&uid) {
            continue;
        }
        let cancelled = stop.child_token();
        builds.insert(uid.clone(), cancelled.clone());
        drop(builds);
        let (client, local, running) = (client.clone(), local.clone(), Arc::clone(running));
        tokio::spawn(async move {
            let mut errors = 0;
            while let Err(error) = attempt(&client, &local, &job, &cancelled).await {
                warn!(job = object_name(&job.metadata), "{error}");
                let build = label(&job.metadata, labels::build::MACHINE_OS_BUILD);
                annotate(&client, build, annotation::LOG_TAIL, &error.to_string()).await;
                errors += 1;
                tokio::select! {
                    () = cancelled.cancelled() => break,
                    () = tokio::time::sleep(retry_delay(errors)) => {}
                }
            }
            running.lock().remove(&uid);
        });
    }
}

fn retry_delay(errors: u32) -> Duration {
    let factor = 1_u32.checked_shl(errors.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY)
}

/// Removes the directories of builds that do not exist any more.
async fn sweep(client: &Client, directory: &Path) {
    // Before the builds are listed: the directory of a build is younger than the build.
    let directories = build_directory::entries(directory);
    if directories.is_empty() {
        return;
    }
    let api: Api<MachineOSBuild> = Api::all(client.clone());
    let builds = match api.list_metadata(&ListParams::default()).await {
        Ok(builds) => builds,
        Err(error) if is_not_found(&error) => return,
        Err(error) => {
            warn!("listing builds: {error}");
            return;
        }
    };
    let builds = builds.iter().map(|build| object_name(&build.metadata).to_owned());
    let orphans = build_directory::orphans(directories, &builds.collect());
    let removed = tokio::task::spawn_blocking(move || {
        for orphan in orphans {
            kill_leftovers(&orphan);
            build_directory::remove(&orphan);
        }
    });
    let _ = removed.await;
}

/// Runs one attempt of a Job and writes its result. An error is not the build's, and leaves the Job as it is.
async fn attempt(
    client: &Client,
    local: &LocalBuilds,
    job: &Job,
    cancelled: &CancellationToken,
) -> Result<(), Error> {
    let build = label(&job.metadata, labels::build::MACHINE_OS_BUILD).to_owned();
    let failed = JobView::from(job).failed;
    if (local.tool)().is_none() {
        let why = crate::build::BuildFailure::NoTool.to_string();
        annotate(client, &build, annotation::FAILURE, &why).await;
        return finish(
            client,
            job,
            &json!({"failed": ATTEMPTS}),
            Some(("Failed", why.as_str())),
        )
        .await;
    }
    write_status(
        client,
        job,
        &json!({"active": 1, "ready": 1, "failed": failed, "startTime": now()}),
    )
    .await?;
    let directory = local.directory.join(&build);
    kill_leftovers(&directory);
    let _ = tokio::fs::remove_dir_all(&directory).await;
    info!(build, attempt = failed + 1, "building in {}", directory.display());
    let result = build_in(client, local, job, &directory, cancelled).await;
    let left = directory.clone();
    // Before the result is written: nothing removes the inputs of a Job that has ended.
    let _ = tokio::task::spawn_blocking(move || build_directory::clear(&left)).await;
    let result = match result {
        // The next attempt would not do better, so that it counts.
        Err(error) if error.class() == ErrorClass::Invalid => {
            warn!(build, "{error}");
            annotate(client, &build, annotation::LOG_TAIL, &error.to_string()).await;
            BuildResult::Failed
        }
        result => result?,
    };
    if cancelled.is_cancelled() || result == BuildResult::Killed {
        // It starts again, and a process that was killed is no failure of the build.
        return Ok(());
    }
    if result == BuildResult::Succeeded {
        return finish(
            client,
            job,
            &json!({"succeeded": 1, "failed": failed}),
            Some(("Complete", "")),
        )
        .await;
    }
    let failed = failed + 1;
    let given_up = (failed >= ATTEMPTS).then_some(("Failed", "the build failed; see its log"));
    finish(client, job, &json!({"failed": failed}), given_up).await
}

/// Builds and pushes the image, and publishes its digest.
async fn build_in(
    client: &Client,
    local: &LocalBuilds,
    job: &Job,
    directory: &Path,
    cancelled: &CancellationToken,
) -> Result<BuildResult, Error> {
    let build = label(&job.metadata, labels::build::MACHINE_OS_BUILD);
    let variables = variables(job);
    prepare(client, directory, build, job).await?;
    let result = execute(client, local, directory, build, &variables, cancelled).await?;
    if result != BuildResult::Succeeded {
        return Ok(result);
    }
    let paths = InputPaths::below(&directory.display().to_string());
    let digest = tokio::fs::read_to_string(Path::new(&paths.done).join("digestfile")).await;
    let digest = digest.map_err(|error| Error::Invalid(format!("cannot read the digest: {error}")))?;
    let value = |key: &str| variables.get(key).map_or("", String::as_str);
    let published = DigestConfigMap::new(
        names::NAMESPACE,
        value("DIGEST_CONFIGMAP_NAME"),
        value("DIGEST_CONFIGMAP_LABELS"),
        &digest,
    )?;
    publish_digest(client.clone(), &published).await?;
    Ok(result)
}

/// Writes the volumes of the Job's pod as directories.
async fn prepare(client: &Client, directory: &Path, build: &str, job: &Job) -> Result<(), Error> {
    let paths = InputPaths::below(&directory.display().to_string());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), names::NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::NAMESPACE);
    let pool = label(&job.metadata, labels::build::POOL);
    for (name, path) in [
        (names::build::machine_config(build), &paths.machine_config),
        (names::build::containerfile(build), &paths.containerfile),
        (names::build::trust_bundle(build), &paths.trust_bundle),
        (
            config_map::MERGED_TRUSTED_IMAGE_REGISTRY_CA.to_owned(),
            &paths.registry_certificates,
        ),
        (config_map::YUM_REPOS.to_owned(), &paths.yum_repos),
    ] {
        let found = maps
            .get_opt(&name)
            .await
            .map_err(Error::api(format!("reading ConfigMap {name}")))?;
        let Some(found) = found else { continue };
        write_all(path, found.data, found.binary_data).await?;
    }
    for (name, path) in [
        (secret::entitlement_of(pool), &paths.entitlement),
        (secret::RPM_KEYS.to_owned(), &paths.rpm_keys),
    ] {
        let found = secrets
            .get_opt(&name)
            .await
            .map_err(Error::api(format!("reading Secret {name}")))?;
        let Some(found) = found else { continue };
        write_all(path, None, found.data).await?;
    }
    for (name, path) in [
        (names::build::base_secret(build), &paths.base_credentials),
        (names::build::final_secret(build), &paths.push_credentials),
    ] {
        let found = secrets
            .get(&name)
            .await
            .map_err(Error::api(format!("reading Secret {name}")))?;
        let credentials = found.data.and_then(|mut data| data.remove(".dockerconfigjson"));
        let files = BTreeMap::from([("config.json".to_owned(), credentials.unwrap_or_default())]);
        write_all(path, None, Some(files)).await?;
    }
    for (name, key, path) in [
        (names::build::policy(build), "policy.json", &paths.policy),
        (
            names::build::registries(build),
            "registries.conf",
            &paths.registries,
        ),
    ] {
        let found = maps
            .get_opt(&name)
            .await
            .map_err(Error::api(format!("reading ConfigMap {name}")))?;
        if let Some(contents) = found.and_then(|found| found.data?.remove(key)) {
            mco_http::write_private(Path::new(path), contents.as_bytes()).map_err(unwritable)?;
        }
    }
    Ok(())
}

async fn write_all(
    directory: &str,
    data: Option<BTreeMap<String, String>>,
    binary: Option<BTreeMap<String, ByteString>>,
) -> Result<(), Error> {
    tokio::fs::create_dir_all(directory).await.map_err(unwritable)?;
    let texts = data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, text)| (key, text.into_bytes()));
    let bytes = binary
        .unwrap_or_default()
        .into_iter()
        .map(|(key, bytes)| (key, bytes.0));
    for (key, contents) in texts.chain(bytes) {
        // Keys of ConfigMaps and Secrets have no slashes.
        mco_http::write_private(&Path::new(directory).join(key), &contents).map_err(unwritable)?;
    }
    Ok(())
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("cannot write the inputs of a build: {error}"))
}

fn variables(job: &Job) -> BTreeMap<String, String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.map(|pod| pod.containers.as_slice()).unwrap_or_default();
    let variables = containers.first().and_then(|container| container.env.as_ref());
    let pairs = variables.into_iter().flatten();
    pairs
        .filter_map(|one| Some((one.name.clone(), one.value.clone()?)))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildResult {
    Succeeded,
    Failed,
    /// By a signal.
    Killed,
}

/// Ends processes of an earlier attempt, which outlive a killed `mco up`.
fn kill_leftovers(directory: &Path) {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let pid = entry.file_name().to_string_lossy().parse().ok();
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if is_of_build(&arguments, directory) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Whether a process is the build in this directory, or the tool that it drives. Others may have the directory in their
/// arguments as well, such as an editor of its log.
fn is_of_build(arguments: &[u8], directory: &Path) -> bool {
    let storage = directory.join("storage");
    let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    arguments.windows(2).any(|pair| {
        let is = |option: &[u8], path: &Path| pair == [option, path.as_os_str().as_encoded_bytes()];
        is(b"--inputs", directory) || is(b"--root", &storage)
    })
}

/// Runs `mco builder build` until it ends or is cancelled. Its output is the log of the build.
async fn execute(
    client: &Client,
    local: &LocalBuilds,
    directory: &Path,
    build: &str,
    variables: &BTreeMap<String, String>,
    cancelled: &CancellationToken,
) -> Result<BuildResult, Error> {
    let log = build_directory::log(directory);
    let file = std::fs::File::create(&log).map_err(unwritable)?;
    let errors = file.try_clone().map_err(unwritable)?;
    let mut command = Command::new(&local.program);
    command
        .args(["builder", "build", "--inputs"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        // Killed together with the tools that it starts.
        .process_group(0)
        .kill_on_drop(true);
    let passed = variables.iter().filter(|(key, _)| *key != "HOME");
    command.envs(passed);
    let mut child = command
        .spawn()
        .map_err(|error| Error::Invalid(format!("cannot start {}: {error}", local.program.display())))?;
    let mut shown = String::new();
    loop {
        tokio::select! {
            () = cancelled.cancelled() => {
                kill(&mut child).await;
                return Ok(BuildResult::Killed);
            }
            ended = child.wait() => {
                show_log(client, build, &log, &mut shown).await;
                return Ok(match ended {
                    Ok(status) if status.success() => BuildResult::Succeeded,
                    Ok(status) if status.code().is_none() => BuildResult::Killed,
                    _ => BuildResult::Failed,
                });
            }
            () = tokio::time::sleep(POLL) => show_log(client, build, &log, &mut shown).await,
        }
    }
}

async fn kill(child: &mut Child) {
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait().await;
}

async fn show_log(client: &Client, build: &str, log: &Path, shown: &mut String) {
    let text = tokio::fs::read(log).await.unwrap_or_default();
    let tail = tail(&String::from_utf8_lossy(&text));
    if tail != *shown {
        annotate(client, build, annotation::LOG_TAIL, &tail).await;
        *shown = tail;
    }
}

/// Returns the last lines of a log.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    let start = last.len().saturating_sub(LOG_BYTES);
    let start = (start..last.len())
        .find(|index| last.is_char_boundary(*index))
        .unwrap_or(last.len());
    last[start..].to_owned()
}

async fn annotate(client: &Client, build: &str, key: &str, value: &str) {
    let api: Api<MachineOSBuild> = Api::all(client.clone());
    let patch = json!({"metadata": {"annotations": {key: value}}});
    if let Err(error) = mco_runtime::patch::merge(&api, build, FIELD_MANAGER, &patch).await {
        warn!(build, "cannot record the log of the build: {error}");
    }
}

fn now() -> Time {
    Time(Timestamp::now())
}

async fn finish(
    client: &Client,
    job: &Job,
    counters: &Value,
    condition: Option<(&str, &str)>,
) -> Result<(), Error> {
    let mut status = counters.clone();
    status["active"] = Value::Null;
    status["ready"] = Value::Null;
    if let Some((type_, message)) = condition {
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "True", "message": message,
                "lastTransitionTime": now(), "lastProbeTime": now(),
            })
        };
        let before = if type_ == "Complete" {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        };
        status["conditions"] = json!([condition(before), condition(type_)]);
        if type_ == "Complete" {
            status["completionTime"] = json!(now());
        }
    }
    write_status(client, job, &status).await
}

async fn write_status(client: &Client, job: &Job, status: &Value) -> Result<(), Error> {
    let api: Api<Job> = Api::namespaced(client.clone(), names::NAMESPACE);
    let name = object_name(&job.metadata);
    // Of this Job and of no successor of the same name.
    let patch = json!({"metadata": {"uid": job.metadata.uid}, "status": status});
    mco_runtime::patch::merge_status(&api, name, FIELD_MANAGER, &patch)
        .await
        .map_err(Error::api(format!("writing the status of Job {name}")))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_processes_of_a_build_are_its_leftovers() {
        let directory = Path::new("/data/builds/worker-1");
        for (arguments, expected) in [
            ("mco\0builder\0build\0--inputs\0/data/builds/worker-1\0", true),
            ("buildah\0--root\0/data/builds/worker-1/storage\0bud\0", true),
            ("mco\0builder\0build\0--inputs\0/data/builds/worker-12\0", false),
            ("tail\0-f\0/data/builds/worker-1/log\0", false),
            ("", false),
        ] {
            assert_eq!(
                is_of_build(arguments.as_bytes(), directory),
                expected,
                "{arguments}"
            );
        }
    }

    #[test]
    fn the_delay_after_errors_grows_up_to_a_limit() {
        assert_eq!(retry_delay(1), FIRST_RETRY);
        assert_eq!(retry_delay(3), 4 * FIRST_RETRY);
        assert_eq!(retry_delay(90), LONGEST_RETRY);
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        assert_eq!(tail("1\n2\n\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
        assert_eq!(tail(&"ä".repeat(4000)).len(), LOG_BYTES);
        assert_eq!(tail(""), "");
    }
}
