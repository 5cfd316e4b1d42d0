//! Validation rules: one row per violation, with the expected message and path.

use mco_ignition::{ParseError, parse};
use serde_json::{Value, json};

use crate::sorted;

/// Checks a config of the given version: errors first, then warnings, each as `path: message`.
pub(crate) fn check(version: &str, mut config: Value, errors: &[&str], warnings: &[&str]) {
    config["ignition"]["version"] = json!(version);
    let (found_errors, found_warnings) = match parse(&config) {
        Ok(parsed) => (Vec::new(), parsed.warnings),
        Err(ParseError::Invalid { errors, warnings, .. }) => (errors, warnings),
        Err(other) => panic!("{config}: {other}"),
    };
    assert_eq!(sorted(&found_errors), errors, "errors of {version} {config}");
    assert_eq!(
        sorted(&found_warnings),
        warnings,
        "warnings of {version} {config}"
    );
}

pub(crate) fn refused(config: Value, error: &str) {
    check("3.5.0", config, &[error], &[]);
}

pub(crate) fn accepted(config: Value) {
    check("3.5.0", config, &[], &[]);
}

pub(crate) fn warned(config: Value, warning: &str) {
    check("3.5.0", config, &[], &[warning]);
}

fn file(file: Value) -> Value {
    json!({"storage": {"files": [file]}})
}

fn contents(contents: Value) -> Value {
    file(json!({"path": "/a", "contents": contents}))
}

fn unit(unit: Value) -> Value {
    json!({"systemd": {"units": [unit]}})
}

#[test]
fn paths_are_absolute_and_simple() {
    for (path, fault) in [
        ("", "path not specified"),
        ("etc/a", "path not absolute"),
        ("/etc/", "path is not fully simplified"),
        ("//etc", "path is not fully simplified"),
        ("/etc//a", "path is not fully simplified"),
        ("/etc/../a", "path is not fully simplified"),
        ("/./a", "path is not fully simplified"),
    ] {
        refused(
            file(json!({"path": path})),
            &format!("storage.files[0].path: {fault}"),
        );
        refused(
            json!({"storage": {"directories": [{"path": path}]}}),
            &format!("storage.directories[0].path: {fault}"),
        );
        let link = json!({"storage": {"links": [{"path": path, "target": "t"}]}});
        refused(link, &format!("storage.links[0].path: {fault}"));
    }
    accepted(file(json!({"path": "/"})));
    accepted(file(json!({"path": "/a b/\u{fc}/..."})));
}

#[test]
fn a_path_is_declared_once() {
    refused(
        json!({"storage": {"files": [{"path": "/a"}, {"path": "/a"}]}}),
        "storage.files[1]: duplicate entry defined",
    );
    check(
        "3.5.0",
        json!({"storage": {
            "directories": [{"path": "/a"}], "files": [{"path": "/a"}], "links": [{"path": "/a", "target": "t"}],
        }}),
        &[
            "storage.files[0]: duplicate entry defined",
            "storage.links[0]: duplicate entry defined",
        ],
        &[],
    );
}

#[test]
fn nothing_lies_below_a_declared_link() {
    check(
        "3.5.0",
        json!({"storage": {
            "links": [{"path": "/l", "target": "/t"}, {"path": "/l/m", "target": "/t"}],
            "files": [{"path": "/l/a"}, {"path": "/link"}, {"path": "/x/l"}],
            "directories": [{"path": "/l/b/c"}],
        }}),
        &[
            "storage.directories[0]: directory path includes link in config",
            "storage.files[0]: file path includes link in config",
            "storage.links[1]: link path includes link in config",
        ],
        &[],
    );
}

#[test]
fn links_have_targets_and_hard_links_none_that_are_directories() {
    let link = |link: Value| json!({"storage": {"links": [link], "directories": [{"path": "/d"}]}});
    refused(
        link(json!({"path": "/l"})),
        "storage.links[0].target: link target is required",
    );
    refused(
        link(json!({"path": "/l", "target": ""})),
        "storage.links[0].target: link target is required",
    );
    check("3.2.0", link(json!({"path": "/l"})), &[], &[]);
    let directory = "storage.links[0]: hard link target is a directory";
    refused(
        link(json!({"path": "/l", "target": "/d", "hard": true})),
        directory,
    );
    refused(
        link(json!({"path": "/l", "target": "/x/../d/", "hard": true})),
        directory,
    );
    accepted(link(json!({"path": "/l", "target": "d", "hard": true})));
    accepted(link(json!({"path": "/l", "target": "/d", "hard": false})));
    warned(
        link(json!({"path": "/l", "target": "/t", "hard": true, "user": {"id": 1}})),
        "storage.links[0].user.id: user/group ignored for hard link",
    );
}

#[test]
fn files_do_not_overwrite_units() {
    let config = |unit: Value| {
        json!({
            "systemd": {"units": [unit]},
            "storage": {
                "files": [{"path": "/etc/systemd/system/a.service"}],
                "links": [{"path": "/etc/systemd/system/a.service.d/x.conf", "target": "t"}],
            },
        })
    };
    refused(
        config(json!({"name": "a.service", "contents": "[Unit]\n"})),
        "storage.files[0].path: path conflicts with systemd unit or dropin",
    );
    refused(
        config(json!({"name": "a.service", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]})),
        "storage.links[0].path: path conflicts with systemd unit or dropin",
    );
    accepted(config(
        json!({"name": "a.service", "enabled": false, "dropins": [{"name": "x.conf"}]}),
    ));
    accepted(config(json!({"name": "a.service", "contents": ""})));
}

#[test]
fn modes_owners_and_overwriting() {
    const SPECIAL: &str =
        "setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0";
    for mode in [0, 420, 511] {
        accepted(file(json!({"path": "/a", "mode": mode})));
    }
    refused(
        file(json!({"path": "/a", "mode": 0o10000})),
        "storage.files[0].mode: illegal file mode",
    );
    for mode in [0o1777, 0o4755, 0o7777] {
        warned(
            file(json!({"path": "/a", "mode": mode})),
            &format!("storage.files[0].mode: {SPECIAL}"),
        );
    }
    warned(
        json!({"storage": {"directories": [{"path": "/a", "mode": 0o1777}]}}),
        &format!("storage.directories[0].mode: {SPECIAL}"),
    );
    check(
        "3.5.0",
        json!({"storage": {"directories": [{"path": "/a", "mode": -1}]}}),
        &["storage.directories[0].mode: illegal file mode"],
        &[&format!("storage.directories[0].mode: {SPECIAL}")],
    );
    for owner in ["user", "group"] {
        refused(
            file(json!({"path": "/a", owner: {"id": 0, "name": "root"}})),
            &format!("storage.files[0].{owner}: cannot set both id and name"),
        );
        accepted(file(json!({"path": "/a", owner: {"id": 0, "name": ""}})));
    }
    let overwrite = "storage.files[0].overwrite: overwrite must be false if source is unspecified";
    refused(file(json!({"path": "/a", "overwrite": true})), overwrite);
    refused(
        file(json!({"path": "/a", "overwrite": true, "append": [{"source": "data:,x"}]})),
        overwrite,
    );
    accepted(file(
        json!({"path": "/a", "overwrite": true, "contents": {"source": ""}}),
    ));
    accepted(file(json!({"path": "/a", "overwrite": false})));
}

#[test]
fn sources_have_a_scheme_that_the_version_knows() {
    for source in [
        "",
        "data:,x",
        "http://x",
        "HTTPS://x",
        "tftp://x",
        "gs://b/k",
        "s3://b/k",
        "s3://b/k?versionId=v",
        "arn:aws:s3:::b/k",
        "arn:aws:s3:us:12:accesspoint/a/object/k",
        "http://[::1]:80/x",
        "http://u:p@h/",
        "http:x y",
    ] {
        accepted(contents(json!({"source": source})));
    }
    for (source, fault) in [
        ("x", "invalid url scheme"),
        ("ftp://x", "invalid url scheme"),
        ("oem:///x", "invalid url scheme"),
        (" http://x", "unable to parse url"),
        ("http://x y", "unable to parse url"),
        ("http://x:port", "unable to parse url"),
        ("http://[::1", "unable to parse url"),
        ("http://x/%zz", "unable to parse url"),
        ("http://%41", "unable to parse url"),
        ("1http://x", "unable to parse url"),
        ("http://x\n", "unable to parse url"),
        ("s3://b/k?versionId=", "invalid S3 object VersionId"),
        ("arn:aws:s3:::b", "invalid S3 ARN format"),
        ("arn:aws:s3:us:12:accesspoint/a", "invalid S3 ARN format"),
        ("arn:aws:ec2:::b/k", "invalid S3 ARN format"),
        ("data:", "missing comma before data"),
        ("data:,%zz", "rfc2396: invalid char 0x25 in unescape sequence"),
        ("data:;base64,eA", "illegal base64 data at input byte 0"),
    ] {
        refused(
            contents(json!({"source": source})),
            &format!("storage.files[0].contents.source: {fault}"),
        );
    }
    let scheme = ["storage.files[0].contents.source: invalid url scheme"];
    check(
        "3.3.0",
        contents(json!({"source": "arn:aws:s3:::b/k"})),
        &scheme,
        &[],
    );
    check("3.1.0", contents(json!({"source": "gs://b/k"})), &scheme, &[]);
}

#[test]
fn compression_and_verification_are_ones_ignition_knows() {
    let sha512 = format!("sha512-{}", "0".repeat(128));
    let sha256 = format!("sha256-{}", "g".repeat(64));
    accepted(contents(
        json!({"source": "data:,x", "compression": "gzip", "verification": {"hash": sha512}}),
    ));
    accepted(contents(
        json!({"source": "data:,x", "compression": "", "verification": {"hash": sha256}}),
    ));
    refused(
        contents(json!({"source": "data:,x", "compression": "xz"})),
        "storage.files[0].contents.compression: invalid compression method",
    );
    for (hash, fault) in [
        ("", "malformed hash specifier"),
        ("sha512", "malformed hash specifier"),
        ("sha1-00", "unrecognized hash function"),
        ("SHA256-00", "unrecognized hash function"),
        ("sha256-00", "incorrect size for hash sum"),
    ] {
        refused(
            contents(json!({"source": "data:,x", "verification": {"hash": hash}})),
            &format!("storage.files[0].contents.verification.hash: {fault}"),
        );
    }
    let place = "storage.files[0].contents.verification.hash";
    let unknown = format!("{place}: unrecognized hash function");
    check(
        "3.0.0",
        contents(json!({"source": "data:,x", "verification": {"hash": sha256}})),
        &[&unknown],
        &[],
    );
    refused(
        contents(json!({"verification": {"hash": sha512}})),
        &format!("{place}: source must be specified if verification is specified"),
    );
    refused(
        file(json!({"path": "/a", "append": [{}, {"source": "x"}]})),
        "storage.files[0].append[1].source: invalid url scheme",
    );
}

#[test]
fn http_headers_need_http() {
    let headers = |source: &str, headers: Value| contents(json!({"source": source, "httpHeaders": headers}));
    accepted(headers(
        "http://x",
        json!([{"name": "a", "value": "b"}, {"name": "A"}]),
    ));
    let place = "storage.files[0].contents.httpHeaders";
    refused(
        headers("data:,x", json!([{"name": "a"}])),
        &format!("{place}: cannot use HTTP headers with this source scheme"),
    );
    refused(
        headers("", json!([{"name": "a"}])),
        &format!("{place}: unable to parse url"),
    );
    refused(
        headers("http://x", json!([{"name": ""}])),
        &format!("{place}[0].name: HTTP header name can't be empty"),
    );
    refused(
        headers("http://x", json!([{"name": "a", "value": ""}])),
        &format!("{place}[0].value: unable to parse HTTP header"),
    );
    refused(
        headers("http://x", json!([{"name": "a"}, {"name": "a"}])),
        &format!("{place}[1]: duplicate entry defined"),
    );
}

#[test]
fn the_ignition_section_says_where_to_fetch_from() {
    let merge = |list: Value| json!({"ignition": {"config": {"merge": list}}});
    let authorities =
        |list: Value| json!({"ignition": {"security": {"tls": {"certificateAuthorities": list}}}});
    let place = "ignition.security.tls.certificateAuthorities";
    refused(merge(json!([{}])), "ignition.config.merge[0]: source is required");
    refused(
        authorities(json!([{"source": ""}])),
        &format!("{place}[0]: source is required"),
    );
    refused(
        merge(json!([{"source": "x"}])),
        "ignition.config.merge[0].source: invalid url scheme",
    );
    refused(
        merge(json!([{"source": "http://x"}, {"source": "http://x"}])),
        "ignition.config.merge[1]: duplicate entry defined",
    );
    check("3.0.0", merge(json!([{}])), &[], &[]);
    let scheme = format!("{place}[0].source: invalid url scheme");
    check("3.0.0", authorities(json!([{}])), &[&scheme], &[]);
    accepted(json!({"ignition": {"config": {"replace": {}}, "timeouts": {"httpTotal": -1}}}));

    let proxy = |proxy: Value| json!({"ignition": {"proxy": proxy}});
    accepted(proxy(
        json!({"httpProxy": "http://p", "httpsProxy": "https://p", "noProxy": ["a", "b"]}),
    ));
    refused(
        proxy(json!({"httpProxy": ""})),
        "ignition.proxy.httpProxy: proxies must be http(s)",
    );
    refused(
        proxy(json!({"httpsProxy": "http://["})),
        "ignition.proxy.httpsProxy: unable to parse url",
    );
    refused(
        proxy(json!({"noProxy": ["a", "a"]})),
        "ignition.proxy.noProxy[1]: duplicate entry defined",
    );
    warned(
        proxy(json!({"httpsProxy": "http://p"})),
        "ignition.proxy.httpsProxy: insecure plaintext HTTP proxy specified for HTTPS resources",
    );
}

#[test]
fn a_kernel_argument_stands_in_one_list_once() {
    let arguments = |wanted: Value, unwanted: Value| json!({"kernelArguments": {"shouldExist": wanted, "shouldNotExist": unwanted}});
    accepted(arguments(json!(["a", "b c"]), json!(["d"])));
    refused(
        arguments(json!(["a", "a"]), json!([])),
        "kernelArguments.shouldExist[1]: duplicate entry defined",
    );
    refused(
        arguments(json!(["a"]), json!(["a"])),
        "kernelArguments.shouldNotExist[0]: duplicate entry defined",
    );
}

#[test]
fn users_groups_and_keys_stand_once() {
    check(
        "3.5.0",
        json!({"passwd": {
            "users": [{"name": "a", "sshAuthorizedKeys": ["k", "k"], "groups": ["g", "g"]}, {"name": "a"}],
            "groups": [{"name": "g"}, {"name": "g"}],
        }}),
        &[
            "passwd.groups[1]: duplicate entry defined",
            "passwd.users[0].groups[1]: duplicate entry defined",
            "passwd.users[0].sshAuthorizedKeys[1]: duplicate entry defined",
            "passwd.users[1]: duplicate entry defined",
        ],
        &[],
    );
}

#[test]
fn units_are_named_and_written_as_systemd_units() {
    for kind in [
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "snapshot",
        "slice",
        "scope",
    ] {
        accepted(unit(json!({"name": format!("a@b.{kind}")})));
    }
    for name in ["", "a", "a.conf", "a.Service", "a.service "] {
        refused(
            unit(json!({"name": name})),
            "systemd.units[0].name: invalid systemd unit extension",
        );
    }
    for name in ["", "a", "a.CONF"] {
        refused(
            unit(json!({"name": "a.service", "dropins": [{"name": name}]})),
            "systemd.units[0].dropins[0].name: invalid systemd drop-in extension",
        );
    }
    refused(
        unit(json!({"name": "a.service", "dropins": [{"name": "a.conf"}, {"name": "a.conf"}]})),
        "systemd.units[0].dropins[1]: duplicate entry defined",
    );
    let long = format!("[Unit]\nA={}\n", "x".repeat(2046));
    for (text, fault) in [
        ("[Unit", "unable to find end of section"),
        ("[Unit] x\n", "found garbage after section name"),
        (
            "[Unit]\nA\n",
            "unexpected newline encountered while parsing option name",
        ),
        ("[Unit]\nA", "EOF"),
        (
            "[Unit]\nA=b\\\n\nc\n",
            "unexpected newline encountered while parsing option name",
        ),
        (long.as_str(), "line too long (max 2048 bytes)"),
    ] {
        let message = format!("invalid unit content: {fault}");
        refused(
            unit(json!({"name": "a.service", "contents": text})),
            &format!("systemd.units[0].contents: {message}"),
        );
        refused(
            unit(json!({"name": "a.service", "dropins": [{"name": "a.conf", "contents": text}]})),
            &format!("systemd.units[0].dropins[0].contents: {message}"),
        );
    }
    for text in [
        "",
        "no section at all",
        "# only [a comment",
        "[Unit]\r\nA=b\r\n",
        "[Unit]\nA = b\n\n; c\n[X]\n=\n",
        "[Unit]\nA=b\\\nc [X\n",
        "[Unit]\n# comment \\\ngoes on\nA=b\n",
        "\u{feff}[Unit]\nA=\u{e9}",
    ] {
        accepted(unit(json!({"name": "a.service", "contents": text})));
    }
}

#[test]
fn enabling_a_unit_that_cannot_be_installed_is_pointless() {
    let enabled = |contents: &str| unit(json!({"name": "a.service", "enabled": true, "contents": contents}));
    let pointless = "systemd.units[0].contents: unit \"a.service\" is enabled, but has no install section so enable does nothing";
    warned(enabled("[Unit]\nA=b\n"), pointless);
    warned(enabled("[Install]\n"), pointless);
    accepted(enabled("[Install]\nWantedBy=x\n"));
    accepted(enabled(""));
    accepted(unit(
        json!({"name": "a.service", "enabled": false, "contents": "[Unit]\n"}),
    ));
    warned(
        json!({"systemd": {"units": [
            {"name": "a@.service", "contents": "[Unit]\nA=b\n"}, {"name": "a@i.service", "enabled": true},
        ]}}),
        "systemd.units[1].contents: template unit \"a@.service\" for \"a@i.service\" doesn't have Install section",
    );
}
