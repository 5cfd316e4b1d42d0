//! Updates the boot loader on machines with Secure Boot: before an image is staged, the loader must trust the keys it
//! is signed with.
//!
//! Three methods, each the fallback of the previous one: the machine's own service, `bootupctl` of the image, and
//! copying the image's files to the EFI system partitions. All of it is best effort: an image that the loader already
//! trusts boots without it.

mod findmnt;
mod lsblk;
mod mokutil;

use std::sync::Arc;

use super::OsError;
use super::podman::Podman;
use super::release::OsRelease;
use crate::command::{Commands, succeed};
use crate::path::RootedPath;
use crate::power::random_name;
use crate::root::{Attributes, FsError, Root};

/// Other architectures have no EFI boot loader, or none that is updated this way.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];
const SERVICE: &str = "bootloader-update.service";
/// The first release whose service supports it.
const SERVICE_SINCE: (u32, i64) = (9, 6);
/// The path of the boot loader's files in an image.
const FILES: &str = "/usr/lib/bootupd/updates/EFI";

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BootloaderUpdate {
    NotNeeded,
    ByService,
    ByImage,
    ByCopy { partitions: usize },
}

/// Updates the boot loader to the version an image needs.
pub(super) fn update(
    commands: &Arc<dyn Commands>,
    root: &Root,
    image: &str,
) -> Result<BootloaderUpdate, OsError> {
    let release = OsRelease::read(root)?;
    let concerned = release.is_coreos() && ARCHITECTURES.contains(&std::env::consts::ARCH);
    if !concerned || !mokutil::secure_boot(commands.as_ref()) {
        return Ok(BootloaderUpdate::NotNeeded);
    }
    let has_service = release.is_enterprise_coreos() && release.version_numbers() >= Some(SERVICE_SINCE);
    if has_service && succeed(commands.as_ref(), "systemctl", &["start", SERVICE]).is_ok() {
        return Ok(BootloaderUpdate::ByService);
    }
    let podman = Podman::new(Arc::clone(commands));
    podman.fetch(root, image)?;
    match podman.run_bootupctl(image) {
        Ok(()) => Ok(BootloaderUpdate::ByImage),
        Err(error) => {
            tracing::info!(%error, "the image's own tool cannot update the boot loader; its files are copied");
            copy(commands, root, &podman, image)
        }
    }
}

fn copy(
    commands: &Arc<dyn Commands>,
    root: &Root,
    podman: &Podman,
    image: &str,
) -> Result<BootloaderUpdate, OsError> {
    let boot = findmnt::source_of_boot(commands.as_ref())?;
    let partitions = lsblk::system_partitions(commands.as_ref(), &boot)?;
    if partitions.is_empty() {
        return Err(OsError::Unsupported {
            what: "the boot loader",
            why: format!("no EFI system partition belongs to the disk of {boot}"),
        });
    }
    let scratch = Scratch::new(commands, root)?;
    podman.copy_out(image, FILES, &scratch.files())?;
    for partition in &partitions {
        scratch.put_onto(partition)?;
    }
    Ok(BootloaderUpdate::ByCopy {
        partitions: partitions.len(),
    })
}

/// Two temporary directories, removed on drop: the files, and the mount point of partitions.
struct Scratch<'a> {
    commands: &'a Arc<dyn Commands>,
    directory: String,
}

impl<'a> Scratch<'a> {
    fn new(commands: &'a Arc<dyn Commands>, root: &Root) -> Result<Self, OsError> {
        let scratch = Self {
            commands,
            directory: format!("/run/mco-bootloader-{}", random_name()),
        };
        for path in [scratch.files(), scratch.mount()] {
            let path = RootedPath::new(&path).map_err(FsError::from)?;
            root.create_directories(&path, Attributes::root(0o700))?;
        }
        Ok(scratch)
    }

    fn files(&self) -> String {
        format!("{}/files", self.directory)
    }

    fn mount(&self) -> String {
        format!("{}/mount", self.directory)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), OsError> {
        succeed(self.commands.as_ref(), program, arguments)?;
        Ok(())
    }

    fn put_onto(&self, partition: &str) -> Result<(), OsError> {
        let mount = self.mount();
        self.run("mount", &["--", partition, &mount])?;
        let copied = self.copy_files(&mount);
        // The copied files are already synced; a mount that remains ends with the next boot.
        let unmounted = self.run("umount", &["--", &mount]);
        copied.and(unmounted)
    }

    fn copy_files(&self, mount: &str) -> Result<(), OsError> {
        // An interrupted update leaves these behind, and the partition is small.
        let leftovers = [mount, "-name", ".btmp.*", "-exec", "rm", "-rf", "--", "{}", "+"];
        self.run("find", &leftovers)?;
        let from = format!("{}/EFI", self.files());
        self.run("cp", &["-rp", "--", &from, mount])?;
        self.run("sync", &["--file-system", mount])
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // A partition that is still mounted must not lose its files.
        let _ = self.run("rm", &["-rf", "--one-file-system", "--", &self.directory]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    const IMAGE: &str = "quay.io/openshift/os@sha256:bb22";
    const EL9: &str = "ID=rhcos\nVARIANT_ID=coreos\nRHEL_VERSION=9.6\n";
    const EL8: &str = "ID=rhcos\nVARIANT_ID=coreos\nRHEL_VERSION=8.6\n";
    const RAID: &str = include_str!("fixtures/lsblk-raid.json");

    fn machine(release: &str) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        std::fs::write(directory.path().join("etc/os-release"), release).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    fn answering(secure_boot: &str) -> Recorded {
        Recorded::answering(&[
            ("mokutil", secure_boot),
            ("systemctl", ""),
            ("podman", ""),
            ("nice", ""),
            ("findmnt", "/dev/md126\n"),
            ("lsblk", RAID),
            ("mount", ""),
            ("umount", ""),
            ("find", ""),
            ("cp", ""),
            ("sync", ""),
            ("rm", ""),
        ])
    }

    fn run(release: &str, recorded: Recorded) -> (Result<BootloaderUpdate, OsError>, Vec<String>) {
        let (_directory, root) = machine(release);
        let recorded = Arc::new(recorded);
        let commands: Arc<dyn Commands> = Arc::new(Arc::clone(&recorded));
        (update(&commands, &root, IMAGE), recorded.invocations())
    }

    #[test]
    fn machines_without_secure_boot_or_without_coreos_are_left_alone() {
        let (done, _) = run(EL9, answering("SecureBoot disabled\n"));
        assert_eq!(done.unwrap(), BootloaderUpdate::NotNeeded);
        let (done, asked) = run("ID=debian\n", answering("SecureBoot enabled\n"));
        assert_eq!((done.unwrap(), asked), (BootloaderUpdate::NotNeeded, Vec::new()));
    }

    #[test]
    fn the_machines_own_service_comes_first_where_there_is_one() {
        let (done, asked) = run(EL9, answering("SecureBoot enabled\n"));
        assert_eq!(done.unwrap(), BootloaderUpdate::ByService);
        assert_eq!(
            asked,
            ["mokutil --sb-state", "systemctl start bootloader-update.service"]
        );
        // If the tool fails, Secure Boot may still be enabled.
        let (done, _) = run(
            EL9,
            answering("").failing("mokutil", 1, "EFI variables are not supported"),
        );
        assert_eq!(done.unwrap(), BootloaderUpdate::ByService);
    }

    #[test]
    fn then_the_tool_of_the_image() {
        for (release, recorded) in [
            (EL8, answering("SecureBoot enabled\n")),
            (
                EL9,
                answering("SecureBoot enabled\n").failing("systemctl", 1, "failed"),
            ),
        ] {
            let (done, asked) = run(release, recorded);
            assert_eq!(done.unwrap(), BootloaderUpdate::ByImage);
            assert!(
                asked.contains(&format!("nice -- ionice -c 3 podman pull -q {IMAGE}")),
                "{asked:?}"
            );
            let last = asked.last().unwrap();
            assert!(last.starts_with("podman run --env INVOCATION_ID="), "{last}");
            assert!(
                last.ends_with(&format!(
                    " --privileged --pid=host --net=host --rm -v /boot:/boot:rslave -v /dev:/dev {IMAGE} bootupctl update"
                )),
                "{last}"
            );
        }
    }

    /// Replays everything but `podman run`, whose arguments differ each time.
    #[derive(Debug)]
    struct WithoutBootupctl(Arc<Recorded>);

    impl Commands for WithoutBootupctl {
        fn run_with(
            &self,
            program: &str,
            arguments: &[&str],
            environment: &[(&str, &str)],
        ) -> Result<crate::command::CommandOutput, crate::command::CommandError> {
            let mut output = self.0.run_with(program, arguments, environment)?;
            if program == "podman" && arguments.first() == Some(&"run") {
                output.code = Some(1);
            }
            Ok(output)
        }
    }

    #[test]
    fn and_last_its_files_on_every_partition_of_the_array() {
        let (_directory, root) = machine(EL8);
        let recorded = Arc::new(answering("SecureBoot enabled\n"));
        let commands: Arc<dyn Commands> = Arc::new(WithoutBootupctl(Arc::clone(&recorded)));
        let done = update(&commands, &root, IMAGE).unwrap();
        assert_eq!(done, BootloaderUpdate::ByCopy { partitions: 2 });
        let asked = recorded.invocations();
        let of = |program: &str| -> Vec<&String> {
            asked
                .iter()
                .filter(|it| it.split(' ').next() == Some(program))
                .collect()
        };
        assert!(of("mount")[0].starts_with("mount -- /dev/sda2 /run/mco-bootloader-"));
        assert!(of("mount")[1].starts_with("mount -- /dev/sdb2 /run/mco-bootloader-"));
        assert_eq!(
            (
                of("find").len(),
                of("cp").len(),
                of("sync").len(),
                of("umount").len()
            ),
            (2, 2, 2, 2)
        );
        assert!(
            asked
                .last()
                .unwrap()
                .starts_with("rm -rf --one-file-system -- /run/mco-bootloader-")
        );
    }

    #[test]
    fn a_partition_is_unmounted_after_every_failure() {
        let (_directory, root) = machine(EL8);
        let recorded =
            Arc::new(answering("SecureBoot enabled\n").failing("cp", 1, "No space left on device"));
        let commands: Arc<dyn Commands> = Arc::new(WithoutBootupctl(Arc::clone(&recorded)));
        let error = update(&commands, &root, IMAGE).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        let unmounted = recorded
            .invocations()
            .iter()
            .filter(|it| it.starts_with("umount "))
            .count();
        assert_eq!(unmounted, 1);
    }
}
