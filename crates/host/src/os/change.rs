//! A change of the operating system for the next boot.

use serde::{Deserialize, Serialize};

/// The change to stage for the next boot, relative to what is booted. Lists are in the order they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsChange {
    pub image: Option<String>,
    pub delete_kernel_arguments: Vec<String>,
    pub append_kernel_arguments: Vec<String>,
    pub kernel: Option<KernelSwap>,
    pub install_packages: Vec<String>,
    pub uninstall_packages: Vec<String>,
    /// The image to install packages from, where they do not come from the system's own repositories.
    pub packages_image: Option<String>,
    /// Before the machine's first use its tools may be older than the image.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub first_boot: bool,
    /// The staged change that this one takes the place of, and that is staged again if this one is discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Box<OsChange>>,
}

impl OsChange {
    /// Returns whether nothing is to be staged. A change without contents that replaces another one is not empty: the
    /// other one must not boot.
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                packages_image: self.packages_image.clone(),
                first_boot: self.first_boot,
                ..Self::default()
            }
    }

    /// Returns whether the next boot is like the present one, apart from what the change replaces.
    pub fn is_plain_boot(&self) -> bool {
        let alone = Self {
            replaces: None,
            ..self.clone()
        };
        alone.is_empty()
    }

    /// Returns whether the change is the same as the one that it replaces.
    pub fn repeats_replaced(&self) -> bool {
        self.replaces
            .as_deref()
            .is_some_and(|replaced| self.is_same_boot(replaced))
    }

    /// Returns whether two changes result in the same boot.
    pub fn is_same_boot(&self, other: &Self) -> bool {
        let alone = |change: &Self| Self {
            replaces: None,
            ..change.clone()
        };
        alone(self) == alone(other)
    }

    pub fn touches_packages(&self) -> bool {
        self.kernel.is_some() || !self.install_packages.is_empty() || !self.uninstall_packages.is_empty()
    }

    pub fn touches_kernel_arguments(&self) -> bool {
        !self.append_kernel_arguments.is_empty() || !self.delete_kernel_arguments.is_empty()
    }
}

/// Replaces the image's own kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelSwap {
    /// Restores the image's kernel.
    Reset,
    Replace {
        remove: Vec<String>,
        install: Vec<String>,
    },
}
