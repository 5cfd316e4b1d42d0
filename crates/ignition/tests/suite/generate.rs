//! Config generators for the properties: valid ones, and ones that are only well-formed.

use mco_ignition::Config;
use mco_ignition::model::{
    Cex, Clevis, ClevisCustom, Directory, Disk, Dropin, File, Filesystem, HttpHeader, Ignition,
    IgnitionConfig, KernelArguments, Link, Luks, NodeGroup, NodeUser, Partition, Passwd, PasswdGroup,
    PasswdUser, Proxy, Raid, Resource, Security, Storage, Systemd, Tang, Timeouts, Tls, Unit, Verification,
};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Any JSON that is not too deep.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(key(), inner, 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Keys that configs have, and others.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "ignition", "version", "config", "merge", "replace", "source", "verification", "hash", "compression",
            "httpHeaders", "name", "value", "proxy", "noProxy", "storage", "files", "path", "contents", "append", "mode",
            "overwrite", "user", "group", "id", "directories", "links", "target", "hard", "disks", "device", "partitions",
            "number", "raid", "level", "devices", "filesystems", "format", "luks", "clevis", "tang", "url", "custom",
            "systemd", "units", "dropins", "enabled", "enable", "passwd", "users", "groups", "sshAuthorizedKeys",
            "kernelArguments", "shouldExist", "networkd", "filesystem", "create", "mount",
        ]).prop_map(str::to_owned),
        1 => ".{0,4}",
    ]
}

/// A config-like document: a known version and arbitrary sections.
pub(crate) fn any_document() -> impl Strategy<Value = Value> {
    let version = prop::sample::select(vec![
        "2.0.0", "2.1.0", "2.2.0", "3.0.0", "3.2.0", "3.4.0", "3.5.0", "4.0.0",
    ]);
    (version, any_json()).prop_map(|(version, mut document)| {
        if let Value::Object(sections) = &mut document {
            let section = sections
                .entry("ignition")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(section) = section {
                section.insert("version".to_owned(), Value::from(version));
            }
        }
        document
    })
}

/// Short words that are valid nearly everywhere and collide often.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]).prop_map(str::to_owned)
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..3)
        .prop_map(|words| words.into_iter().map(str::to_owned).collect())
}

/// Which features a config may use; older versions have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    /// Everything of spec 3.5.
    All,
    /// Only features that spec 3.0 also has.
    Oldest,
}

impl Features {
    /// A value that only newer versions have.
    fn newer<T: Clone + std::fmt::Debug + Default + 'static>(
        self,
        value: impl Strategy<Value = T> + 'static,
    ) -> BoxedStrategy<T> {
        match self {
            Self::All => prop_oneof![3 => Just(T::default()), 1 => value].boxed(),
            Self::Oldest => Just(T::default()).boxed(),
        }
    }
}

fn contents(features: Features) -> impl Strategy<Value = Resource> {
    let hash = of(Just(format!("sha512-{}", "0".repeat(128))));
    let data =
        (word(), of(prop::sample::select(vec!["", "gzip"])), hash).prop_map(|(body, compression, hash)| {
            Resource {
                source: Some(format!("data:,{body}")),
                compression: compression.map(str::to_owned),
                verification: Verification { hash },
                http_headers: Vec::new(),
            }
        });
    let fetched = (word(), features.newer(headers())).prop_map(|(path, http_headers)| Resource {
        source: Some(format!("https://host/{path}")),
        http_headers,
        ..Resource::default()
    });
    prop_oneof![3 => data, 1 => fetched]
}

fn headers() -> impl Strategy<Value = Vec<HttpHeader>> {
    btree_map(word(), of(word()), 0..3).prop_map(|headers| {
        headers
            .into_iter()
            .map(|(name, value)| HttpHeader { name, value })
            .collect()
    })
}

fn references() -> impl Strategy<Value = Vec<Resource>> {
    words().prop_map(|paths| {
        let reference = |path| Resource {
            source: Some(format!("https://host/{path}")),
            ..Resource::default()
        };
        paths.into_iter().map(reference).collect()
    })
}

fn ignition(features: Features) -> impl Strategy<Value = Ignition> {
    let proxy = words().prop_map(|no_proxy| Proxy {
        http_proxy: Some("http://proxy".to_owned()),
        https_proxy: None,
        no_proxy,
    });
    (references(), references(), of(0..9_i64), features.newer(proxy)).prop_map(
        |(merge, authorities, http_total, proxy)| Ignition {
            config: IgnitionConfig {
                merge,
                replace: Resource::default(),
            },
            proxy,
            security: Security {
                tls: Tls {
                    certificate_authorities: authorities,
                },
            },
            timeouts: Timeouts {
                http_total,
                http_response_headers: None,
            },
            ..Ignition::default()
        },
    )
}

fn passwd(features: Features) -> impl Strategy<Value = Passwd> {
    let user = (
        words(),
        words(),
        of(0..9_i64),
        of(word()),
        of(any::<bool>()),
        features.newer(of(Just(false))),
    );
    let group = (of(0..9_i64), of(any::<bool>()), features.newer(of(Just(false))));
    (btree_map(word(), user, 0..3), btree_map(word(), group, 0..3)).prop_map(|(users, groups)| Passwd {
        users: users
            .into_iter()
            .map(
                |(name, (keys, groups, uid, password_hash, system, should_exist))| PasswdUser {
                    name,
                    ssh_authorized_keys: keys,
                    groups,
                    uid,
                    password_hash,
                    system,
                    should_exist,
                    ..PasswdUser::default()
                },
            )
            .collect(),
        groups: groups
            .into_iter()
            .map(|(name, (gid, system, should_exist))| PasswdGroup {
                gid,
                name,
                system,
                should_exist,
                password_hash: None,
            })
            .collect(),
    })
}

/// The kind of node at one path.
#[derive(Clone, Debug)]
enum Node {
    File(File),
    Directory(Directory),
    Link(Link),
}

fn owner() -> impl Strategy<Value = (NodeUser, NodeGroup)> {
    prop_oneof![
        Just((NodeUser::default(), NodeGroup::default())),
        (0..9_i64, word()).prop_map(|(id, name)| {
            (
                NodeUser {
                    id: Some(id),
                    name: None,
                },
                NodeGroup {
                    id: None,
                    name: Some(name),
                },
            )
        }),
    ]
}

fn node(features: Features) -> impl Strategy<Value = Node> {
    let file = (
        contents(features),
        vec(contents(features), 0..2),
        of(0..0o777_i64),
        of(any::<bool>()),
        owner(),
    )
        .prop_map(|(contents, append, mode, overwrite, (user, group))| {
            Node::File(File {
                contents,
                append,
                mode,
                overwrite,
                user,
                group,
                path: String::new(),
            })
        });
    let bare_file = of(0..0o777_i64).prop_map(|mode| {
        Node::File(File {
            mode,
            ..File::default()
        })
    });
    let directory =
        (of(0..0o777_i64), of(any::<bool>()), owner()).prop_map(|(mode, overwrite, (user, group))| {
            Node::Directory(Directory {
                mode,
                overwrite,
                user,
                group,
                path: String::new(),
            })
        });
    let link = (word(), of(any::<bool>())).prop_map(|(target, overwrite)| {
        Node::Link(Link {
            target: Some(target),
            overwrite,
            ..Link::default()
        })
    });
    prop_oneof![4 => file, 1 => bare_file, 1 => directory, 1 => link]
}

fn storage(features: Features) -> impl Strategy<Value = Storage> {
    (
        btree_map(word(), node(features), 0..5),
        btree_map(
            word(),
            (of(any::<bool>()), btree_map(1..4_i64, partition(features), 0..3)),
            0..2,
        ),
        btree_map(word(), words(), 0..2),
        btree_map(word(), filesystem(features), 0..2),
        features.newer(btree_map(word(), luks(), 0..2).prop_map(|devices| {
            devices
                .into_iter()
                .map(|(name, luks)| Luks { name, ..luks })
                .collect::<Vec<_>>()
        })),
    )
        .prop_map(|(nodes, disks, raid, filesystems, luks)| {
            let mut storage = Storage {
                luks,
                ..Storage::default()
            };
            for (name, node) in nodes {
                let path = format!("/{name}");
                match node {
                    Node::File(file) => storage.files.push(File { path, ..file }),
                    Node::Directory(directory) => storage.directories.push(Directory { path, ..directory }),
                    Node::Link(link) => storage.links.push(Link { path, ..link }),
                }
            }
            for (name, (wipe_table, partitions)) in disks {
                let partitions = partitions
                    .into_iter()
                    .map(|(number, entry)| Partition { number, ..entry })
                    .collect();
                storage.disks.push(Disk {
                    device: format!("/dev/{name}"),
                    wipe_table,
                    partitions,
                });
            }
            for (name, options) in raid {
                let (level, devices) = (Some("raid1".to_owned()), vec!["/dev/r".to_owned()]);
                storage.raid.push(Raid {
                    devices,
                    level,
                    name,
                    options,
                    spares: None,
                });
            }
            for (name, filesystem) in filesystems {
                storage.filesystems.push(Filesystem {
                    device: format!("/dev/{name}"),
                    ..filesystem
                });
            }
            storage
        })
}

fn partition(features: Features) -> impl Strategy<Value = Partition> {
    (of(1..9_i64), features.newer(of(Just(true)))).prop_map(|(size_mib, resize)| Partition {
        size_mib,
        resize,
        ..Partition::default()
    })
}

fn filesystem(features: Features) -> impl Strategy<Value = Filesystem> {
    let format = prop::sample::select(vec!["ext4", "xfs", "vfat"]);
    (format, of(word()), words(), features.newer(words())).prop_map(
        |(format, label, options, mount_options)| Filesystem {
            format: Some(format.to_owned()),
            label,
            options,
            mount_options,
            ..Filesystem::default()
        },
    )
}

fn luks() -> impl Strategy<Value = Luks> {
    let tang = btree_map(word(), of(Just("{}".to_owned())), 0..2).prop_map(|servers| {
        let server = |(host, advertisement)| Tang {
            url: format!("http://{host}"),
            thumbprint: Some("t".to_owned()),
            advertisement,
        };
        servers.into_iter().map(server).collect::<Vec<_>>()
    });
    let clevis = prop_oneof![
        Just(Clevis::default()),
        (of(any::<bool>()), tang).prop_map(|(tpm2, tang)| Clevis {
            tpm2,
            tang,
            ..Clevis::default()
        }),
        word().prop_map(|config| Clevis {
            custom: ClevisCustom {
                pin: Some("sss".to_owned()),
                config: Some(config),
                needs_network: None
            },
            ..Clevis::default()
        }),
    ];
    let unlocking = prop_oneof![
        4 => clevis.prop_map(|clevis| (clevis, Cex::default())),
        1 => Just((Clevis::default(), Cex { enabled: Some(true) })),
    ];
    (unlocking, of(Just(true)), words(), words()).prop_map(
        |((clevis, cex), discard, options, open_options)| Luks {
            device: Some("/dev/l".to_owned()),
            clevis,
            cex,
            discard,
            options,
            open_options,
            ..Luks::default()
        },
    )
}

fn systemd() -> impl Strategy<Value = Systemd> {
    let text =
        || prop::sample::select(vec!["[Unit]\nA=b\n", "[Install]\nWantedBy=x\n"]).prop_map(str::to_owned);
    let unit = (
        of(text()),
        of(any::<bool>()),
        of(any::<bool>()),
        btree_map(word(), of(text()), 0..3),
    );
    btree_map(word(), unit, 0..3).prop_map(|units| Systemd {
        units: units
            .into_iter()
            .map(|(name, (contents, enabled, mask, dropins))| Unit {
                contents,
                dropins: dropins
                    .into_iter()
                    .map(|(name, contents)| Dropin {
                        contents,
                        name: format!("{name}.conf"),
                    })
                    .collect(),
                enabled,
                mask,
                name: format!("{name}.service"),
            })
            .collect(),
    })
}

/// A valid config. Values that equal their default are omitted, so that converting down and up must reproduce it.
pub(crate) fn valid_config(features: Features) -> impl Strategy<Value = Config> {
    let kernel_arguments = (words(), words()).prop_map(|(should_exist, unwanted)| KernelArguments {
        should_not_exist: unwanted
            .into_iter()
            .filter(|argument| !should_exist.contains(argument))
            .collect(),
        should_exist,
    });
    (
        ignition(features),
        features.newer(kernel_arguments),
        passwd(features),
        storage(features),
        systemd(),
    )
        .prop_map(|(ignition, kernel_arguments, passwd, storage, systemd)| Config {
            ignition,
            kernel_arguments,
            passwd,
            storage,
            systemd,
        })
}

/// A config that spec 2.2 can express and the operator can read back: only the core user, plain storage.
pub(crate) fn spec_2_config() -> impl Strategy<Value = Config> {
    valid_config(Features::Oldest).prop_map(|mut config| {
        config.passwd.users.truncate(1);
        for user in &mut config.passwd.users {
            "core".clone_into(&mut user.name);
            user.system = user.system.filter(|flag| *flag);
        }
        for group in &mut config.passwd.groups {
            group.system = group.system.filter(|flag| *flag);
        }
        config.storage.disks.iter_mut().for_each(|disk| {
            disk.partitions.clear();
            disk.wipe_table = disk.wipe_table.filter(|flag| *flag);
        });
        config.storage.filesystems.clear();
        for file in &mut config.storage.files {
            // Spec 2 has either contents or one append, and always states whether it overwrites.
            file.append.clear();
            if file.contents.source.is_none() {
                file.append.push(Resource {
                    source: Some(String::new()),
                    ..Resource::default()
                });
                file.overwrite = Some(false);
            }
            file.overwrite.get_or_insert(false);
            file.contents
                .compression
                .take_if(|compression| compression.is_empty());
        }
        for unit in &mut config.systemd.units {
            unit.mask = unit.mask.filter(|flag| *flag);
        }
        config
    })
}
