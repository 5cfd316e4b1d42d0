//! The names and options under which the templates of the reference implementation run its programs. The image has a
//! link to this program for each, and arguments are translated to ours.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Where a container has the root of its machine unless `--root-mount` names another directory.
const DEFAULT_ROOT: &str = "/rootfs";
/// Options of the reference implementation's logging. Those without a value are followed by none.
const LOG_OPTIONS: [&str; 6] = [
    "-v",
    "--v",
    "--vmodule",
    "--stderrthreshold",
    "--log_dir",
    "--log-dir",
];
const LOG_FLAGS: [&str; 2] = ["--logtostderr", "--alsologtostderr"];

/// The name under which this program runs, which decides what it prints and does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramName {
    Mco,
    /// `kubectl mco`: kubectl runs `kubectl-mco`.
    KubectlPlugin,
    /// kubectl asks this one for completions of its plugin.
    KubectlCompletion,
}

impl ProgramName {
    pub fn of(program: Option<&OsString>) -> Self {
        let name = program.and_then(|program| Path::new(program).file_name());
        match name.and_then(OsStr::to_str) {
            Some("kubectl-mco") => Self::KubectlPlugin,
            Some("kubectl_complete-mco") => Self::KubectlCompletion,
            _ => Self::Mco,
        }
    }
}

/// Returns the arguments of this program for the name it was started as: `mco` with the same arguments, unless it is the
/// name of one of the reference's programs.
pub fn translate(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let all: Vec<OsString> = arguments.into_iter().collect();
    let Some((program, rest)) = all.split_first() else {
        return all;
    };
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    let translated = match name {
        Some("machine-config-daemon") => daemon(rest),
        Some("apiserver-watcher") => watcher(rest),
        Some("machine-config-osimagestream") => Some(unchanged(rest)),
        Some("machine-config-operator") => Some(prefixed("operator", rest)),
        Some("flock") => Some(prefixed("flock", rest)),
        _ => None,
    };
    match translated {
        Some(translated) => [OsString::from("mco")].into_iter().chain(translated).collect(),
        None => all,
    }
}

fn unchanged(rest: &[OsString]) -> Vec<OsString> {
    rest.to_vec()
}

fn prefixed(command: &str, rest: &[OsString]) -> Vec<OsString> {
    [OsString::from(command)]
        .into_iter()
        .chain(rest.iter().cloned())
        .collect()
}

/// Returns our arguments for a command of machine-config-daemon; `None` for one that it does not have.
fn daemon(rest: &[OsString]) -> Option<Vec<OsString>> {
    let (command, options) = rest.split_first()?;
    let parsed = Options::read(options);
    let mut ours: Vec<OsString> = match command.to_str()? {
        "version" => return Some(vec!["version".into(), "--client".into()]),
        "firstboot-complete-machineconfig" => vec!["daemon".into(), "firstboot".into(), "--retry".into()],
        "start" if parsed.once_from.is_some() => vec!["daemon".into(), "once-from".into()],
        "start" => vec!["daemon".into(), "start".into()],
        _ => return None,
    };
    ours.extend(["--root".into(), parsed.root]);
    ours.extend(parsed.once_from);
    ours.extend(parsed.rest);
    Some(ours)
}

fn watcher(rest: &[OsString]) -> Option<Vec<OsString>> {
    let (command, options) = rest.split_first()?;
    match command.to_str()? {
        "version" => Some(vec!["version".into(), "--client".into()]),
        "run" => {
            let parsed = Options::read(options);
            let mut ours: Vec<OsString> = vec!["apiserver-watcher".into(), "--root".into(), parsed.root];
            ours.extend(parsed.rest);
            Some(ours)
        }
        _ => None,
    }
}

/// The options of a command, apart from those with another name here.
struct Options {
    root: OsString,
    once_from: Option<OsString>,
    rest: Vec<OsString>,
}

impl Options {
    fn read(options: &[OsString]) -> Self {
        let mut read = Self {
            root: DEFAULT_ROOT.into(),
            once_from: None,
            rest: Vec::new(),
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let text = option.to_string_lossy();
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (text.as_ref(), None),
            };
            let mut value_of = |value: Option<OsString>| value.or_else(|| options.next().cloned());
            match name {
                "--root-mount" => read.root = value_of(value).unwrap_or_default(),
                "--once-from" => read.once_from = value_of(value),
                "--metrics-url" => {
                    read.rest.push("--metrics-listen".into());
                    read.rest.extend(value_of(value));
                }
                _ if LOG_OPTIONS.contains(&name) => drop(value_of(value)),
                _ if LOG_FLAGS.contains(&name) => {}
                _ => read.rest.push(option.clone()),
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let given = given.split_whitespace().map(OsString::from);
        let translated: Vec<String> = translate(given)
            .into_iter()
            .map(|argument| argument.into_string().unwrap())
            .collect();
        assert_eq!(translated.join(" "), expected);
    }

    #[test]
    fn the_commands_of_the_references_templates_are_ours() {
        check(
            "machine-config-daemon firstboot-complete-machineconfig",
            "mco daemon firstboot --retry --root /rootfs",
        );
        check(
            "/usr/bin/machine-config-daemon firstboot-complete-machineconfig --persist-nics --v=4",
            "mco daemon firstboot --retry --root /rootfs --persist-nics",
        );
        check(
            "machine-config-daemon firstboot-complete-machineconfig --root-mount=/host \
             --machineconfig-file=/etc/mco/machineconfig-revert.json",
            "mco daemon firstboot --retry --root /host --machineconfig-file=/etc/mco/machineconfig-revert.json",
        );
        check(
            "/usr/bin/machine-config-daemon start --node-name=n --root-mount=/rootfs \
             --kubeconfig=/var/lib/kubelet/kubeconfig --desired-configmap=/etc/machine-config-daemon-desired-config",
            "mco daemon start --root /rootfs --node-name=n --kubeconfig=/var/lib/kubelet/kubeconfig \
             --desired-configmap=/etc/machine-config-daemon-desired-config",
        );
        check(
            "machine-config-daemon start --node-name n -v 2 --root-mount / --metrics-url 127.0.0.1:1",
            "mco daemon start --root / --node-name n --metrics-listen 127.0.0.1:1",
        );
        check(
            "machine-config-daemon start --once-from /a.yaml --skip-reboot",
            "mco daemon once-from --root /rootfs /a.yaml --skip-reboot",
        );
        check("machine-config-daemon version", "mco version --client");
        check(
            "apiserver-watcher run --health-check-url=https://a:6443/readyz",
            "mco apiserver-watcher --root /rootfs --health-check-url=https://a:6443/readyz",
        );
        check(
            "flock --verbose --exclusive --timeout=300 /l apiserver-watcher run",
            "mco flock --verbose --exclusive --timeout=300 /l apiserver-watcher run",
        );
        check(
            "machine-config-operator bootstrap --x",
            "mco operator bootstrap --x",
        );
    }

    #[test]
    fn kubectl_runs_it_as_its_plugin() {
        let of = |name: &str| ProgramName::of(Some(&OsString::from(name)));
        assert_eq!(of("/usr/local/bin/kubectl-mco"), ProgramName::KubectlPlugin);
        assert_eq!(of("kubectl_complete-mco"), ProgramName::KubectlCompletion);
        assert_eq!(of("target/debug/mco"), ProgramName::Mco);
        assert_eq!(ProgramName::of(None), ProgramName::Mco);
    }

    #[test]
    fn every_other_name_is_mco() {
        check("mco plan", "mco plan");
        check("target/debug/mco daemon start", "target/debug/mco daemon start");
        check("machine-config-daemon pivot", "machine-config-daemon pivot");
    }
}
