//! Actions of forms, each protected by the CSRF token of the session.

use std::sync::Arc;

use ::http::StatusCode;
use jiff::Timestamp;
use mco_client::forecast::Edit;
use mco_client::plan;
use mco_core::config::manifest;
use mco_core::pipeline::bootstrap::BootstrapSettings;
use mco_runtime::run_blocking;

use super::ConsoleApp;
use super::request::FormFields;
use super::respond::{self, ConsoleResponse};
use crate::access::{Session, TokenHash};
use crate::views::plan::PlanQuestion;
use crate::views::{self, PageSection, link};

impl ConsoleApp {
    pub(super) async fn act(
        &self,
        session: &Session,
        id: Option<&str>,
        segments: &[&str],
        form: &FormFields,
    ) -> ConsoleResponse {
        if TokenHash::of(form.get("csrf")) != TokenHash::of(&session.csrf) {
            return self.message(
                Some(session),
                StatusCode::FORBIDDEN,
                "The form was rejected",
                "It does not belong to your session, so nothing was changed. Reload the page and try again.",
            );
        }
        match segments {
            ["logout"] => self.logout(id),
            ["plan"] => self.plan(session, form).await,
            ["pools", pool, "pause"] => self.set_paused(session, pool, true).await,
            ["pools", pool, "resume"] => self.set_paused(session, pool, false).await,
            ["nodes", node, request @ ("compare" | "adopt" | "release")] => {
                self.request_adoption(session, node, request).await
            }
            _ => self.not_found(session),
        }
    }

    async fn set_paused(&self, session: &Session, pool: &str, paused: bool) -> ConsoleResponse {
        match session.hub.set_paused(pool, paused).await {
            Ok(()) => respond::redirect(&link::pool(pool)),
            Err(error) => self.message(
                Some(session),
                StatusCode::FORBIDDEN,
                "The pool was not changed",
                error.to_string(),
            ),
        }
    }

    async fn request_adoption(&self, session: &Session, node: &str, request: &str) -> ConsoleResponse {
        match session.hub.request_adoption(node, request).await {
            Ok(()) => respond::redirect(&link::adoption(node)),
            Err(error) => self.message(
                Some(session),
                StatusCode::FORBIDDEN,
                "The node was not changed",
                error.to_string(),
            ),
        }
    }

    async fn plan(&self, session: &Session, form: &FormFields) -> ConsoleResponse {
        let asked = PlanQuestion {
            yaml: form.get("yaml").replace("\r\n", "\n"),
            delete: form.get("delete").trim().to_owned(),
            contents: form.has("contents"),
        };
        let report = self.plan_edits(session, &asked).await;
        let outcome = report.as_ref().map_err(Clone::clone);
        let frame = self.frame(Some(session), "Plan", PageSection::Plan);
        respond::page(views::html(&views::plan::plan(frame, asked, Some(outcome))))
    }

    async fn plan_edits(&self, session: &Session, asked: &PlanQuestion) -> Result<plan::PlanReport, String> {
        let manifests = manifest::read("pasted", asked.yaml.as_bytes()).map_err(|error| error.to_string())?;
        let mut edits: Vec<Edit> = manifests.into_iter().map(Edit::Apply).collect();
        if !asked.delete.is_empty() {
            edits.push(Edit::Delete(asked.delete.clone()));
        }
        if edits.is_empty() {
            return Err("There is nothing to plan: paste an object, or name one to delete.".to_owned());
        }
        let (options, client) = (Arc::clone(&self.options), session.hub.client().clone());
        let runtime = tokio::runtime::Handle::current();
        // A plan renders all pools, which would block the thread of other requests.
        let planned = run_blocking("console", "a plan", move || {
            let settings = BootstrapSettings {
                templates: options.templates.as_ref(),
                pull_secret: None,
                controller_version: &options.version,
                payload_version: None,
                stage: None,
                base: None,
            };
            runtime.block_on(plan::plan(&client, &edits, &settings))
        });
        let started = Timestamp::now();
        let report = planned.await.map_err(|failed| failed.to_string())?;
        tracing::debug!(took = %Timestamp::now().duration_since(started), "planned");
        report.map_err(|error| error.to_string())
    }
}
