//! Translates Butane configs (variants openshift, fcos and flatcar) to MachineConfigs.
//!
//! The subset that a MachineConfig can express is translated, as the butane tool does it, except that contents are not
//! compressed. A field outside that subset is an error that names the field. Local files are not read, because a
//! translation must not depend on the directory it runs in.

use serde_json::{Map, Value, json};

use crate::config::problem::Problem;

/// The Ignition versions that the versions of the variants make.
const VERSIONS: [(&str, &str, &str); 24] = [
    ("openshift", "4.8.0", "3.2.0"),
    ("openshift", "4.9.0", "3.2.0"),
    ("openshift", "4.10.0", "3.2.0"),
    ("openshift", "4.11.0", "3.2.0"),
    ("openshift", "4.12.0", "3.2.0"),
    ("openshift", "4.13.0", "3.2.0"),
    ("openshift", "4.14.0", "3.4.0"),
    ("openshift", "4.15.0", "3.4.0"),
    ("openshift", "4.16.0", "3.4.0"),
    ("openshift", "4.17.0", "3.4.0"),
    ("openshift", "4.18.0", "3.4.0"),
    ("openshift", "4.19.0", "3.5.0"),
    ("openshift", "4.20.0", "3.5.0"),
    ("openshift", "4.21.0", "3.5.0"),
    ("openshift", "4.22.0", "3.5.0"),
    ("fcos", "1.0.0", "3.0.0"),
    ("fcos", "1.1.0", "3.1.0"),
    ("fcos", "1.2.0", "3.2.0"),
    ("fcos", "1.3.0", "3.2.0"),
    ("fcos", "1.4.0", "3.3.0"),
    ("fcos", "1.5.0", "3.4.0"),
    ("fcos", "1.6.0", "3.5.0"),
    ("flatcar", "1.0.0", "3.3.0"),
    ("flatcar", "1.1.0", "3.4.0"),
];

const ROLE: &str = mco_api::vocabulary::labels::ROLE;

/// What a field holds.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Integer,
    Flag,
    List(&'static Shape),
    Object(&'static [Field]),
    /// Contents: a source, or text that becomes one.
    Contents,
    /// A field of Butane that is not translated, and why.
    Refused(&'static str),
    /// A field that variant openshift refuses.
    NotOpenShift(&'static Shape, &'static str),
}

#[derive(Debug)]
struct Field {
    from: &'static str,
    to: &'static str,
    shape: Shape,
}

const fn field(from: &'static str, to: &'static str, shape: Shape) -> Field {
    Field { from, to, shape }
}

const LOCAL: &str = "local files are not read; write the contents inline";
const FIRST_BOOT: &str = "takes effect at the first boot only, so a MachineConfig cannot change it; \
                          pass it to the machine's first boot with the butane tool";
const IMMUTABLE: &str =
    "variant openshift refuses it, because it cannot change after the first boot; use variant fcos";
const KERNEL_ARGUMENTS: &str = "variant openshift has openshift.kernel_arguments instead";

const HEADERS: Shape = Shape::List(&Shape::Object(&[
    field("name", "name", Shape::Text),
    field("value", "value", Shape::Text),
]));
const VERIFICATION: Shape = Shape::Object(&[field("hash", "hash", Shape::Text)]);
/// The fields of contents, beside `inline` and `local`.
const CONTENTS: [Field; 4] = [
    field("source", "source", Shape::Text),
    field("compression", "compression", Shape::Text),
    field(
        "http_headers",
        "httpHeaders",
        Shape::NotOpenShift(&HEADERS, "variant openshift takes data URLs only"),
    ),
    field("verification", "verification", VERIFICATION),
];
const OWNER: Shape = Shape::Object(&[
    field("id", "id", Shape::Integer),
    field("name", "name", Shape::Text),
]);

const IGNITION: Shape = Shape::Object(&[
    field(
        "config",
        "config",
        Shape::Object(&[
            field("merge", "merge", Shape::List(&Shape::Contents)),
            field("replace", "replace", Shape::Contents),
        ]),
    ),
    field(
        "timeouts",
        "timeouts",
        Shape::Object(&[
            field("http_response_headers", "httpResponseHeaders", Shape::Integer),
            field("http_total", "httpTotal", Shape::Integer),
        ]),
    ),
    field(
        "security",
        "security",
        Shape::Object(&[field(
            "tls",
            "tls",
            Shape::Object(&[field(
                "certificate_authorities",
                "certificateAuthorities",
                Shape::List(&Shape::Contents),
            )]),
        )]),
    ),
    field(
        "proxy",
        "proxy",
        Shape::Object(&[
            field("http_proxy", "httpProxy", Shape::Text),
            field("https_proxy", "httpsProxy", Shape::Text),
            field("no_proxy", "noProxy", Shape::List(&Shape::Text)),
        ]),
    ),
]);

const FILE: Shape = Shape::Object(&[
    field("path", "path", Shape::Text),
    field("overwrite", "overwrite", Shape::Flag),
    field("contents", "contents", Shape::Contents),
    field(
        "append",
        "append",
        Shape::NotOpenShift(
            &Shape::List(&Shape::Contents),
            "MachineConfigs cannot append to files",
        ),
    ),
    field("mode", "mode", Shape::Integer),
    field("user", "user", OWNER),
    field("group", "group", OWNER),
]);
const DIRECTORY: Shape = Shape::Object(&[
    field("path", "path", Shape::Text),
    field("overwrite", "overwrite", Shape::Flag),
    field("mode", "mode", Shape::Integer),
    field("user", "user", OWNER),
    field("group", "group", OWNER),
]);
const LINK: Shape = Shape::Object(&[
    field("path", "path", Shape::Text),
    field("overwrite", "overwrite", Shape::Flag),
    field("target", "target", Shape::Text),
    field("hard", "hard", Shape::Flag),
    field("user", "user", OWNER),
    field("group", "group", OWNER),
]);
const STORAGE: Shape = Shape::Object(&[
    field("files", "files", Shape::List(&FILE)),
    field(
        "directories",
        "directories",
        Shape::NotOpenShift(&Shape::List(&DIRECTORY), IMMUTABLE),
    ),
    field(
        "links",
        "links",
        Shape::NotOpenShift(&Shape::List(&LINK), IMMUTABLE),
    ),
    field("trees", "", Shape::Refused(LOCAL)),
    field("disks", "", Shape::Refused(FIRST_BOOT)),
    field("raid", "", Shape::Refused(FIRST_BOOT)),
    field("filesystems", "", Shape::Refused(FIRST_BOOT)),
    field("luks", "", Shape::Refused(FIRST_BOOT)),
]);

const SYSTEMD: Shape = Shape::Object(&[field(
    "units",
    "units",
    Shape::List(&Shape::Object(&[
        field("name", "name", Shape::Text),
        field("enabled", "enabled", Shape::Flag),
        field("mask", "mask", Shape::Flag),
        field("contents", "contents", Shape::Text),
        field("contents_local", "", Shape::Refused(LOCAL)),
        field(
            "dropins",
            "dropins",
            Shape::List(&Shape::Object(&[
                field("name", "name", Shape::Text),
                field("contents", "contents", Shape::Text),
                field("contents_local", "", Shape::Refused(LOCAL)),
            ])),
        ),
    ])),
)]);

const fn immutable(from: &'static str, to: &'static str, shape: &'static Shape) -> Field {
    field(from, to, Shape::NotOpenShift(shape, IMMUTABLE))
}

const USER: Shape = Shape::Object(&[
    field("name", "name", Shape::Text),
    field("password_hash", "passwordHash", Shape::Text),
    field(
        "ssh_authorized_keys",
        "sshAuthorizedKeys",
        Shape::List(&Shape::Text),
    ),
    field("ssh_authorized_keys_local", "", Shape::Refused(LOCAL)),
    immutable("uid", "uid", &Shape::Integer),
    immutable("gecos", "gecos", &Shape::Text),
    immutable("home_dir", "homeDir", &Shape::Text),
    immutable("no_create_home", "noCreateHome", &Shape::Flag),
    immutable("primary_group", "primaryGroup", &Shape::Text),
    immutable("groups", "groups", &Shape::List(&Shape::Text)),
    immutable("no_user_group", "noUserGroup", &Shape::Flag),
    immutable("no_log_init", "noLogInit", &Shape::Flag),
    immutable("shell", "shell", &Shape::Text),
    immutable("should_exist", "shouldExist", &Shape::Flag),
    immutable("system", "system", &Shape::Flag),
]);
const GROUP: Shape = Shape::Object(&[
    field("name", "name", Shape::Text),
    field("gid", "gid", Shape::Integer),
    field("password_hash", "passwordHash", Shape::Text),
    field("should_exist", "shouldExist", Shape::Flag),
    field("system", "system", Shape::Flag),
]);
const PASSWD: Shape = Shape::Object(&[
    field("users", "users", Shape::List(&USER)),
    immutable("groups", "groups", &Shape::List(&GROUP)),
]);

/// The fields that become the Ignition config.
const CONFIG: [Field; 7] = [
    field("ignition", "ignition", IGNITION),
    field("storage", "storage", STORAGE),
    field("systemd", "systemd", SYSTEMD),
    field("passwd", "passwd", PASSWD),
    field(
        "kernel_arguments",
        "kernelArguments",
        Shape::NotOpenShift(
            &Shape::Object(&[
                field("should_exist", "shouldExist", Shape::List(&Shape::Text)),
                field("should_not_exist", "shouldNotExist", Shape::List(&Shape::Text)),
            ]),
            KERNEL_ARGUMENTS,
        ),
    ),
    field("boot_device", "", Shape::Refused(FIRST_BOOT)),
    field("grub", "", Shape::Refused(FIRST_BOOT)),
];
/// The fields of a MachineConfig beside its Ignition config.
const OPENSHIFT: Shape = Shape::Object(&[
    field("kernel_arguments", "kernelArguments", Shape::List(&Shape::Text)),
    field("extensions", "extensions", Shape::List(&Shape::Text)),
    field("fips", "fips", Shape::Flag),
    field("kernel_type", "kernelType", Shape::Text),
]);

/// Returns whether a document is a Butane config.
pub fn is_butane(document: &Value) -> bool {
    document.get("variant").is_some_and(Value::is_string) && document.get("kind").is_none()
}

/// Translates a Butane config to a MachineConfig. `name` is its name if the config has none, which is an addition to
/// variants fcos and flatcar: they have no metadata, but accept that of openshift.
pub fn translate(document: &Value, name: Option<&str>) -> Result<Value, Vec<Problem>> {
    let variant = document["variant"].as_str().unwrap_or_default();
    let version = document["version"].as_str().unwrap_or_default();
    let ignition = ignition_version(variant, version).map_err(|problem| vec![problem])?;
    let mut translation = Translation {
        is_openshift: variant == "openshift",
        problems: Vec::new(),
    };
    let metadata = translation.metadata(document, name);
    let empty = Map::new();
    let mut config = Map::new();
    let mut spec = Map::new();
    for (key, value) in document.as_object().unwrap_or(&empty) {
        match key.as_str() {
            "variant" | "version" | "metadata" => {}
            "openshift" if translation.is_openshift => {
                if let Some(Value::Object(fields)) = translation.value(value, OPENSHIFT, "openshift") {
                    spec.extend(fields);
                }
            }
            "openshift" => translation.refuse("openshift", "only variant openshift has it"),
            key => translation.member(&CONFIG, key, value, "", &mut config),
        }
    }
    let section = config.entry("ignition").or_insert_with(|| json!({}));
    section["version"] = json!(ignition);
    spec.insert("config".to_owned(), Value::Object(config));
    if translation.problems.is_empty() {
        Ok(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": metadata,
            "spec": spec,
        }))
    } else {
        Err(translation.problems)
    }
}

fn ignition_version(variant: &str, version: &str) -> Result<&'static str, Problem> {
    let known = VERSIONS.iter().filter(|(name, _, _)| *name == variant);
    let versions: Vec<&str> = known.clone().map(|(_, version, _)| *version).collect();
    if versions.is_empty() {
        return Err(Problem::new(
            "variant",
            format!(
                "{variant:?} is not translated; use openshift, fcos or flatcar, or translate it with the butane tool"
            ),
        ));
    }
    let found = known.clone().find(|(_, one, _)| *one == version);
    found.map(|(_, _, ignition)| *ignition).ok_or_else(|| {
        Problem::new(
            "version",
            format!(
                "{version:?} of variant {variant} is not translated; MachineConfigs hold Ignition up to 3.5, so use one of {}",
                versions.join(", ")
            ),
        )
    })
}

struct Translation {
    is_openshift: bool,
    problems: Vec<Problem>,
}

impl Translation {
    fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    fn metadata(&mut self, document: &Value, name: Option<&str>) -> Value {
        let own = &document["metadata"];
        if let Some(members) = own.as_object() {
            for key in members
                .keys()
                .filter(|key| !["name", "labels"].contains(&key.as_str()))
            {
                self.refuse(
                    &format!("metadata.{key}"),
                    "unknown field; there are name and labels",
                );
            }
        }
        let name = own["name"].as_str().filter(|name| !name.is_empty()).or(name);
        if name.is_none() {
            self.refuse("metadata.name", "a MachineConfig needs a name");
        }
        if own["labels"][ROLE].as_str().is_none_or(str::is_empty) {
            let label = format!("a MachineConfig needs the label {ROLE}, whose value is its pool");
            self.refuse("metadata.labels", label);
        }
        json!({"name": name, "labels": own["labels"]})
    }

    /// Translates one field of an object. An absent value stays absent.
    fn member(
        &mut self,
        fields: &[Field],
        key: &str,
        value: &Value,
        parent: &str,
        into: &mut Map<String, Value>,
    ) {
        let path = if parent.is_empty() {
            key.to_owned()
        } else {
            format!("{parent}.{key}")
        };
        let Some(field) = fields.iter().find(|field| field.from == key) else {
            self.refuse(&path, "unknown field");
            return;
        };
        if let Some(value) = self.value(value, field.shape, &path) {
            into.insert(field.to.to_owned(), value);
        }
    }

    fn value(&mut self, value: &Value, shape: Shape, path: &str) -> Option<Value> {
        if value.is_null() {
            return None;
        }
        match (shape, value) {
            (Shape::Refused(why), _) => self.refuse(path, why),
            (Shape::NotOpenShift(_, why), _) if self.is_openshift => self.refuse(path, why),
            (Shape::NotOpenShift(shape, _), value) => return self.value(value, *shape, path),
            (Shape::Text, Value::String(_))
            | (Shape::Integer, Value::Number(_))
            | (Shape::Flag, Value::Bool(_)) => {
                return Some(value.clone());
            }
            (Shape::List(shape), Value::Array(items)) => {
                let items = items.iter().enumerate();
                let items =
                    items.filter_map(|(index, item)| self.value(item, *shape, &format!("{path}[{index}]")));
                return Some(Value::Array(items.collect()));
            }
            (Shape::Object(fields), Value::Object(members)) => {
                let mut object = Map::new();
                for (key, value) in members {
                    self.member(fields, key, value, path, &mut object);
                }
                return Some(Value::Object(object));
            }
            (Shape::Contents, Value::Object(members)) => return Some(self.contents(members, path)),
            (Shape::Text, _) => self.refuse(path, "expected text; put it into quotes"),
            (Shape::Integer, _) => self.refuse(path, "expected a number"),
            (Shape::Flag, _) => self.refuse(path, "expected true or false"),
            (Shape::List(_), _) => self.refuse(path, "expected a list"),
            (Shape::Object(_) | Shape::Contents, _) => self.refuse(path, "expected a mapping"),
        }
        None
    }

    /// Translates contents: inline text becomes a data URL.
    fn contents(&mut self, members: &Map<String, Value>, path: &str) -> Value {
        let mut contents = Map::new();
        let mut inline = None;
        for (key, value) in members {
            match key.as_str() {
                "local" => self.refuse(&format!("{path}.local"), LOCAL),
                "inline" => match value {
                    Value::String(text) => inline = Some(text),
                    Value::Null => {}
                    _ => self.refuse(&format!("{path}.inline"), "expected text; put it into quotes"),
                },
                key => self.member(&CONTENTS, key, value, path, &mut contents),
            }
        }
        let source = contents.get("source").and_then(Value::as_str);
        match (inline, source) {
            (Some(_), Some(_)) => self.refuse(path, "inline and source exclude each other"),
            (Some(text), None) => {
                contents.insert("source".to_owned(), json!(data_url(text)));
                // Set, so that merging with a parent does not inherit its compression.
                contents.entry("compression").or_insert_with(|| json!(""));
            }
            (None, Some(source)) if self.is_openshift && !source.starts_with("data:") => {
                self.refuse(
                    &format!("{path}.source"),
                    "variant openshift takes data URLs only; use variant fcos for remote contents",
                );
            }
            (None, _) => {}
        }
        Value::Object(contents)
    }
}

/// Returns the shorter of the two forms of a data URL.
fn data_url(text: &str) -> String {
    use base64::Engine as _;
    let escaped = mco_ignition::resource::encode(text.as_bytes());
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    let encoded = format!("data:;base64,{encoded}");
    if encoded.len() < escaped.len() {
        encoded
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::manifest;

    fn translated(yaml: &str) -> Result<Value, Vec<String>> {
        let document = manifest::value(yaml).unwrap();
        assert!(is_butane(&document), "{yaml}");
        translate(&document, Some("50-file")).map_err(|problems| {
            problems
                .iter()
                .map(|problem| format!("{}: {}", problem.path, problem.message))
                .collect()
        })
    }

    #[test]
    fn a_field_that_a_machine_config_cannot_express_is_named() {
        let head = "metadata: {labels: {machineconfiguration.openshift.io/role: worker}}\n";
        let openshift = format!("variant: openshift\nversion: 4.20.0\n{head}");
        let fcos = format!("variant: fcos\nversion: 1.6.0\n{head}");
        for (head, body, field) in [
            (
                &fcos,
                "storage: {disks: [{device: /dev/vda}]}",
                "storage.disks: takes effect at the first boot",
            ),
            (
                &fcos,
                "storage: {trees: [{local: a}]}",
                "storage.trees: local files are not read",
            ),
            (
                &fcos,
                "boot_device: {mirror: {}}",
                "boot_device: takes effect at the first boot",
            ),
            (
                &fcos,
                "storage: {files: [{path: /a, contents: {local: a}}]}",
                "storage.files[0].contents.local: local",
            ),
            (
                &fcos,
                "storage: {files: [{path: /a, contents: {inline: 1}}]}",
                "storage.files[0].contents.inline: exp",
            ),
            (
                &fcos,
                "storage: {files: [{path: /a, modus: 1}]}",
                "storage.files[0].modus: unknown field",
            ),
            (&fcos, "storage: {files: {}}", "storage.files: expected a list"),
            (
                &fcos,
                "openshift: {fips: true}",
                "openshift: only variant openshift",
            ),
            (
                &fcos,
                "systemd: {units: [{name: a, contents_local: b}]}",
                "systemd.units[0].contents_local: local",
            ),
            (
                &openshift,
                "storage: {links: [{path: /a, target: b}]}",
                "storage.links: variant openshift refuses",
            ),
            (
                &openshift,
                "kernel_arguments: {should_exist: [a]}",
                "kernel_arguments: variant openshift has",
            ),
            (
                &openshift,
                "passwd: {users: [{name: core, uid: 5}]}",
                "passwd.users[0].uid: variant openshift",
            ),
            (
                &openshift,
                "storage: {files: [{path: /a, contents: {source: 'https://a'}}]}",
                "storage.files[0].contents.source: variant openshift takes data URLs only",
            ),
        ] {
            let problems = translated(&format!("{head}{body}\n")).unwrap_err();
            assert_eq!(problems.len(), 1, "{body}: {problems:?}");
            assert!(problems[0].starts_with(field), "{body}: {problems:?}");
        }
    }

    #[test]
    fn a_config_needs_a_name_a_role_and_a_known_version() {
        let nameless = manifest::value("variant: fcos\nversion: 1.6.0\n").unwrap();
        let problems = translate(&nameless, None).unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["metadata.name", "metadata.labels"]);
        for (text, path) in [
            ("variant: r4e\nversion: 1.1.0\n", "variant: "),
            ("variant: fcos\nversion: 1.7.0\n", "version: "),
            ("variant: fcos\n", "version: "),
        ] {
            let problems = translated(text).unwrap_err();
            assert!(problems[0].starts_with(path), "{problems:?}");
        }
    }

    #[test]
    fn text_is_stored_in_the_shorter_form() {
        assert_eq!(data_url("hello\n"), "data:,hello%0A");
        assert!(data_url(&"\n".repeat(50)).starts_with("data:;base64,"));
    }
}
