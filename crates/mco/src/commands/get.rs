//! `mco get`

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use mco_api::OSImageStream;
use mco_api::vocabulary::annotations;
use mco_core::generators::os_streams::discovery::{self, Discovered};
use mco_core::generators::os_streams::labels::ImageLabels;
use mco_core::generators::os_streams::published::{self, PublishError};
use mco_core::generators::os_streams::release::{self, ReleaseImages};

use super::VERSION;
use crate::cli::{Get, GetTarget, OsImageStreamQuery, OutputFormat, ReleaseFiles};
use crate::input;
use crate::output::{self, CommandOutcome};

pub fn run(arguments: &Get) -> anyhow::Result<CommandOutcome> {
    match &arguments.wanted {
        GetTarget::OsImageStream(query) => os_image_stream(query),
        GetTarget::DefaultNodeImage(query) => {
            let release = ReleaseOsImages::read(&query.release)?;
            let object = release.object()?;
            let default = object.status.map(|status| status.default_stream);
            release.print_image(&default.unwrap_or_default())
        }
        GetTarget::OsImagePullspec(query) => {
            ReleaseOsImages::read(&query.release)?.print_image(&query.osimagestream_name)
        }
    }
}

fn os_image_stream(query: &OsImageStreamQuery) -> anyhow::Result<CommandOutcome> {
    let object = ReleaseOsImages::read(&query.release)?.object()?;
    let ending = query.output_file.as_deref().and_then(format_of);
    let format = query.output.clone().or(ending).unwrap_or(OutputFormat::Json);
    match &query.output_file {
        None => output::print_as(&format, &object)?,
        Some(file) => fs::write(file, output::text_as(&format, &object)?)
            .with_context(|| format!("cannot write {}", file.display()))?,
    }
    Ok(CommandOutcome::Done)
}

fn format_of(file: &Path) -> Option<OutputFormat> {
    match file.extension()?.to_str()? {
        "json" => Some(OutputFormat::Json),
        "yaml" | "yml" => Some(OutputFormat::Yaml),
        _ => None,
    }
}

/// The operating systems of a release, read from its files.
struct ReleaseOsImages {
    version: String,
    discovered: Discovered,
}

impl ReleaseOsImages {
    fn read(files: &ReleaseFiles) -> anyhow::Result<Self> {
        let path = references(files)?;
        let images = ReleaseImages::read(&input::document(&path)?)
            .with_context(|| format!("cannot use {}", path.display()))?;
        let mut labels = ImageLabels::default();
        for file in &files.image_labels {
            let described = labels.read(&input::document(file)?);
            described.with_context(|| format!("cannot use {}", file.display()))?;
        }
        let discovered = discovery::discover(&[], Some(&images), &labels);
        for left_out in &discovered.left_out {
            output::warning(format!("{}: {}", left_out.what, left_out.why));
        }
        if discovered.streams.is_empty() {
            bail!(
                "{}: no image of this release is recognized as an operating system; add the labels of its images with \
                 --image-labels",
                path.display()
            );
        }
        Ok(Self {
            version: images.version,
            discovered,
        })
    }

    fn object(&self) -> anyhow::Result<OSImageStream> {
        let installed = Some(self.version.as_str());
        let made = published::offline(&self.discovered, installed, VERSION);
        let made = made.map_err(|error| match error {
            PublishError::Undecided { available } => anyhow!(
                "cannot choose a default among the streams {available}: the release name {:?} is not a version",
                self.version
            ),
            missing @ PublishError::NoDefault { .. } => missing.into(),
        })?;
        let mut object = made.context("the release has no streams")?;
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::GENERATED_BY_STREAM_QUERY.to_owned(), String::new());
        Ok(object)
    }

    fn print_image(&self, name: &str) -> anyhow::Result<CommandOutcome> {
        let streams = &self.discovered.streams;
        let Some(stream) = streams.iter().find(|stream| stream.name == name) else {
            let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
            bail!(
                "missing OSImageStream {name:?}, expected one of: [{}]",
                names.join(" ")
            );
        };
        output::print(&format!("{}\n", stream.os_image))?;
        Ok(CommandOutcome::Done)
    }
}

/// Returns the path of the image references; tools that extract a release image may or may not keep its directories.
fn references(files: &ReleaseFiles) -> anyhow::Result<PathBuf> {
    let directory = match (&files.imagestream, &files.release_dir) {
        (Some(file), _) => return Ok(file.clone()),
        (None, Some(directory)) => directory,
        (None, None) => bail!("either --imagestream or --release-dir is required"),
    };
    let name = Path::new(release::FILE).file_name().unwrap_or_default();
    let places = [directory.join(release::FILE), directory.join(name)];
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| {
        anyhow!(
            "{}: neither {} nor {} is there; is this an extracted release image?",
            directory.display(),
            release::FILE,
            name.display()
        )
    })
}
