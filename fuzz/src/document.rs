//! Generates JSON in the shape of a config from the fuzzer's bytes, because most byte mutations of JSON text are
//! syntax errors.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

const KEYS: &[&str] = &[
    "advertisement",
    "append",
    "cex",
    "certificateAuthorities",
    "clevis",
    "compression",
    "config",
    "contents",
    "custom",
    "device",
    "devices",
    "directories",
    "discard",
    "disks",
    "dropins",
    "enabled",
    "filesystems",
    "files",
    "format",
    "gid",
    "group",
    "groups",
    "guid",
    "hard",
    "hash",
    "httpHeaders",
    "httpTotal",
    "id",
    "keyFile",
    "label",
    "level",
    "links",
    "luks",
    "mask",
    "merge",
    "mode",
    "mountOptions",
    "name",
    "noProxy",
    "number",
    "openOptions",
    "options",
    "overwrite",
    "partitions",
    "passwordHash",
    "path",
    "pin",
    "proxy",
    "raid",
    "replace",
    "resize",
    "security",
    "shouldExist",
    "shouldNotExist",
    "sizeMiB",
    "source",
    "spares",
    "sshAuthorizedKeys",
    "startMiB",
    "system",
    "tang",
    "target",
    "threshold",
    "thumbprint",
    "timeouts",
    "tls",
    "tpm2",
    "typeGuid",
    "uid",
    "units",
    "url",
    "user",
    "users",
    "value",
    "verification",
    "wipeTable",
];

const TEXTS: &[&str] = &[
    "",
    "/a",
    "/a/b",
    "/b",
    "a",
    "b",
    "a.service",
    "a@.service",
    "a@b.service",
    "x.conf",
    "data:,x",
    "data:;base64,eA==",
    "http://a",
    "https://b",
    "s3://b/k?versionId=",
    "arn:aws:s3:::b/k",
    "gzip",
    "ext4",
    "none",
    "raid1",
    "core",
    "[Install]\nA=b\n",
    "[Unit",
    "sha512-0",
    "/etc/systemd/system/a.service",
];

/// Returns JSON in the shape of a config of spec 3.5, valid or not.
pub fn config(input: &mut Unstructured<'_>) -> Result<Value> {
    let mut sections = Map::new();
    let mut ignition = object(input, 4)?;
    ignition.insert("version".to_owned(), json!("3.5.0"));
    sections.insert("ignition".to_owned(), Value::Object(ignition));
    for (section, lists) in [
        (
            "storage",
            &[
                "files",
                "directories",
                "links",
                "disks",
                "raid",
                "filesystems",
                "luks",
            ][..],
        ),
        ("systemd", &["units"]),
        ("passwd", &["users", "groups"]),
        ("kernelArguments", &["shouldExist", "shouldNotExist"]),
    ] {
        let mut object = Map::new();
        for list in lists {
            let count = input.int_in_range(0..=3)?;
            let strings = section == "kernelArguments";
            let entries: Result<Vec<Value>> = (0..count)
                .map(|_| {
                    if strings {
                        text(input)
                    } else {
                        self::object(input, 4).map(Value::Object)
                    }
                })
                .collect();
            object.insert((*list).to_owned(), Value::from(entries?));
        }
        sections.insert(section.to_owned(), Value::Object(object));
    }
    Ok(Value::Object(sections))
}

fn object(input: &mut Unstructured<'_>, depth: usize) -> Result<Map<String, Value>> {
    let mut object = Map::new();
    for _ in 0..input.int_in_range(0..=5)? {
        let key = *input.choose(KEYS)?;
        object.insert(key.to_owned(), value(key, input, depth)?);
    }
    Ok(object)
}

/// Returns a value of the type that the key usually has.
fn value(key: &str, input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    if depth == 0 {
        return text(input);
    }
    match key {
        "cex" | "clevis" | "config" | "custom" | "group" | "keyFile" | "proxy" | "replace" | "security"
        | "timeouts" | "tls" | "user" | "verification" => Ok(Value::Object(object(input, depth - 1)?)),
        "contents" if input.arbitrary()? => Ok(Value::Object(object(input, depth - 1)?)),
        "append" | "certificateAuthorities" | "dropins" | "httpHeaders" | "merge" | "partitions" | "tang" => {
            let count = input.int_in_range(0..=3)?;
            (0..count)
                .map(|_| object(input, depth - 1).map(Value::Object))
                .collect()
        }
        "devices" | "groups" | "mountOptions" | "noProxy" | "openOptions" | "options"
        | "sshAuthorizedKeys" => {
            let count = input.int_in_range(0..=3)?;
            (0..count).map(|_| text(input)).collect()
        }
        "discard" | "enabled" | "hard" | "mask" | "overwrite" | "resize" | "shouldExist" | "system"
        | "tpm2" | "wipeTable" => Ok(Value::from(input.arbitrary::<bool>()?)),
        "gid" | "httpTotal" | "id" | "mode" | "number" | "sizeMiB" | "spares" | "startMiB" | "threshold"
        | "uid" => Ok(Value::from(input.arbitrary::<i64>()?)),
        _ => text(input),
    }
}

fn text(input: &mut Unstructured<'_>) -> Result<Value> {
    if input.ratio(7, 8)? {
        Ok(Value::from(*input.choose(TEXTS)?))
    } else {
        Ok(Value::from(input.arbitrary::<&str>()?))
    }
}
