//! Adding the server's own files to a config.

use mco_ignition::model::{File, Resource, Storage, Verification};
use mco_ignition::resource;

/// Readable by everyone, as the machines' own tools expect.
const MODE: i64 = 0o644;

/// The files of a config, with a record of what had to give way.
pub struct Files<'a> {
    storage: &'a mut Storage,
    pub warnings: Vec<String>,
}

impl<'a> Files<'a> {
    pub fn new(storage: &'a mut Storage) -> Self {
        Self {
            storage,
            warnings: Vec::new(),
        }
    }

    /// Brings a file that the config may already have up to date, in its place; adds it at the end otherwise. Nothing
    /// happens without contents.
    pub fn refresh(&mut self, path: &str, contents: &[u8]) {
        if contents.is_empty() {
            return;
        }
        match self.storage.files.iter_mut().find(|file| file.path == path) {
            Some(file) => {
                // What was said about the old contents is not true of the new ones.
                file.contents.compression = None;
                file.contents.verification = Verification::default();
                file.contents.source = Some(resource::encode(contents));
            }
            None => self.put(path, contents),
        }
    }

    /// Adds a file. It replaces whatever the config has at that path: without it a machine cannot join, and one
    /// MachineConfig must not keep all new machines of a pool out.
    pub fn put(&mut self, path: &str, contents: &[u8]) {
        self.make_way(path);
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

    fn make_way(&mut self, path: &str) {
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
