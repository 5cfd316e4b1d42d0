//! Records the daemon's current activity, since when, and what it waits for. The record is a file on the node that `mco
//! daemon status` reads and a restarted daemon resumes from; `systemctl status` shows the same line.

use jiff::Timestamp;
use mco_host::{Attributes, FsError, Root, RootedPath, ServiceManager};
use serde::{Deserialize, Serialize};

use crate::paths;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub doing: String,
    pub since: Timestamp,
    /// The drain or uncordon request that the controller has not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The latest failure; cleared by the next success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Returns the record that a daemon has written in this boot, if any.
pub fn read(root: &Root) -> Result<Option<Activity>, FsError> {
    let bytes = root.read(&RootedPath::new(paths::ACTIVITY)?, 64 << 10)?;
    // The record is informational only, so an unreadable one counts as missing.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Writes the activity record and the service manager's status line when either changes.
#[derive(Debug)]
pub(super) struct ActivityReporter {
    service_manager: Option<ServiceManager>,
    current: Option<Activity>,
    /// The last activity of the previous process. If this process continues it, `since` is preserved.
    inherited: Option<Activity>,
}

impl ActivityReporter {
    pub fn new(root: &Root, service_manager: Option<ServiceManager>) -> Self {
        Self {
            service_manager,
            current: None,
            inherited: read(root).ok().flatten(),
        }
    }

    /// Records the current activity. Repeating the same activity is a no-op, so the returned `since` is when it began.
    pub fn doing(&mut self, root: &Root, doing: &str, waits_for: Option<&str>) -> Timestamp {
        let failure = self.current.as_ref().and_then(|now| now.failure.clone());
        self.put(root, doing, waits_for, failure)
    }

    /// Records a failure. The current activity and its `since` are kept.
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
            tracing::debug!(%error, "could not write the activity record");
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
