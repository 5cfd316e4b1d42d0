//! The page of OS image builds: their state, duration and the end of the log of each that runs or has failed.

use askama::Template;
use jiff::Timestamp;
use mco_client::build_status::BuildOverview;
use mco_client::snapshot::Snapshot;
use mco_client::text::{ago, lasting};

use super::{Frame, Text, Tone, link};

#[derive(Debug, Template)]
#[template(path = "builds.html")]
pub struct BuildsPage {
    pub frame: Frame,
    pub builds: Vec<BuildCard>,
}

/// One build.
#[derive(Debug, Clone)]
pub struct BuildCard {
    /// The element id, by which the script matches cards.
    pub id: String,
    pub name: Text,
    pub pool: Text,
    pub pool_href: String,
    pub state: &'static str,
    pub tone: &'static str,
    pub time: String,
    pub config: Text,
    pub config_href: String,
    pub image: Text,
    /// Why it failed before it ran, or does not start.
    pub failure: Option<Text>,
    pub log: Vec<Text>,
}

pub fn builds(frame: Frame, snapshot: &Snapshot, now: Timestamp) -> BuildsPage {
    BuildsPage {
        builds: snapshot.builds.iter().map(|build| card(build, now)).collect(),
        frame,
    }
}

fn card(build: &BuildOverview, now: Timestamp) -> BuildCard {
    let tone = tone(build);
    // Without a failure, the log of a build that has ended is of no use.
    let shows_log = build.is_running || build.has_failed;
    BuildCard {
        id: format!("build-{}", link::encoded(&build.name)),
        name: Text::new(&build.name),
        pool: Text::new(&build.pool),
        pool_href: link::pool(&build.pool),
        state: build.state,
        tone: tone.name(),
        time: time(build, now),
        config: Text::new(&build.config),
        config_href: link::config(&build.config),
        image: Text::new(&build.image),
        failure: build
            .failure
            .as_ref()
            .filter(|_| build.has_failed || build.cannot_start)
            .map(Text::new),
        log: if shows_log {
            build.log.iter().map(Text::new).collect()
        } else {
            Vec::new()
        },
    }
}

/// Returns the tone of a build: in progress, in use, or in need of an administrator.
pub fn tone(build: &BuildOverview) -> Tone {
    if build.has_failed || build.cannot_start {
        Tone::Bad
    } else if build.is_running {
        Tone::Busy
    } else if build.image.is_empty() {
        Tone::Calm
    } else {
        Tone::Good
    }
}

fn time(build: &BuildOverview, now: Timestamp) -> String {
    let Some(seconds) = build.duration_seconds else {
        return String::new();
    };
    match build.ended {
        Some(ended) => format!("took {}, ended {} ago", lasting(seconds), ago(now, ended)),
        None => format!("for {}", lasting(seconds)),
    }
}
