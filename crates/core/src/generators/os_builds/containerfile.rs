//! Composes the Containerfile of a build: the rendered config on the base image, extensions and kernel, then the user's
//! own instructions.

use std::fmt::Write as _;

use mco_api::MachineConfig;
use thiserror::Error;

use super::architecture::Architecture;
use super::syntax::{self, SyntaxProblem};
use crate::config::extensions::{self, KernelType};

/// Where the extensions image is mounted during a build.
const EXTENSIONS_MOUNT: &str = "/tmp/mco-extensions/os-extensions-content";
const REPOSITORY_FILE: &str = "/etc/yum.repos.d/coreos-extensions.repo";
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
const ANCHORS: &str = "/etc/pki/ca-trust/source/anchors";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ComposeError {
    /// The user's instructions cannot be built. No build is started for them.
    #[error("Containerfile validation failed: containerFile {entry:?}, {problem}")]
    Invalid { entry: String, problem: SyntaxProblem },
    #[error("rendered MachineConfig {config:?} has no {field}, so there is no image to build on")]
    NoImage { config: String, field: &'static str },
    #[error("rendered MachineConfig {config:?}: {field} {value:?} is not an image reference")]
    BadImage {
        config: String,
        field: &'static str,
        value: String,
    },
    /// A build would succeed without what the config asks for.
    #[error(
        "rendered MachineConfig {config:?} has {field} {value}, but no baseOSExtensionsContainerImage to install it from; \
         set baseOSExtensionsContainerImage in a MachineConfig, or remove {field}"
    )]
    NoExtensionsImage {
        config: String,
        field: &'static str,
        value: String,
    },
    #[error(
        "64k-pages is only supported for aarch64 architecture, but the image of pool {pool:?} is for {architecture}; \
         use another kernelType"
    )]
    KernelType {
        pool: String,
        architecture: &'static str,
    },
}

/// Composes the Containerfile. `entries` are the user's pieces that must be valid; the first is part of the image.
pub fn compose(
    pool: &str,
    rendered: &MachineConfig,
    entries: &[(&str, &str)],
    architecture: Architecture,
) -> Result<String, ComposeError> {
    let name = rendered.metadata.name.as_deref().unwrap_or_default();
    let base = image(name, "osImageURL", &rendered.spec.os_image_url)?;
    let kernel = KernelType::canonical(&rendered.spec.kernel_type);
    if kernel == KernelType::Pages64k && architecture != Architecture::Arm64 {
        return Err(ComposeError::KernelType {
            pool: pool.to_owned(),
            architecture: architecture.node_name(),
        });
    }
    for (entry, content) in entries {
        syntax::check(content).map_err(|problem| ComposeError::Invalid {
            entry: (*entry).to_owned(),
            problem,
        })?;
    }
    let mut text = stages(base);
    let extensions_image = &rendered.spec.base_os_extensions_container_image;
    if extensions_image.is_empty() {
        needs_no_extensions_image(name, rendered, kernel)?;
    } else {
        let image = image(name, "baseOSExtensionsContainerImage", extensions_image)?;
        text.push_str(&extensions_step(image, rendered, kernel));
    }
    text.push_str(&finishing_steps(pool, name, base));
    if let Some((entry, content)) = entries.first() {
        let _ = writeln!(text, "\n# spec.containerFile, {entry}");
        text.push_str(content);
        if !content.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn needs_no_extensions_image(
    name: &str,
    rendered: &MachineConfig,
    kernel: KernelType,
) -> Result<(), ComposeError> {
    let extensions = &rendered.spec.extensions;
    let (field, value) = match kernel {
        KernelType::Realtime | KernelType::Pages64k => ("kernelType", kernel.as_str().to_owned()),
        KernelType::Default if extensions.is_empty() => return Ok(()),
        KernelType::Default => ("extensions", extensions.join(", ")),
    };
    Err(ComposeError::NoExtensionsImage {
        config: name.to_owned(),
        field,
        value,
    })
}

/// An image is part of instructions, so that a line break in it would add instructions.
fn image<'a>(config: &str, field: &'static str, value: &'a str) -> Result<&'a str, ComposeError> {
    if value.is_empty() {
        return Err(ComposeError::NoImage {
            config: config.to_owned(),
            field,
        });
    }
    if value.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'\\$`,".contains(c)) {
        return Err(ComposeError::BadImage {
            config: config.to_owned(),
            field,
            value: value.to_owned(),
        });
    }
    Ok(value)
}

/// The build context holds the rendered config and its Ignition config as files, so that images need no tools to read
/// them. Without Ignition in the image the daemon alone writes the files of the config.
fn stages(base: &str) -> String {
    format!(
        "\
# The rendered MachineConfig.
FROM {base} AS extract
COPY machineconfig/machineconfig.json {CURRENT_CONFIG}

# The base image with the rendered MachineConfig. Continue with \"FROM configs AS final\".
FROM {base} AS configs
COPY --from=extract {CURRENT_CONFIG} {CURRENT_CONFIG}
COPY machineconfig/ignition.json /tmp/ignition.json
RUN if [ -x {IGNITION} ]; then \\
        /bin/bash -c 'exec -a ignition-apply {IGNITION} --ignore-unsupported /tmp/ignition.json'; \\
    else \\
        echo 'the base image has no Ignition: files and units are written by the daemon'; \\
    fi && \\
    rm -f /tmp/ignition.json && \\
    if command -v ostree >/dev/null; then ostree container commit; fi
"
    )
}

fn extensions_step(image: &str, rendered: &MachineConfig, kernel: KernelType) -> String {
    let requested = rendered.spec.extensions.iter().map(String::as_str);
    let packages = extensions::packages(requested);
    let mut steps = vec![
        format!(
            "printf '%s\\n' '[coreos-extensions]' 'enabled=1' 'metadata_expire=1m' \
             'baseurl={EXTENSIONS_MOUNT}/usr/share/rpm-ostree/extensions/' 'gpgcheck=0' 'skip_if_unavailable=False' \
             > {REPOSITORY_FILE}"
        ),
        format!("chmod 0644 {REPOSITORY_FILE}"),
    ];
    if !packages.is_empty() {
        steps.push(format!("rpm-ostree install {}", packages.join(" ")));
    }
    steps.extend(kernel_swap(kernel));
    steps.push(format!("rm -f {REPOSITORY_FILE}"));
    steps.push("ostree container commit".to_owned());
    format!(
        "
# Extensions and kernel.
RUN --mount=type=bind,from={image},source=/,target={EXTENSIONS_MOUNT},bind-propagation=rshared,rw,z \\
    {}
",
        steps.join(" && \\\n    ")
    )
}

/// Replaces the kernel of the base image, whatever type it has, in one transaction.
fn kernel_swap(wanted: KernelType) -> Option<String> {
    if wanted == KernelType::Default {
        return None;
    }
    let all = [KernelType::Realtime, KernelType::Pages64k, KernelType::Default];
    let mut script = String::new();
    for (index, present) in all.into_iter().enumerate() {
        let keyword = if index == 0 { "if" } else { "elif" };
        let packages = kernel_packages(present);
        let probe = packages[0];
        let action = if present == wanted {
            "true".to_owned()
        } else {
            format!(
                "printf '%s\\n' 'remove {}' 'install {}' 'run' | dnf -y shell",
                packages.join(" "),
                kernel_packages(wanted).join(" ")
            )
        };
        let _ = write!(script, "{keyword} rpm -q {probe} >/dev/null; then {action}; ");
    }
    script.push_str("else echo 'the base image has no kernel package' >&2; exit 1; fi");
    Some(script)
}

/// The first package identifies the type.
fn kernel_packages(kernel: KernelType) -> &'static [&'static str] {
    match kernel {
        KernelType::Default => &[
            "kernel",
            "kernel-core",
            "kernel-modules",
            "kernel-modules-core",
            "kernel-modules-extra",
        ],
        KernelType::Realtime => &[
            "kernel-rt-core",
            "kernel-rt-modules",
            "kernel-rt-modules-extra",
            "kernel-rt-kvm",
        ],
        KernelType::Pages64k => &[
            "kernel-64k-core",
            "kernel-64k-modules",
            "kernel-64k-modules-core",
            "kernel-64k-modules-extra",
        ],
    }
}

/// Directories below /var that packages expect, the user's certificates, and labels that say what the image is.
fn finishing_steps(pool: &str, config: &str, base: &str) -> String {
    format!(
        "
RUN mkdir -p /usr/lib/tmpfiles.d && rm -f /usr/lib/tmpfiles.d/usbguard.conf && \\
    printf '%s\\n' 'd /var/log/usbguard 0755 - - - - -' 'd /var/lib/ipsec 0700 - - - - -' \\
        'd /var/lib/ipsec/nss 0700 - - - - -' > /usr/lib/tmpfiles.d/usbguard_ipsec.conf
COPY openshift-config-user-ca-bundle.crt {ANCHORS}/openshift-config-user-ca-bundle.crt
RUN if command -v update-ca-trust >/dev/null; then update-ca-trust; fi && \\
    if command -v ostree >/dev/null; then ostree container commit; fi
LABEL machineconfig=\"{config}\" machineconfigpool=\"{pool}\" baseOSContainerImage=\"{base}\"
"
    )
}
