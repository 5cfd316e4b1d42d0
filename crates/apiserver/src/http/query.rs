//! Query parameters, parsed as the API machinery does.

use std::time::Duration;

use serde_json::Value;

use crate::decode::FieldValidation;
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::present::IncludeObject;
use crate::registry::{DeleteOptions, ListOptions, PropagationPolicy, RevisionMatch};

/// The upper limit of `timeoutSeconds`. A watch without one ends within the same time, and its client reconnects and
/// authenticates again.
const MAX_WATCH: Duration = Duration::from_hours(1);

/// The parameters of one request, decoded.
#[derive(Clone, Debug, Default)]
pub struct QueryParameters {
    pairs: Vec<(String, String)>,
}

/// The parameters of a watch besides its selection.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub revision: Option<u64>,
    pub send_initial_events: Option<bool>,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
}

impl QueryParameters {
    pub fn parse(query: &str) -> Self {
        Self {
            pairs: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        }
    }

    /// Returns the first value of a parameter; empty if absent.
    pub fn get(&self, name: &str) -> &str {
        let found = self.pairs.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter as Go parses it. A parameter without a value counts as set.
    pub fn flag(&self, name: &str) -> bool {
        let found = self.pairs.iter().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "f"))
    }

    fn optional_flag(&self, name: &str) -> Option<bool> {
        self.pairs
            .iter()
            .any(|(key, _)| key == name)
            .then(|| self.flag(name))
    }

    pub fn is_watch(&self) -> bool {
        self.pairs.iter().any(|(key, _)| key == "watch") && self.flag("watch")
    }

    pub fn dry_run(&self, kind: &str) -> Result<bool, ApiError> {
        let mut dry = false;
        for value in self.all("dryRun") {
            match value {
                "" => {}
                "All" => dry = true,
                other => {
                    let error =
                        FieldError::not_supported("dryRun", &Value::from(vec![other.to_owned()]), &["All"]);
                    return Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]));
                }
            }
        }
        Ok(dry)
    }

    pub fn field_validation(&self, kind: &str) -> Result<FieldValidation, ApiError> {
        let text = self.get("fieldValidation");
        FieldValidation::parse(text).ok_or_else(|| {
            let error = FieldError::not_supported(
                "fieldValidation",
                &Value::from(text),
                &["", "Ignore", "Strict", "Warn"],
            );
            ApiError::invalid("meta.k8s.io", kind, "", &[error])
        })
    }

    pub fn include_object(&self) -> Result<IncludeObject, ApiError> {
        match self.get("includeObject") {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }

    fn revision(&self) -> Result<Option<u64>, FieldError> {
        let text = self.get("resourceVersion");
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = text.parse::<u64>();
        parsed.map(Some).map_err(|_| {
            FieldError::invalid(
                "resourceVersion",
                &Value::from(text),
                &format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
            )
        })
    }

    /// Returns the revision that the response of a get must not be older than.
    pub fn get_revision(&self) -> Result<u64, ApiError> {
        let revision = self.revision();
        revision
            .map(|revision| revision.unwrap_or(0))
            .map_err(|error| ApiError::unclassified(error.to_string()))
    }

    fn limit(&self) -> Result<usize, ApiError> {
        let text = self.get("limit");
        if text.is_empty() {
            return Ok(0);
        }
        let number = text.parse::<i64>().map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
        })?;
        Ok(usize::try_from(number).unwrap_or(0))
    }

    /// Returns the errors of the match rule of a list.
    fn list_match_errors(&self, revision: Option<u64>) -> Vec<FieldError> {
        let rule = self.get("resourceVersionMatch");
        let forbidden = |why| FieldError::forbidden("resourceVersionMatch", why);
        let mut errors = Vec::new();
        if !rule.is_empty() {
            if revision.is_none() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.get("continue").is_empty() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(rule, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::not_supported(
                    "resourceVersionMatch",
                    &Value::from(rule),
                    &supported,
                ));
            }
            if rule == "Exact" && revision == Some(0) {
                errors.push(forbidden(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.optional_flag("sendInitialEvents").is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    pub fn list_options(&self) -> Result<ListOptions, ApiError> {
        let revision = self
            .revision()
            .map_err(|error| ApiError::bad_request(format!("invalid resource version: {error}")))?;
        let errors = self.list_match_errors(revision);
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        Ok(ListOptions {
            revision,
            revision_match: match self.get("resourceVersionMatch") {
                "Exact" => Some(RevisionMatch::Exact),
                "NotOlderThan" => Some(RevisionMatch::NotOlderThan),
                _ => None,
            },
            limit: self.limit()?,
            continue_token: self.get("continue").to_owned(),
        })
    }

    fn watch_match_errors(&self) -> Vec<FieldError> {
        let rule = self.get("resourceVersionMatch");
        let forbidden = |why| FieldError::forbidden("resourceVersionMatch", why);
        let mut errors = Vec::new();
        if self.optional_flag("sendInitialEvents").is_none() {
            if !rule.is_empty() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            return errors;
        }
        if rule != "NotOlderThan" {
            errors.push(forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !matches!(rule, "" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                "resourceVersionMatch",
                &Value::from(rule),
                &["NotOlderThan"],
            ));
        }
        errors
    }

    pub fn watch_options(&self) -> Result<WatchOptions, ApiError> {
        let errors = self.watch_match_errors();
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let revision = self
            .revision()
            .map_err(|error| ApiError::unclassified(error.to_string()))?;
        let timeout = self
            .get("timeoutSeconds")
            .parse::<u64>()
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds).min(MAX_WATCH));
        Ok(WatchOptions {
            revision,
            send_initial_events: self.optional_flag("sendInitialEvents"),
            bookmarks: self.flag("allowWatchBookmarks"),
            timeout,
        })
    }

    /// Returns delete options from the query, overridden by those in a body.
    pub fn delete_options(&self, body: Option<&Value>) -> Result<DeleteOptions, ApiError> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let body_field = |field: &str| {
            body.and_then(|body| body.get(field))
                .filter(|value| !value.is_null())
        };
        let precondition = |field: &str| {
            let preconditions = body_field("preconditions");
            text(preconditions.and_then(|preconditions| preconditions.get(field)))
        };
        let grace = match body_field("gracePeriodSeconds") {
            Some(seconds) => seconds.as_i64(),
            None => self.get("gracePeriodSeconds").parse().ok(),
        };
        let policy =
            text(body_field("propagationPolicy")).unwrap_or_else(|| self.get("propagationPolicy").to_owned());
        let orphan = match body_field("orphanDependents") {
            Some(orphan) => orphan.as_bool(),
            None => self.optional_flag("orphanDependents"),
        };
        if !policy.is_empty() && orphan.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &Value::from(policy), why);
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        let propagation = match (policy.as_str(), orphan) {
            ("", None) => None,
            ("", Some(true)) | ("Orphan", _) => Some(PropagationPolicy::Orphan),
            ("", Some(false)) | ("Background", _) => Some(PropagationPolicy::Background),
            ("Foreground", _) => Some(PropagationPolicy::Foreground),
            (other, _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &Value::from(other), &supported);
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
        };
        Ok(DeleteOptions {
            grace_seconds: grace,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            propagation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query =
            QueryParameters::parse("labelSelector=a%3Db%2Cc&watch=true&x=1+2&allowWatchBookmarks=false");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert_eq!(query.get("x"), "1 2");
        assert!(query.is_watch() && !query.flag("allowWatchBookmarks"));
        assert!(!QueryParameters::parse("watch=0").is_watch());
    }

    #[test]
    fn a_watch_that_lasts_for_ever_did_not_fit_into_a_clock() {
        let timeout = |seconds: &str| {
            let query = QueryParameters::parse(&format!("watch=true&timeoutSeconds={seconds}"));
            query.watch_options().unwrap().timeout
        };
        assert_eq!(timeout("30"), Some(Duration::from_secs(30)));
        assert_eq!(timeout("9223372036854775807"), Some(MAX_WATCH));
        assert_eq!(timeout("0"), None);
    }

    #[test]
    fn a_match_rule_needs_a_version() {
        let error = QueryParameters::parse("resourceVersionMatch=Exact")
            .list_options()
            .unwrap_err();
        assert_eq!(
            error.message,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
    }
}
