//! The rules for disks, arrays, filesystems and encrypted devices.

use serde_json::{Value, json};

use crate::validate::{accepted, check, refused, warned};

fn luks(fields: Value) -> Value {
    let mut luks = json!({"name": "l", "device": "/dev/a"});
    luks.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({"storage": {"luks": [luks]}})
}

fn partitions(partitions: Value) -> Value {
    json!({"storage": {"disks": [{"device": "/dev/a", "partitions": partitions}]}})
}

#[test]
fn disks_and_partitions() {
    refused(
        json!({"storage": {"disks": [{}]}}),
        "storage.disks[0].device: disk device is required",
    );
    refused(
        json!({"storage": {"disks": [{"device": "sda"}]}}),
        "storage.disks[0].device: path not absolute",
    );
    let place = "storage.disks[0].partitions";
    check(
        "3.5.0",
        partitions(json!([{"number": 1}, {"number": 2}, {"number": 1}])),
        &[
            &format!("{place}[2]: duplicate entry defined"),
            &format!("{place}[2]: partition numbers collide"),
        ],
        &[],
    );
    let table: [(Value, &str); 14] = [
        (
            json!([{}]),
            "[0]: a partition number >= 1 or a label must be specified",
        ),
        (
            json!([{"number": 1, "label": "a"}, {"number": 2, "label": "a"}]),
            "[1]: cannot use the same partition label twice",
        ),
        (
            json!([{"number": 1, "label": "a:b"}]),
            "[0].label: partition label will be truncated to text before the colon",
        ),
        (
            json!([{"number": 1, "label": "x".repeat(37)}]),
            "[0].label: partition labels may not exceed 36 characters",
        ),
        (
            json!([{"number": 1, "guid": "x"}]),
            "[0].guid: doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"",
        ),
        (
            json!([{"number": 1, "typeGuid": "x"}]),
            "[0].typeGuid: doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"",
        ),
        (
            json!([{"number": 1, "shouldExist": false, "sizeMiB": 0}]),
            "[0]: shouldExist specified false with other options also specified",
        ),
        (
            json!([{"number": 1, "shouldExist": false}, {"label": "a"}]),
            ": shouldExist is false for a partition and other partition(s) has start or size 0",
        ),
        (
            json!([{"number": 1, "startMiB": 1, "sizeMiB": 10}, {"number": 2, "startMiB": 10, "sizeMiB": 1}]),
            "[1]: partitions overlap",
        ),
        (
            json!([{"number": 1, "startMiB": 5, "sizeMiB": 10}, {"number": 2, "startMiB": 1, "sizeMiB": 10}]),
            "[1]: partitions overlap",
        ),
        (
            json!([{"number": 1, "startMiB": 5, "sizeMiB": 0}, {"number": 2, "startMiB": 5, "sizeMiB": 1}]),
            "[1]: partitions overlap",
        ),
        (
            json!([{"number": 1, "startMiB": 2, "sizeMiB": 2}, {"number": 2, "startMiB": 1, "sizeMiB": 9}]),
            "[1]: partitions overlap",
        ),
        (
            json!([{"number": 1, "startMiB": i64::MAX, "sizeMiB": 10}, {"number": 2, "startMiB": i64::MIN, "sizeMiB": 10}]),
            "[1]: partitions overlap",
        ),
        (
            json!([{"number": 1, "startMiB": 1, "sizeMiB": 9}, {"number": 2, "startMiB": 9, "sizeMiB": 9}, {"number": 3, "startMiB": 2, "sizeMiB": 1}]),
            "[1]: partitions overlap",
        ),
    ];
    for (list, fault) in table {
        refused(partitions(list), &format!("{place}{fault}"));
    }
    for list in [
        json!([{"label": ""}]),
        json!([{"number": 1, "startMiB": 1, "sizeMiB": 10}, {"number": 2, "startMiB": 11, "sizeMiB": 1}]),
        json!([{"number": 1, "startMiB": 0, "sizeMiB": 10}, {"number": 2, "startMiB": 0, "sizeMiB": 10}]),
        json!([{"number": 1, "startMiB": 1}, {"number": 2, "startMiB": 1}]),
        json!([{"number": 1, "shouldExist": false, "wipePartitionEntry": true}, {"number": 2}]),
        json!([{"number": 1, "guid": "01234567-89ab-cdef-edcb-a98765432101", "typeGuid": ""}]),
    ] {
        accepted(partitions(list));
    }
}

#[test]
fn raid_arrays() {
    let raid = |fields: Value| {
        let mut raid = json!({"name": "r", "level": "raid1", "devices": ["/dev/a", "/dev/b"]});
        raid.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"storage": {"raid": [raid]}})
    };
    for level in [
        "linear", "raid0", "0", "stripe", "raid1", "1", "mirror", "raid4", "4", "raid5", "5", "raid6", "6",
        "raid10", "10",
    ] {
        accepted(raid(json!({"level": level, "spares": 0})));
    }
    refused(
        raid(json!({"level": null})),
        "storage.raid[0].level: raid level is required",
    );
    check(
        "3.2.0",
        raid(json!({"level": null})),
        &["storage.raid[0].level: unrecognized raid level"],
        &[],
    );
    refused(
        raid(json!({"level": "raid7"})),
        "storage.raid[0].level: unrecognized raid level",
    );
    refused(
        raid(json!({"level": "raid0", "spares": 1})),
        "storage.raid[0].level: spares unsupported for linear and raid0 arrays",
    );
    refused(
        raid(json!({"devices": []})),
        "storage.raid[0].devices: raid devices required",
    );
    refused(
        raid(json!({"devices": ["/dev/a", "/dev/a"]})),
        "storage.raid[0].devices[1]: duplicate entry defined",
    );
    refused(
        raid(json!({"devices": ["sda"]})),
        "storage.raid[0].devices[0]: path not absolute",
    );
}

#[test]
fn filesystems() {
    let filesystem = |fields: Value| {
        let mut filesystem = json!({"device": "/dev/a", "format": "ext4"});
        filesystem
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"storage": {"filesystems": [filesystem]}})
    };
    let place = "storage.filesystems[0]";
    for (format, longest) in [
        ("ext4", 16),
        ("btrfs", 256),
        ("xfs", 12),
        ("swap", 15),
        ("vfat", 11),
    ] {
        accepted(filesystem(
            json!({"format": format, "label": "x".repeat(longest)}),
        ));
        refused(
            filesystem(json!({"format": format, "label": "x".repeat(longest + 1)})),
            &format!(
                "{place}.label: filesystem labels cannot be longer than {longest} characters when using {format}"
            ),
        );
    }
    accepted(filesystem(json!({"format": "none", "label": "x".repeat(300)})));
    check(
        "3.2.0",
        filesystem(json!({"format": "none"})),
        &[&format!("{place}.format: invalid filesystem format")],
        &[],
    );
    refused(
        filesystem(json!({"format": "zfs"})),
        &format!("{place}.format: invalid filesystem format"),
    );
    let missing = format!(
        "{place}.format: format cannot be empty when path, label, uuid, wipeFilesystem, options, or mountOptions is specified"
    );
    for field in [
        json!({"path": "/x"}),
        json!({"uuid": "u"}),
        json!({"wipeFilesystem": true}),
        json!({"options": ["o"]}),
        json!({"mountOptions": ["o"]}),
    ] {
        let mut fields = field;
        fields["format"] = Value::Null;
        refused(filesystem(fields), &missing);
    }
    check(
        "3.5.0",
        filesystem(json!({"format": "", "label": "l"})),
        &[
            &missing,
            &format!("{place}.label: filesystem must specify format if label is specified"),
        ],
        &[],
    );
    accepted(filesystem(
        json!({"format": null, "wipeFilesystem": false, "path": "", "options": []}),
    ));
    refused(
        filesystem(json!({"path": "var"})),
        &format!("{place}.path: path not absolute"),
    );
    refused(
        filesystem(json!({"device": ""})),
        &format!("{place}.device: path not specified"),
    );
    let on_disk = |disk: Value| json!({"storage": {"disks": [disk], "filesystems": [{"device": "/dev/a", "format": "xfs"}]}});
    warned(
        on_disk(json!({"device": "/dev/a", "partitions": [{"number": 1}]})),
        &format!("{place}.device: filesystem overwrites partitioned device"),
    );
    warned(
        on_disk(json!({"device": "/dev/a", "wipeTable": true})),
        &format!("{place}.device: device matches disk with wipeTable enabled; filesystem will be wiped"),
    );
}

#[test]
fn encrypted_devices() {
    let place = "storage.luks[0]";
    refused(
        luks(json!({"device": null})),
        &format!("{place}.device: disk device is required"),
    );
    refused(
        luks(json!({"name": "a/b"})),
        &format!("{place}.name: device names cannot contain slashes"),
    );
    refused(
        luks(json!({"label": "x".repeat(48)})),
        &format!("{place}.label: luks device labels cannot be longer than 47 characters"),
    );
    refused(
        luks(json!({"keyFile": {"source": "x"}})),
        &format!("{place}.keyFile.source: invalid url scheme"),
    );
    refused(
        luks(json!({"openOptions": ["a", "a"]})),
        &format!("{place}.openOptions[1]: duplicate entry defined"),
    );
    accepted(luks(json!({"options": ["a", "a"]})));

    let clevis = |clevis: Value| luks(json!({"clevis": clevis}));
    let server = json!({"url": "http://t", "thumbprint": "t"});
    accepted(clevis(json!({"tpm2": true, "threshold": 2, "tang": [server]})));
    let tang = format!("{place}.clevis.tang[0]");
    refused(
        clevis(json!({"tang": [{"url": "http://t"}]})),
        &format!("{tang}.thumbprint: thumbprint is required"),
    );
    refused(
        clevis(json!({"tang": [{"url": "data:,x", "thumbprint": "t"}]})),
        &format!("{tang}.url: invalid url scheme"),
    );
    refused(
        clevis(json!({"tang": [{"url": "http://t", "thumbprint": "t", "advertisement": "{"}]})),
        &format!("{tang}.advertisement: advertisement is not valid JSON"),
    );
    refused(
        clevis(json!({"tang": [server, server]})),
        &format!("{place}.clevis.tang[1]: duplicate entry defined"),
    );

    let custom = format!("{place}.clevis.custom");
    accepted(clevis(json!({"custom": {"pin": "sss", "config": "x"}})));
    accepted(clevis(json!({"custom": {"needsNetwork": false}, "tpm2": true})));
    refused(
        clevis(json!({"custom": {"pin": "x", "config": "x"}})),
        &format!("{custom}.pin: unsupported clevis pin"),
    );
    refused(
        clevis(json!({"custom": {"pin": "tang"}})),
        &format!("{custom}.config: missing required custom clevis config"),
    );
    refused(
        clevis(json!({"custom": {"config": "x"}})),
        &format!("{custom}.pin: missing required custom clevis pin"),
    );
    let mixed = format!("{place}.clevis: cannot use custom clevis config with tpm2, tang, or threshold");
    refused(
        clevis(json!({"custom": {"pin": "tang", "config": "x"}, "tpm2": true})),
        &mixed,
    );
    check(
        "3.2.0",
        clevis(json!({"custom": {}, "tpm2": true})),
        &[&mixed],
        &[],
    );

    refused(
        luks(json!({"cex": {"enabled": true}, "clevis": {"tpm2": true}})),
        &format!("{place}.cex: cannot use cex with clevis"),
    );
    refused(
        luks(json!({"cex": {"enabled": true}, "keyFile": {"source": "data:,x"}})),
        &format!("{place}.cex: cannot use key file with cex"),
    );
    accepted(luks(json!({"cex": {"enabled": false}, "clevis": {"tpm2": true}})));
}
