//! Which units start the kubelet and the container runtime, and which of their settings decide how.

/// The directories that systemd reads units and drop-ins from. A file of one directory replaces that of the same name in
/// all directories after it.
const UNIT_DIRECTORIES: [&str; 13] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    UNIT_DIRECTORY,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];
pub(super) const UNIT_DIRECTORY: &str = "/etc/systemd/system";

/// Links of every distribution to directories in which units are.
const ALIASES: [(&str, &str); 1] = [("/var/run/", "/run/")];

/// Units of the kubelet and of container runtimes, also of distributions that have both in one binary.
const GUARDED_UNITS: [&str; 14] = [
    "kubelet.service",
    "containerd.service",
    "crio.service",
    "cri-o.service",
    "cri-docker.service",
    "docker.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.microk8s.daemon-containerd.service",
    "k0sworker.service",
    "k0scontroller.service",
];

/// The drop-in with which kubeadm's packages name the kubelet's command and credentials. A file of this name in another
/// directory replaces it, whatever it contains.
const KUBEADM_DROP_IN: &str = "10-kubeadm.conf";

/// Files with the kubelet's arguments, which the drop-in of kubeadm's packages reads.
const ENVIRONMENT_FILES: [&str; 2] = ["/etc/default/kubelet", "/etc/sysconfig/kubelet"];

/// Settings that decide what is started, from which root, or whether at all.
const START_KEYS: [&str; 6] = [
    "ExecStart",
    "ExecStartPre",
    "ExecCondition",
    "EnvironmentFile",
    "RootDirectory",
    "RootImage",
];
const ENVIRONMENT_KEYS: [&str; 3] = ["Environment", "UnsetEnvironment", "PassEnvironment"];
/// In an argument, or in the variable with which kubeadm's `ExecStart` names the kubelet's credentials.
const CREDENTIAL_ARGUMENT: &str = "kubeconfig";

/// What systemd takes off both ends of a line.
const WHITESPACE: [char; 4] = [' ', '\t', '\n', '\r'];
const BYTE_ORDER_MARK: char = '\u{feff}';

/// What a path is to a guarded unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedUnitPath<'p> {
    /// The unit itself.
    Unit,
    /// A drop-in of it, of all services, or of a prefix with a dash.
    DropIn { name: &'p str },
    /// A directory of drop-ins.
    Directory,
}

/// Whether a unit's enablement is guarded.
pub fn is_guarded_unit(name: &str) -> bool {
    GUARDED_UNITS.contains(&name)
}

/// Returns what a path is to a guarded unit; `None` if it is not read for one.
pub fn guarded_unit_path(path: &str) -> Option<GuardedUnitPath<'_>> {
    let (_, rest) = split(path)?;
    let (first, name) = match rest.split_once('/') {
        Some((first, name)) => (first, Some(name)),
        None => (rest, None),
    };
    let Some(of) = first.strip_suffix(".d") else {
        return is_guarded_unit(first).then_some(GuardedUnitPath::Unit);
    };
    let is_read = of == "service"
        || is_guarded_unit(of)
        || of.strip_suffix("-.service").is_some_and(is_prefix_of_guarded);
    is_read.then_some(
        name.map_or(GuardedUnitPath::Directory, |name| GuardedUnitPath::DropIn {
            name,
        }),
    )
}

/// Whether a guarded unit's name begins with these words and a dash.
fn is_prefix_of_guarded(prefix: &str) -> bool {
    GUARDED_UNITS.iter().any(|unit| {
        unit.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('-'))
    })
}

/// Returns the paths of the same name that a file at this path replaces for systemd.
pub fn replaced_by(path: &str) -> Vec<String> {
    let Some((directory, rest)) = split(path) else {
        return Vec::new();
    };
    let after = UNIT_DIRECTORIES.iter().skip(directory + 1);
    after.map(|directory| format!("{directory}/{rest}")).collect()
}

/// Splits a path into the number of its unit directory and the rest.
fn split(path: &str) -> Option<(usize, &str)> {
    let (alias, path) = ALIASES
        .iter()
        .find_map(|(alias, real)| Some((real, path.strip_prefix(alias)?)))
        .map_or(("", path), |(real, rest)| (*real, rest));
    UNIT_DIRECTORIES
        .iter()
        .enumerate()
        .find_map(|(number, directory)| {
            let directory = directory.strip_prefix(alias)?;
            Some((number, path.strip_prefix(directory)?.strip_prefix('/')?))
        })
}

/// Whether a drop-in of this name replaces one that names the kubelet's command, whatever it contains.
pub(super) fn is_reserved(path: GuardedUnitPath<'_>) -> bool {
    matches!(path, GuardedUnitPath::DropIn { name } if name == KUBEADM_DROP_IN)
}

/// Whether a path is a file with the kubelet's arguments.
pub fn is_environment_file(path: &str) -> bool {
    ENVIRONMENT_FILES.contains(&path)
}

/// Whether a file with the kubelet's arguments names its credentials.
pub fn names_credentials(text: &str) -> bool {
    unit_lines(text).iter().any(|line| has_credential_argument(line))
}

/// Whether the text of a unit or drop-in changes how its service is started.
pub fn sets_start(text: &str) -> bool {
    unit_lines(text).iter().any(|line| {
        let Some((key, value)) = line.split_once('=') else {
            return false;
        };
        let key = key.trim_matches(WHITESPACE);
        // An empty list drops the variables of all drop-ins before this one.
        let is_reset = key == "Environment" && value.trim_matches(WHITESPACE).is_empty();
        START_KEYS.contains(&key)
            || key.starts_with("Condition")
            || key.starts_with("Assert")
            || is_reset
            || (ENVIRONMENT_KEYS.contains(&key) && has_credential_argument(value))
    })
}

/// Whether a value may name the kubelet's credentials. Quotes may be anywhere in it, and escapes may stand for any
/// character.
fn has_credential_argument(value: &str) -> bool {
    let is_escape = |next: char| matches!(next, 'x' | 'u' | 'U' | '0'..='7');
    if value.split('\\').skip(1).any(|rest| rest.starts_with(is_escape)) {
        return true;
    }
    let plain: String = value
        .chars()
        .filter(|character| !"\"'\\".contains(*character))
        .collect();
    plain.to_ascii_lowercase().contains(CREDENTIAL_ARGUMENT)
}

/// Returns the lines of a unit as systemd reads them: an odd backslash at the end, with nothing after it, continues a
/// line, and comments in between do not end it.
fn unit_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun: Option<String> = None;
    for line in physical_lines(text) {
        if line.trim_start_matches(WHITESPACE).starts_with(['#', ';']) {
            continue;
        }
        let mut all = begun.take().unwrap_or_default();
        all.push_str(line.trim_start_matches(BYTE_ORDER_MARK));
        let is_continued = all
            .chars()
            .rev()
            .take_while(|character| *character == '\\')
            .count()
            % 2
            == 1;
        if is_continued {
            all.pop();
            all.push(' ');
            begun = Some(all);
        } else {
            lines.push(all);
        }
    }
    lines.extend(begun);
    lines
}

/// Splits a text at line breaks as systemd does: at `\n`, `\r`, `\n\r`, `\r\n` and NUL.
fn physical_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\n', '\r', '\0']) {
        lines.push(&rest[..at]);
        let breaks = match &rest.as_bytes()[at..] {
            [b'\r', b'\n', b'\0', ..] | [b'\n', b'\r', b'\0', ..] => 3,
            [b'\r', b'\n', ..] | [b'\n', b'\r', ..] | [b'\n' | b'\r', b'\0', ..] => 2,
            _ => 1,
        };
        rest = &rest[at + breaks..];
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_or_a_continuation_before_the_equals_sign_does_not_pass_the_guard() {
        for text in [
            "[Service]\nExecStart\t=/bin/a\n",
            "[Service]\n \tExecStart   = /bin/a",
            "[Service]\r\nExecStart \t =\r\n",
            "[Service]\nExecStart \\\n=/bin/a\n",
            "[Service]\nExecStart \\\n# in between\n; and again\n = /bin/a\n",
            "[Service]\nExecStart \\\r\n=/bin/a\r\n",
            "[Service]\nRootDirectory\t=/a\n",
            "[Service]\nRootImage=/a\n",
            "[Service]\nExecStartPre=/bin/false\n",
            "[Service]\nExecCondition=/bin/false\n",
            "[Unit]\nConditionPathExists=/a\n",
            "[Unit]\nAssertPathExists = /a\n",
            "[Service]\nEnvironment=A=B \\\n  \"KUBELET_KUBECONFIG_ARGS=--kubeconfig=/a\"\n",
        ] {
            assert!(sets_start(text), "{text:?}");
        }
        for text in [
            "",
            "[Service]\n# ExecStart=/bin/a\n",
            "[Service]\n;ExecStart=/bin/a\n",
            "[Service]\nEnvironment=A=B \\\nExecStart=/bin/a\n",
            "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/a --config-dir=/b\"\n",
            "[Service]\nEnvironment=HTTPS_PROXY=http://proxy:3128\n",
            "[Service]\nExecStartPost=-/bin/a\nLimitNOFILE=1\n",
            "[Service]\nX-ExecStart=/bin/a\n",
        ] {
            assert!(!sets_start(text), "{text:?}");
        }
    }

    #[test]
    fn a_backslash_that_systemd_does_not_take_for_a_continuation_hides_no_setting() {
        for text in [
            // A space after it, or another one before it.
            "[Service]\nEnvironment=A=B \\ \nExecStart=/bin/a\n",
            "[Service]\nEnvironment=A=B \\\t\nExecStart=/bin/a\n",
            "[Service]\nEnvironment=A=B \\\\\nExecStart=/bin/a\n",
            // Line breaks that are none for other programs.
            "[Service]\nEnvironment=A=B\rExecStart=/bin/a\n",
            "[Service]\nEnvironment=A=B\0ExecStart=/bin/a\n",
            "[Service]\nEnvironment=A=B \\\n\rC=D\nExecStart=/bin/a\n",
            "[Service]\n\u{feff}ExecStart=/bin/a\n",
            // Not a comment, because it begins with a character that is white space for other programs only.
            "[Service]\nEnvironment=A=B \\\n\u{a0}#\nExecStart=/bin/a\n",
        ] {
            assert!(sets_start(text), "{text:?}");
        }
        assert!(!sets_start(
            "[Service]\nEnvironment=A=B \\\\\\\nExecStart=/bin/a\n"
        ));
    }

    #[test]
    fn credentials_in_the_environment_do_not_pass_the_guard() {
        for text in [
            "[Service]\nEnvironmentFile=/etc/mine.env\n",
            "[Service]\nEnvironmentFile=\n",
            "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--kubeconfig=/a\n",
            "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2 --bootstrap-kubeconfig=/a\"\n",
            "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--kube\"\"config=/a\n",
            "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--kube\\x63onfig=/a\n",
            "[Service]\nUnsetEnvironment=KUBELET_KUBECONFIG_ARGS\n",
            "[Service]\nEnvironment=\n",
        ] {
            assert!(sets_start(text), "{text:?}");
        }
        for (text, names) in [
            ("KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1\n", false),
            ("# --kubeconfig=/a\n", false),
            ("KUBELET_EXTRA_ARGS=--kubeconfig=/a\n", true),
            ("KUBELET_EXTRA_ARGS=--v=2 \\\n --kubeconfig /a\n", true),
        ] {
            assert_eq!(names_credentials(text), names, "{text:?}");
        }
    }

    #[test]
    fn a_drop_in_of_all_services_or_of_a_prefix_does_not_pass_the_guard() {
        for (path, guarded) in [
            ("/etc/systemd/system/service.d/a.conf", true),
            ("/etc/systemd/system/k3s-.service.d/a.conf", true),
            ("/run/systemd/system/rke2-.service.d/a.conf", true),
            ("/etc/systemd/system/chrony-.service.d/a.conf", false),
            ("/etc/systemd/system/k3-.service.d/a.conf", false),
            ("/etc/systemd/system/kubelet.service.d/a.conf", true),
            ("/etc/systemd/system/kubelet.service", true),
            ("/etc/systemd/system/service.d.conf", false),
            ("/etc/systemd/systems/kubelet.service", false),
            ("/etc/systemd/user/kubelet.service.d/a.conf", false),
        ] {
            assert_eq!(guarded_unit_path(path).is_some(), guarded, "{path}");
        }
    }

    #[test]
    fn every_directory_that_systemd_reads_is_guarded() {
        for directory in [
            "/etc/systemd/system.control",
            "/etc/systemd/system.attached",
            "/run/systemd/system.control",
            "/run/systemd/system.attached",
            "/run/systemd/transient",
            "/run/systemd/generator",
            "/run/systemd/generator.early",
            "/run/systemd/generator.late",
            "/var/run/systemd/system",
            "/usr/local/lib/systemd/system",
            "/lib/systemd/system",
        ] {
            let path = format!("{directory}/kubelet.service.d/a.conf");
            assert_eq!(
                guarded_unit_path(&path),
                Some(GuardedUnitPath::DropIn { name: "a.conf" }),
                "{path}"
            );
        }
        assert_eq!(
            guarded_unit_path("/etc/systemd/system/kubelet.service.d"),
            Some(GuardedUnitPath::Directory)
        );
    }

    #[test]
    fn a_drop_in_replaces_those_of_its_name_in_later_directories() {
        let replaced = replaced_by("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf");
        assert!(replaced.contains(&"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf".to_owned()));
        assert!(replaced.contains(&"/run/systemd/system/kubelet.service.d/10-kubeadm.conf".to_owned()));
        assert!(!replaced.iter().any(|path| path.contains("system.control")));
        assert!(replaced_by("/etc/chrony.conf").is_empty());
        let replaced = replaced_by("/var/run/systemd/system/kubelet.service");
        assert!(replaced.contains(&"/usr/lib/systemd/system/kubelet.service".to_owned()));
    }
}
