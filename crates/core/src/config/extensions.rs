//! The OS extensions and kernel types that a MachineConfig may request.

/// An extension and the packages that implement it, in installation order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    pub name: &'static str,
    pub packages: &'static [&'static str],
}

pub const EXTENSIONS: &[Extension] = &[
    Extension {
        name: "ipsec",
        packages: &["NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"],
    },
    Extension {
        name: "kerberos",
        packages: &["krb5-workstation", "libkadm5"],
    },
    Extension {
        name: "kernel-devel",
        packages: &["kernel-devel", "kernel-headers"],
    },
    Extension {
        name: "sandboxed-containers",
        packages: &["kata-containers"],
    },
    Extension {
        name: "sysstat",
        packages: &["sysstat"],
    },
    Extension {
        name: "two-node-ha",
        packages: &["pacemaker", "pcs", "fence-agents-all"],
    },
    Extension {
        name: "usbguard",
        packages: &["usbguard"],
    },
];

pub const KERNEL_DEVEL: &str = "kernel-devel";

/// The kernel type of a node. Every value other than the two special kernels selects the default kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelType {
    #[default]
    Default,
    Realtime,
    Pages64k,
}

impl KernelType {
    /// All values that the API accepts.
    pub const ACCEPTED: &[&str] = &["", "default", "realtime", "64k-pages"];

    /// Parses a kernel type as the daemon does: an unrecognised value selects the default kernel.
    pub fn canonical(text: &str) -> Self {
        match text {
            "realtime" => Self::Realtime,
            "64k-pages" => Self::Pages64k,
            _ => Self::Default,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Realtime => "realtime",
            Self::Pages64k => "64k-pages",
        }
    }
}

/// Returns the packages of the listed extensions, in the order of the list.
pub fn packages<'a>(extensions: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    extensions
        .into_iter()
        .filter_map(find)
        .flat_map(|extension| extension.packages.iter().copied())
        .collect()
}

/// Returns the names in the list that are not supported extensions, in the order of the list.
pub fn unknown(extensions: &[String]) -> Vec<&str> {
    extensions
        .iter()
        .map(String::as_str)
        .filter(|name| find(name).is_none())
        .collect()
}

/// Returns the names of all supported extensions, joined for use in messages.
pub fn known_names() -> String {
    EXTENSIONS
        .iter()
        .map(|extension| extension.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn find(name: &str) -> Option<&'static Extension> {
    EXTENSIONS.iter().find(|extension| extension.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_in_the_order_of_the_list() {
        assert_eq!(
            packages(["ipsec", "kerberos"]),
            [
                "NetworkManager-libreswan",
                "libreswan",
                "openvswitch3.5-ipsec",
                "krb5-workstation",
                "libkadm5"
            ]
        );
    }

    #[test]
    fn an_unknown_kernel_is_the_default_one() {
        for text in ["", "default", "rt", "REALTIME"] {
            assert_eq!(KernelType::canonical(text), KernelType::Default, "{text:?}");
        }
    }
}
