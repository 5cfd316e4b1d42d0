//! Completion of names that are in the cluster, and the scripts that call it.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::time::Duration;

use clap::Parser;
use clap_complete::CompletionCandidate;
use clap_complete::env::Shells;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Resource};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::rendered_configs::pool_of;
use serde::de::DeserializeOwned;

use crate::connection::Connection;
use crate::runtime;

/// A completion that takes longer is of no use.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The variable by which a shell's script requests completions.
const VARIABLE: &str = "COMPLETE";
/// The completions are all there are: kubectl must not add file names.
const NO_FILES: &str = ":4";

pub fn pools(current: &OsStr) -> Vec<CompletionCandidate> {
    names::<MachineConfigPool>(current, |_| true)
}

pub fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    names::<Node>(current, |_| true)
}

/// MachineConfigs that users write.
pub fn machine_configs(current: &OsStr) -> Vec<CompletionCandidate> {
    names::<MachineConfig>(current, |config| pool_of(config).is_none())
}

pub fn rendered_configs(current: &OsStr) -> Vec<CompletionCandidate> {
    names::<MachineConfig>(current, |config| pool_of(config).is_some())
}

/// Returns the names of objects that begin with the current word; none where the cluster does not answer, because a
/// completion has no place for an error.
fn names<K>(
    current: &OsStr,
    accept: impl Fn(&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool,
) -> Vec<CompletionCandidate>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let prefix = current.to_string_lossy();
    let listed = runtime::block_on(async {
        let api = Api::<K>::all(connection().client().await?);
        let listed = tokio::time::timeout(TIMEOUT, api.list_metadata(&ListParams::default())).await??;
        Ok(listed.items)
    });
    listed
        .unwrap_or_default()
        .iter()
        .filter(|object| accept(&object.metadata))
        .map(kube::ResourceExt::name_any)
        .filter(|name| name.starts_with(prefix.as_ref()))
        .map(CompletionCandidate::new)
        .collect()
}

/// The options of the command line that is being completed, which choose the cluster.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true, disable_version_flag = true)]
struct PartialCommandLine {
    #[command(flatten)]
    connection: Connection,
}

fn connection() -> Connection {
    let words: Vec<OsString> = std::env::args_os().collect();
    connection_of(&words)
}

fn connection_of(words: &[OsString]) -> Connection {
    const OPTIONS: [&str; 4] = ["--kubeconfig", "--context", "--as", "--request-timeout"];
    let mut chosen: Vec<OsString> = vec!["mco".into()];
    for (index, word) in words.iter().enumerate() {
        let text = word.to_string_lossy();
        let with_value = OPTIONS.iter().any(|option| {
            text.strip_prefix(option)
                .is_some_and(|rest| rest.starts_with('='))
        });
        if with_value {
            chosen.push(word.clone());
        } else if OPTIONS.contains(&text.as_ref())
            && let Some(value) = words.get(index + 1)
        {
            chosen.extend([word.clone(), value.clone()]);
        }
    }
    PartialCommandLine::try_parse_from(chosen).map_or_else(|_| Connection::default(), |line| line.connection)
}

/// Returns the script of a shell, which runs this program for each completion.
pub fn registration(shell: &str) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells
        .completer(shell)
        .ok_or_else(|| std::io::Error::other("no completion for this shell"))?;
    shell.write_registration(VARIABLE, "mco", "mco", "mco", &mut script)?;
    Ok(script)
}

/// Returns what kubectl expects of `kubectl_complete-mco`: one completion per line, then how to use them.
pub fn complete_for_kubectl(words: Vec<OsString>) -> std::io::Result<String> {
    let mut command = super::command();
    let last = words.len();
    let arguments = [OsString::from("mco")].into_iter().chain(words).collect();
    let current_directory = std::env::current_dir().ok();
    let candidates =
        clap_complete::engine::complete(&mut command, arguments, last, current_directory.as_deref())?;
    let lines = candidates.iter().map(|candidate| {
        let value = candidate.get_value().to_string_lossy();
        match candidate.get_help() {
            Some(help) => format!(
                "{value}\t{}\n",
                help.to_string().lines().next().unwrap_or_default()
            ),
            None => format!("{value}\n"),
        }
    });
    Ok(lines.collect::<String>() + NO_FILES + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_the_one_of_the_command_line() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let found = connection_of(&words("mco -- mco wait --context=prod --kubeconfig /k wor"));
        assert_eq!(found.context.as_deref(), Some("prod"));
        assert_eq!(found.kubeconfig.as_deref(), Some(std::path::Path::new("/k")));
        let incomplete = connection_of(&words("mco -- mco wait --context"));
        assert_eq!(incomplete.context, None);
    }

    #[test]
    fn kubectl_completes_commands_and_options() {
        let complete =
            |words: &[&str]| complete_for_kubectl(words.iter().map(OsString::from).collect()).unwrap();
        let commands = complete(&["roll"]);
        assert!(commands.starts_with("rollout\t"), "{commands}");
        assert!(commands.ends_with("\n:4\n"), "{commands}");
        assert!(complete(&["rollout", "h"]).starts_with("history\t"));
        assert!(complete(&["wait", "--tim"]).contains("--timeout"));
    }

    #[test]
    fn every_shell_has_a_script_that_calls_this_program() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let script = String::from_utf8(registration(shell).unwrap()).unwrap();
            assert!(
                script.contains("mco") && script.contains(VARIABLE),
                "{shell}: {script}"
            );
        }
    }
}
