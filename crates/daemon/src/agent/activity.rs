//! What the daemon is doing, since when and for whom it waits: a note on the machine that `mco daemon status` reads and
//! that a restarted daemon goes on from, and the line that `systemctl status` shows.

use jiff::Timestamp;
use mco_host::{Attributes, FsError, Root, RootedPath, ServiceManager};
use serde::{Deserialize, Serialize};

use crate::paths;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub doing: String,
    pub since: Timestamp,
    /// The request that the controller has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The latest failure, until there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The note, if a daemon has left one in this boot.
pub fn read(root: &Root) -> Result<Option<Activity>, FsError> {
    let bytes = root.read(&RootedPath::new(paths::ACTIVITY)?, 64 << 10)?;
    // A note that cannot be read is as good as none: it only ever describes.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Keeps the note up to date.
#[derive(Debug)]
pub(super) struct Teller {
    service_manager: Option<ServiceManager>,
    current: Option<Activity>,
    /// What the process before us did last. If we go on with the same, its clock goes on as well.
    inherited: Option<Activity>,
}

impl Teller {
    pub fn new(root: &Root, service_manager: Option<ServiceManager>) -> Self {
        Self {
            service_manager,
            current: None,
            inherited: read(root).ok().flatten(),
        }
    }

    /// Says what is being done. Saying the same again changes nothing, so `since` is when it began.
    pub fn doing(&mut self, root: &Root, doing: &str, waits_for: Option<&str>) -> Timestamp {
        let failure = self.current.as_ref().and_then(|now| now.failure.clone());
        self.put(root, doing, waits_for, failure)
    }

    /// Says what went wrong. What was being done goes on, with the clock it has.
    pub fn failed(&mut self, root: &Root, failure: &str) {
        let (doing, waits_for) = match &self.current {
            Some(now) => (now.doing.clone(), now.waits_for.clone()),
            None => ("starting".to_owned(), None),
        };
        self.put(root, &doing, waits_for.as_deref(), Some(failure.to_owned()));
    }

    pub fn succeeded(&mut self, root: &Root, doing: &str) {
        self.put(root, doing, None, None);
    }

    pub fn ready(&self) {
        if let Some(manager) = &self.service_manager {
            manager.ready();
        }
    }

    pub fn stopping(&self) {
        if let Some(manager) = &self.service_manager {
            manager.stopping();
        }
    }

    fn put(
        &mut self,
        root: &Root,
        doing: &str,
        waits_for: Option<&str>,
        failure: Option<String>,
    ) -> Timestamp {
        let same = |now: &&Activity| now.doing == doing && now.waits_for.as_deref() == waits_for;
        let since = [&self.current, &self.inherited]
            .into_iter()
            .flatten()
            .find(same)
            .map_or_else(Timestamp::now, |before| before.since);
        let activity = Activity {
            doing: doing.to_owned(),
            since,
            waits_for: waits_for.map(str::to_owned),
            failure,
        };
        if self.current.as_ref() == Some(&activity) {
            return since;
        }
        if let Some(manager) = &self.service_manager {
            manager.status(&activity.line());
        }
        if let Err(error) = write(root, &activity) {
            tracing::debug!(%error, "the activity was not noted");
        }
        self.current = Some(activity);
        since
    }
}

impl Activity {
    fn line(&self) -> String {
        match &self.failure {
            Some(failure) => format!("{}: {failure}", self.doing),
            None => self.doing.clone(),
        }
    }
}

fn write(root: &Root, activity: &Activity) -> Result<(), FsError> {
    let path = RootedPath::new(paths::ACTIVITY)?;
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    let text = serde_json::to_vec(activity).unwrap_or_default();
    root.write_atomically(&path, Attributes::root(0o644), &text)
}
