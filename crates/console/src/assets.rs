//! The only files that pages refer to, compiled in.

/// A static file whose name contains its hash, so that browsers can cache it forever.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    pub path: &'static str,
    pub content_type: &'static str,
    pub bytes: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset {
        path: "/static/console.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/console.css"),
    },
    Asset {
        path: "/static/console.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/console.js"),
    },
    Asset {
        path: "/static/icon.svg",
        content_type: "image/svg+xml",
        bytes: include_bytes!("../assets/icon.svg"),
    },
];

pub fn find(path: &str) -> Option<Asset> {
    ASSETS.iter().find(|asset| asset.path == path).copied()
}
