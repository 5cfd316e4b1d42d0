//! Errors as clients see them: Kubernetes `Status` objects.
//!
//! Each constructor is one situation, with the status code, reason and message of a kube-apiserver.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::field_error::{self, FieldError};
use crate::patch::PatchError;
use crate::store::{ExpiredRevision, StoreError};

/// The resource and object that an error is about.
#[derive(Clone, Copy, Debug)]
pub struct ErrorSubject<'a> {
    pub group: &'a str,
    /// The plural in most errors, the kind in validation errors.
    pub resource: &'a str,
    pub name: &'a str,
}

impl ErrorSubject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (field, value) in [
            ("name", self.name),
            ("group", self.group),
            ("kind", self.resource),
        ] {
            if !value.is_empty() {
                details.insert(field.to_owned(), Value::from(value));
            }
        }
        details
    }
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: StatusCode,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub details: Option<Map<String, Value>>,
    /// The continue token for a list whose own has expired.
    pub continue_token: Option<String>,
    /// Sent as a `Retry-After` header.
    pub retry_after: Option<u32>,
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            continue_token: None,
            retry_after: None,
        }
    }

    fn about(mut self, subject: ErrorSubject<'_>) -> Self {
        self.details = Some(subject.details());
        self
    }

    fn with_cause(mut self, reason: &str, message: &str, field: Option<&str>) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if let Some(field) = field {
            cause["field"] = Value::from(field);
        }
        let details = self.details.get_or_insert_default();
        let causes = details
            .entry("causes")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Some(causes) = causes.as_array_mut() {
            causes.push(cause);
        }
        self
    }

    pub fn not_found(subject: ErrorSubject<'_>) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(subject)
    }

    pub fn already_exists(subject: ErrorSubject<'_>) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(subject)
    }

    /// The name is in use until the object that has it is removed.
    pub fn still_being_deleted(subject: ErrorSubject<'_>) -> Self {
        let mut error = Self::already_exists(subject);
        error.message = format!("object is being deleted: {}", error.message);
        error
    }

    /// No generated name was free after several attempts.
    pub fn generate_name_conflict(subject: ErrorSubject<'_>) -> Self {
        let message = format!(
            "{} {:?} already exists, the server was not able to generate a unique name for the object",
            subject.qualified(),
            subject.name
        );
        let mut error = Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(subject);
        error.retry_after = Some(1);
        error
    }

    pub fn conflict(subject: ErrorSubject<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            subject.qualified(),
            subject.name
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject)
    }

    /// The optimistic lock failed: the object was modified since it was read.
    pub fn modified(subject: ErrorSubject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Another manager owns fields that an apply sets to another value.
    pub fn apply_conflict(message: impl Into<String>, causes: &[(String, String)]) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details = Some(Map::new());
        causes.iter().fold(error, |error, (field, message)| {
            error.with_cause("FieldManagerConflict", message, Some(field))
        })
    }

    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let message = field_error::invalid_message(group, kind, name, errors);
        let subject = ErrorSubject {
            group,
            resource: kind,
            name,
        };
        let refused = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(subject);
        errors.iter().fold(refused, |refused, error| {
            refused.with_cause(error.reason.code(), &error.body, Some(&error.field))
        })
    }

    /// A patch that cannot be decoded or applied.
    pub fn patch(error: &PatchError) -> Self {
        let message = error.status_message();
        match error {
            PatchError::Malformed(_) => Self::bad_request(message),
            PatchError::DoesNotApply(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_empty_details()
            }
            PatchError::TooLarge(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
            }
            PatchError::Contradictory(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message),
            PatchError::OutOfTime(_) => Self::timeout(&message),
        }
    }

    /// A body that cannot be decoded.
    pub fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Self {
        Self::unrecognized_object(
            kind,
            &format!("couldn't get version/kind; json parse error: {why}"),
            body,
        )
    }

    /// A body without `kind` or `apiVersion`.
    pub fn unrecognized_object(kind: &str, why: &str, body: &[u8]) -> Self {
        Self::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            summary(body)
        ))
    }

    /// A patch with unknown or duplicate fields under strict field validation.
    pub fn strict_patch(patch: &str, objections: &str) -> Self {
        let error = FieldError::invalid("patch", &Value::from(patch), objections);
        let message = format!(" \"\" is invalid: {error}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_cause(
            error.reason.code(),
            &error.body,
            Some(&error.field),
        )
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn forbidden(subject: ErrorSubject<'_>, why: &str) -> Self {
        let message = match (subject.resource, subject.name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", subject.qualified()),
            (_, name) => format!("{} {name:?} is forbidden: {why}", subject.qualified()),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject)
    }

    /// Changes a 403 into the error of a validating admission policy; without a reason it is 422.
    pub(crate) fn denied_by_policy(mut self, reason: &str, message: &str) -> Self {
        let (code, reason) = match reason {
            "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
            "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        };
        self.code = code;
        self.reason = Cow::Borrowed(reason);
        let details = self.details.get_or_insert_default();
        details.insert("causes".to_owned(), json!([{"message": message}]));
        self
    }

    /// The rejection of an admission webhook, with the status that it returned.
    pub(crate) fn denied_by_webhook(webhook: &str, status: &Value) -> Self {
        let denied = format!("admission webhook {webhook:?} denied the request");
        let text = |field: &str| status[field].as_str().unwrap_or_default();
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", explanation) | (explanation, _) => format!("{denied}: {explanation}"),
        };
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
        let mut error = Self::new(StatusCode::BAD_REQUEST, "", message);
        error.code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
        error.reason = Cow::Owned(text("reason").to_owned());
        error.details = status["details"].as_object().cloned();
        error
    }

    pub fn namespace_terminating(subject: ErrorSubject<'_>, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("namespace {namespace} is being terminated");
        Self::forbidden(subject, &why).with_cause(
            "NamespaceTerminating",
            &message,
            Some("metadata.namespace"),
        )
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// A 401 with a reason, for clients that cannot find it out otherwise.
    pub fn unauthorized_because(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", why)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_empty_details()
    }

    /// A path below a served group that is not served.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_empty_details()
    }

    fn with_empty_details(mut self) -> Self {
        self.details = Some(Map::new());
        self
    }

    /// The 406 response of built-in resources, which lists every media type of a kube-apiserver.
    pub fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).with_empty_details()
    }

    /// A patch in a format that built-in resources do not accept.
    pub fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
        .with_empty_details()
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        if retry_after > 0 {
            error.details = Some(Map::from_iter([(
                "retryAfterSeconds".to_owned(),
                Value::from(retry_after),
            )]));
            error.retry_after = Some(retry_after);
        }
        error
    }

    /// An eviction that a PodDisruptionBudget does not allow now.
    pub fn disruption_budget(cause: &str, retry_after: u32) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        Self::too_many_requests(message, retry_after).with_cause("DisruptionBudget", cause, None)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A list at a revision that does not exist yet.
    pub fn revision_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: {message}"),
        )
        .with_cause("ResourceVersionTooLarge", "Too large resource version", None);
        error
            .details
            .get_or_insert_default()
            .insert("retryAfterSeconds".to_owned(), Value::from(1));
        error.retry_after = Some(1);
        error
    }

    pub fn timeout(message: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = message.to_string();
        let error = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        error.with_cause_message(&message)
    }

    fn with_cause_message(mut self, message: &str) -> Self {
        self.details = Some(Map::from_iter([(
            "causes".to_owned(),
            json!([{"message": message}]),
        )]));
        self
    }

    /// A failure that Kubernetes reports without a reason.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Returns the `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), Value::from(token.as_str()));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = Value::from(self.reason.as_ref());
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(details.clone());
        }
        status
    }
}

impl From<ExpiredRevision> for ApiError {
    fn from(expired: ExpiredRevision) -> Self {
        Self::expired(expired.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded => {
                Self::too_many_requests("Too many requests, please try again later.", 1)
            }
            StoreError::TooLarge { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                format!("Request entity too large: {error}"),
            ),
            StoreError::Unwritable { .. } => {
                let mut refused = Self::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "InsufficientStorage",
                    error.to_string(),
                );
                refused.retry_after = Some(1);
                refused
            }
            other => Self::internal(other),
        }
    }
}

/// Returns the beginning of a body, for messages.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (shown, rest) = body.split_at(body.len().min(SHOWN));
    let more = if rest.is_empty() { "" } else { " ..." };
    match shown {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{more}", String::from_utf8_lossy(shown)),
        _ => {
            shown
                .iter()
                .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
                + more
        }
    }
}

/// Returns the `Status` of a successful request without another result.
pub fn success(group: &str, plural: &str, name: &str, uid: &str) -> Value {
    let mut details = ErrorSubject {
        group,
        resource: plural,
        name,
    }
    .details();
    if !uid.is_empty() {
        details.insert("uid".to_owned(), Value::from(uid));
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
