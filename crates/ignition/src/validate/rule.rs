//! The validation rules: Ignition's message and a hint for each.

use std::borrow::Cow;

/// A rule that a config can violate.
#[derive(Clone, Debug)]
pub(crate) struct ValidationRule {
    pub(super) message: Cow<'static, str>,
    pub(super) hint: Cow<'static, str>,
}

impl ValidationRule {
    const fn new(message: &'static str, hint: &'static str) -> Self {
        Self {
            message: Cow::Borrowed(message),
            hint: Cow::Borrowed(hint),
        }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns a rule whose message depends on the config.
    pub(super) fn about(message: String, hint: &'static str) -> Self {
        Self {
            message: Cow::Owned(message),
            hint: Cow::Borrowed(hint),
        }
    }
}

macro_rules! rules {
    ($( $name:ident = $message:literal, $hint:literal; )*) => {
        $( pub(crate) const $name: ValidationRule = ValidationRule::new($message, $hint); )*
    };
}

rules! {
    DUPLICATE = "duplicate entry defined", "keep one of the entries and remove the others";

    PATH_MISSING = "path not specified", "set the absolute path";
    PATH_RELATIVE = "path not absolute", "start the path with \"/\"";
    PATH_DIRTY = "path is not fully simplified", "remove \".\", \"..\", doubled and trailing slashes from the path";

    FILE_BELOW_LINK = "file path includes link in config", "use the real path instead of one below a declared link";
    DIRECTORY_BELOW_LINK =
        "directory path includes link in config", "use the real path instead of one below a declared link";
    LINK_BELOW_LINK = "link path includes link in config", "use the real path instead of one below a declared link";
    LINK_TARGET_MISSING = "link target is required", "set target to the path that the link points to";
    HARD_LINK_TO_DIRECTORY =
        "hard link target is a directory", "use a symbolic link (hard: false) to refer to a directory";
    HARD_LINK_OWNER = "user/group ignored for hard link", "set the owner on the link's target";
    PATH_OF_UNIT = "path conflicts with systemd unit or dropin",
        "declare the unit either under systemd.units or as a file, not both";
    MODE_ILLEGAL = "illegal file mode", "write the mode as a decimal number between 0 and 4095 (0644 is 420)";
    MODE_SPECIAL =
        "setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0",
        "use a mode of at most 511 (0777)";
    ID_AND_NAME = "cannot set both id and name", "keep either id or name";
    OVERWRITE_WITHOUT_SOURCE = "overwrite must be false if source is unspecified",
        "set contents.source (\"data:,\" for an empty file) or remove overwrite";

    SOURCE_MISSING = "source is required", "set source to the URL to fetch";
    URL_SCHEME = "invalid url scheme", "use one of http, https, tftp, gs, s3, arn (S3 only) or data";
    URL_SCHEME_WEB = "invalid url scheme", "use http or https";
    URL_UNPARSABLE = "unable to parse url", "check the URL for spaces, control characters and broken %XX sequences";
    S3_ARN = "invalid S3 ARN format", "write arn:<partition>:s3:<region>:<account>:<bucket>/<key>";
    S3_VERSION = "invalid S3 object VersionId", "set a value for versionId, or remove it";
    HEADERS_WITHOUT_WEB = "cannot use HTTP headers with this source scheme",
        "remove httpHeaders, or fetch over http or https";
    HEADER_NAME_MISSING = "HTTP header name can't be empty", "name the header";
    HEADER_VALUE_EMPTY = "unable to parse HTTP header", "set a value, or remove value to unset the header";
    COMPRESSION = "invalid compression method", "use \"gzip\" or remove compression";
    VERIFICATION_WITHOUT_SOURCE =
        "source must be specified if verification is specified", "set source or remove verification";
    HASH_MALFORMED = "malformed hash specifier", "write the hash as <function>-<hexadecimal sum>";
    HASH_UNKNOWN = "unrecognized hash function", "use sha512 or sha256";
    HASH_SIZE = "incorrect size for hash sum", "use 128 hexadecimal digits for sha512, 64 for sha256";
    PROXY_SCHEME = "proxies must be http(s)", "write the proxy as http://host:port or https://host:port";
    PROXY_INSECURE =
        "insecure plaintext HTTP proxy specified for HTTPS resources", "use a proxy that is reached over https";

    DEVICE_MISSING = "disk device is required", "set device to the absolute path of the device";
    PARTITION_NUMBERS = "partition numbers collide", "use a different number for each partition";
    PARTITIONS_OVERLAP = "partitions overlap", "move or shrink one of the partitions";
    PARTITION_LABELS = "cannot use the same partition label twice", "use a different label for each partition";
    PARTITION_ABSENT_MIXED =
        "shouldExist is false for a partition and other partition(s) has start or size 0",
        "set the number of every partition of this disk";
    PARTITION_NAMELESS =
        "a partition number >= 1 or a label must be specified", "set number or label";
    PARTITION_ABSENT_DETAILED = "shouldExist specified false with other options also specified",
        "with shouldExist: false keep only the number";
    PARTITION_LABEL_LONG = "partition labels may not exceed 36 characters", "shorten the label";
    PARTITION_LABEL_COLON =
        "partition label will be truncated to text before the colon", "remove the colon from the label";
    GUID = "doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"",
        "write the GUID as five groups of hexadecimal digits";

    RAID_LEVEL_MISSING = "raid level is required", "set level, for example to raid1";
    RAID_LEVEL_UNKNOWN = "unrecognized raid level", "use linear, raid0, raid1, raid4, raid5, raid6 or raid10";
    RAID_SPARES = "spares unsupported for linear and raid0 arrays", "remove spares or choose another level";
    RAID_DEVICES_MISSING = "raid devices required", "list the devices of the array";

    FILESYSTEM_OVER_PARTITIONS = "filesystem overwrites partitioned device",
        "put the filesystem on a partition of the disk";
    FILESYSTEM_WIPED =
        "device matches disk with wipeTable enabled; filesystem will be wiped",
        "set wipeFilesystem to true if that is meant, or wipeTable to false";
    FILESYSTEM_FORMAT = "invalid filesystem format", "use ext4, btrfs, xfs, vfat, swap or none";
    FILESYSTEM_FORMAT_MISSING =
        "format cannot be empty when path, label, uuid, wipeFilesystem, options, or mountOptions is specified",
        "set format";
    LABEL_WITHOUT_FORMAT = "filesystem must specify format if label is specified", "set format";
    LABEL_LONG_EXT4 =
        "filesystem labels cannot be longer than 16 characters when using ext4", "shorten the label";
    LABEL_LONG_BTRFS =
        "filesystem labels cannot be longer than 256 characters when using btrfs", "shorten the label";
    LABEL_LONG_XFS = "filesystem labels cannot be longer than 12 characters when using xfs", "shorten the label";
    LABEL_LONG_SWAP =
        "filesystem labels cannot be longer than 15 characters when using swap", "shorten the label";
    LABEL_LONG_VFAT =
        "filesystem labels cannot be longer than 11 characters when using vfat", "shorten the label";

    LUKS_NAME = "device names cannot contain slashes", "set only the name, not a path";
    LUKS_LABEL_LONG = "luks device labels cannot be longer than 47 characters", "shorten the label";
    CLEVIS_PIN_MISSING = "missing required custom clevis pin", "set pin to tpm2, tang or sss";
    CLEVIS_PIN_UNKNOWN = "unsupported clevis pin", "set pin to tpm2, tang or sss";
    CLEVIS_CONFIG_MISSING = "missing required custom clevis config", "set config to the pin's JSON configuration";
    CLEVIS_CUSTOM_MIXED =
        "cannot use custom clevis config with tpm2, tang, or threshold",
        "express everything in custom, or remove custom";
    TANG_THUMBPRINT = "thumbprint is required", "set the thumbprint of the server's signing key";
    TANG_ADVERTISEMENT = "advertisement is not valid JSON", "paste the server's advertisement unchanged";
    CEX_WITH_CLEVIS = "cannot use cex with clevis", "keep one of the two";
    CEX_WITH_KEY_FILE = "cannot use key file with cex", "keep one of the two";

    UNIT_EXTENSION = "invalid systemd unit extension",
        "end the name with a unit type such as .service, .socket, .timer or .mount";
    DROPIN_EXTENSION = "invalid systemd drop-in extension", "end the name with .conf";
}
