//! The files that the server adds to a config.

use mco_ignition::model::{File, Resource, Storage, Verification};
use mco_ignition::resource;

/// World-readable, as the tools on machines expect.
const MODE: i64 = 0o644;

/// The files of a config, with warnings about replaced ones.
pub struct ConfigFiles<'a> {
    storage: &'a mut Storage,
    pub warnings: Vec<String>,
}

impl<'a> ConfigFiles<'a> {
    pub fn new(storage: &'a mut Storage) -> Self {
        Self {
            storage,
            warnings: Vec::new(),
        }
    }

    /// Updates a file of the config in place, or adds it at the end. Does nothing without contents.
    pub fn refresh(&mut self, path: &str, contents: &[u8]) {
        if contents.is_empty() {
            return;
        }
        match self.storage.files.iter_mut().find(|file| file.path == path) {
            Some(file) => {
                // Compression and hash described the old contents.
                file.contents.compression = None;
                file.contents.verification = Verification::default();
                file.contents.source = Some(resource::encode(contents));
            }
            None => self.put(path, contents),
        }
    }

    /// Adds a file and removes other entries at its path. Without the file a machine cannot join, and one MachineConfig
    /// must not keep all new machines of a pool from joining.
    pub fn put(&mut self, path: &str, contents: &[u8]) {
        self.remove_entries(path);
        self.storage.files.push(File {
            path: path.to_owned(),
            overwrite: Some(true),
            mode: Some(MODE),
            contents: Resource {
                source: Some(resource::encode(contents)),
                ..Resource::default()
            },
            ..File::default()
        });
    }

    fn remove_entries(&mut self, path: &str) {
        let Storage {
            files,
            directories,
            links,
            ..
        } = &mut *self.storage;
        let before = files.len() + directories.len() + links.len();
        files.retain(|file| file.path != path);
        directories.retain(|directory| directory.path != path);
        links.retain(|link| link.path != path);
        if files.len() + directories.len() + links.len() < before {
            self.warnings.push(format!(
                "the rendered config has its own {path}, which new machines do not get: the server writes that file"
            ));
        }
    }
}
