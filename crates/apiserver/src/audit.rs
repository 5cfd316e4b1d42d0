//! The audit log: one line per write, per read of a Secret and per rejected request, with user, verb, object and
//! result. It never contains the object itself.
//!
//! Rejections are limited per caller, so that a caller without permissions cannot rotate the log away.

use std::time::Instant;

use http::{Method, StatusCode};

use crate::auth::{COMPONENTS, Identity, RequestAttributes};
use crate::limits::KeyedBuckets;
use crate::registry::ObjectTarget;

/// Rejections of one caller that are logged at once, and then per second.
const REJECTION_BURST: f64 = 200.0;
const REJECTIONS_PER_SECOND: f64 = 2.0;
/// All callers without valid credentials count as one.
const UNAUTHENTICATED: &str = "";

/// Returns whether a request that authorization allowed is logged: writes, and reads of Secrets by other callers than
/// the components of the embedding program.
pub(crate) fn is_recorded(identity: &Identity, verb: &str, target: &ObjectTarget) -> bool {
    let is_read = matches!(verb, "get" | "list" | "watch");
    !is_read || (target.definition.is("", "secrets") && !identity.is_in(COMPONENTS))
}

pub(crate) fn write(identity: &Identity, verb: &str, target: &ObjectTarget, code: StatusCode) {
    tracing::info!(
        target: "audit",
        user = identity.user,
        impersonated_by = identity.impersonated_by,
        verb,
        group = target.definition.group,
        resource = target.definition.plural,
        subresource = target.subresource,
        namespace = target.namespace,
        name = target.name,
        code = code.as_u16(),
    );
}

/// Writes rejected requests to the log, within limits.
#[derive(Debug)]
pub struct RejectionLog {
    limits: KeyedBuckets,
}

impl Default for RejectionLog {
    fn default() -> Self {
        Self {
            limits: KeyedBuckets::new(REJECTIONS_PER_SECOND, REJECTION_BURST),
        }
    }
}

impl RejectionLog {
    /// Records a request that authorization denied, reads included.
    pub(crate) fn denied(&self, identity: &Identity, wanted: &RequestAttributes) {
        let caller = identity.impersonated_by.as_ref().unwrap_or(&identity.user);
        if !self.limits.spend(caller, Instant::now()) {
            return;
        }
        tracing::info!(
            target: "audit",
            user = identity.user,
            impersonated_by = identity.impersonated_by,
            verb = wanted.verb,
            group = wanted.group,
            resource = wanted.resource,
            subresource = wanted.subresource,
            namespace = wanted.namespace,
            name = wanted.name,
            path = wanted.path,
            code = StatusCode::FORBIDDEN.as_u16(),
        );
    }

    /// Records a request without valid credentials.
    pub(crate) fn unauthenticated(&self, method: &Method, path: &str) {
        if self.limits.spend(UNAUTHENTICATED, Instant::now()) {
            let code = StatusCode::UNAUTHORIZED.as_u16();
            tracing::info!(target: "audit", method = method.as_str(), path, code, "no valid credentials");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    #[test]
    fn denied_requests_and_the_user_behind_an_impersonation_were_not_logged() {
        let wanted = RequestAttributes {
            verb: "get".to_owned(),
            resource: "secrets".to_owned(),
            name: "keys".to_owned(),
            ..RequestAttributes::default()
        };
        let mut identity = Identity::new("bob", &[]);
        identity.impersonated_by = Some("alice".to_owned());
        let text = logged(|| RejectionLog::default().denied(&identity, &wanted));
        for part in [
            r#"user="bob""#,
            r#"impersonated_by="alice""#,
            r#"resource="secrets""#,
            "code=403",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = logged(|| RejectionLog::default().unauthenticated(&Method::GET, "/api"));
        assert!(text.contains("code=401") && text.contains("/api"), "{text}");
    }

    #[test]
    fn a_caller_without_permissions_filled_the_log() {
        let log = RejectionLog::default();
        let wanted = RequestAttributes::default();
        let text = logged(|| {
            for _ in 0..5000 {
                log.denied(&Identity::node("loud"), &wanted);
            }
            log.denied(&Identity::node("quiet"), &wanted);
        });
        assert!(text.lines().count() < 300, "{}", text.lines().count());
        assert!(text.contains("system:node:quiet"));
    }
}
