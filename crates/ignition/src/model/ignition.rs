//! The config itself, its `ignition` section, kernel arguments, and the resource every section shares.

use super::record::record;
use super::{Passwd, SpecStamp, Storage, Systemd};

record! {
    /// A whole Ignition config.
    pub struct Config {
        "ignition" ignition: Ignition [required IgnitionSection];
        "kernelArguments" kernel_arguments: KernelArguments [since(V3_3)];
        "passwd" passwd: Passwd;
        "storage" storage: Storage;
        "systemd" systemd: Systemd;
    }
}

record! {
    /// The `ignition` section: how a machine obtains the rest of its config.
    pub struct Ignition {
        "config" config: IgnitionConfig;
        "proxy" proxy: Proxy [since(V3_1)];
        "security" security: Security;
        "timeouts" timeouts: Timeouts;
        "version" version: SpecStamp [required];
    }
}

record! {
    /// Configs to fetch and combine with this one.
    pub struct IgnitionConfig {
        "merge" merge: Vec<Resource> [ByKey];
        "replace" replace: Resource;
    }
}

record! {
    /// Proxies for fetching.
    pub struct Proxy {
        "httpProxy" http_proxy: Option<String>;
        "httpsProxy" https_proxy: Option<String>;
        "noProxy" no_proxy: Vec<String> [Set];
    }
}

record! {
    /// Trust for fetching.
    pub struct Security {
        "tls" tls: Tls;
    }
}

record! {
    /// Additional certificate authorities.
    pub struct Tls {
        "certificateAuthorities" certificate_authorities: Vec<Resource> [ByKey];
    }
}

record! {
    /// Time limits for fetching, in seconds.
    pub struct Timeouts {
        "httpResponseHeaders" http_response_headers: Option<i64>;
        "httpTotal" http_total: Option<i64>;
    }
}

record! {
    /// Kernel arguments; an argument in one list of a child is removed from the other list of its parent.
    pub struct KernelArguments {
        "shouldExist" should_exist: Vec<String> [ShouldExist];
        "shouldNotExist" should_not_exist: Vec<String> [ShouldNotExist];
    }
}

record! {
    /// Something to fetch: file contents, a further config, a certificate, a key.
    pub struct Resource {
        "compression" compression: Option<String>;
        "httpHeaders" http_headers: Vec<HttpHeader> [since(V3_1) Headers];
        "source" source: Option<String>;
        "verification" verification: Verification;
    }
}

record! {
    /// A request header; without a value it removes the header of that name when merged into a parent.
    pub struct HttpHeader {
        "name" name: String [required];
        "value" value: Option<String>;
    }
}

record! {
    /// Verification of fetched contents.
    pub struct Verification {
        "hash" hash: Option<String>;
    }
}
