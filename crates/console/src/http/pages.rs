//! Pages: gather the inputs of a view and render it.

use ::http::StatusCode;
use jiff::Timestamp;
use mco_client::cluster::ReadError;
use mco_client::comparison;
use mco_client::snapshot::Snapshot;

use super::ConsoleApp;
use super::compose;
use super::request::FormFields;
use super::respond::{self, ConsoleResponse};
use crate::access::Session;
use crate::views::node::Between;
use crate::views::search::SearchQuery;
use crate::views::{self, Frame, LiveRegion, PageSection, Show, Text};

impl ConsoleApp {
    pub(super) async fn page(
        &self,
        session: &Session,
        segments: &[&str],
        query: &FormFields,
    ) -> ConsoleResponse {
        let show = if query.has("contents") {
            Show::Contents
        } else {
            Show::Summaries
        };
        match segments {
            [] => self.overview(session).await,
            ["pools", name] => self.pool(session, name, query).await,
            ["policies"] => self.policies(session).await,
            ["policies", name] => self.policy(session, name).await,
            ["nodes", name] => self.node(session, name, show).await,
            ["nodes", name, "adoption"] => self.adoption(session, name).await,
            ["builds"] => self.builds(session).await,
            ["configs"] => self.configs(session).await,
            ["configs", name] => self.config(session, name, show).await,
            ["plan"] => {
                let frame = self.frame(Some(session), "Plan", PageSection::Plan);
                let page = views::plan::plan(frame, views::plan::PlanQuestion::default(), None);
                respond::page(views::html(&page))
            }
            ["search"] => self.search(session, query).await,
            _ => self.not_found(session),
        }
    }

    pub(super) fn not_found(&self, session: &Session) -> ConsoleResponse {
        self.message(
            Some(session),
            StatusCode::NOT_FOUND,
            "Not found",
            "The object may have been deleted.",
        )
    }

    fn live_frame(&self, session: &Session, title: &str, snapshot: &Snapshot) -> Frame {
        Frame {
            live: LiveRegion::Yes,
            trouble: snapshot.trouble.iter().map(Text::new).collect(),
            ..self.frame(Some(session), title, PageSection::Pools)
        }
    }

    async fn overview(&self, session: &Session) -> ConsoleResponse {
        let snapshot = session.hub.snapshot().await;
        let frame = self.live_frame(session, "Pools", &snapshot);
        let page = views::overview::overview(frame, &snapshot, Timestamp::now());
        respond::page(views::html(&page))
    }

    async fn builds(&self, session: &Session) -> ConsoleResponse {
        let snapshot = session.hub.snapshot().await;
        let frame = self.live_frame(session, "OS image builds", &snapshot);
        let page = views::builds::builds(frame, &snapshot, Timestamp::now());
        respond::page(views::html(&page))
    }

    async fn pool(&self, session: &Session, name: &str, query: &FormFields) -> ConsoleResponse {
        let snapshot = session.hub.snapshot().await;
        let frame = self.live_frame(session, name, &snapshot);
        let choice = views::pool::NodeFilter::parse(query.get("show"), query.get("page"));
        match views::pool::pool(frame, &snapshot, name, choice, Timestamp::now()) {
            Some(page) => respond::page(views::html(&page)),
            None => self.not_found(session),
        }
    }

    async fn policies(&self, session: &Session) -> ConsoleResponse {
        let snapshot = session.hub.snapshot().await;
        let frame = Frame {
            section: PageSection::Policies,
            ..self.live_frame(session, "Rollout policies", &snapshot)
        };
        respond::page(views::html(&views::policy::policies(frame, &snapshot)))
    }

    async fn policy(&self, session: &Session, name: &str) -> ConsoleResponse {
        let snapshot = session.hub.snapshot().await;
        let frame = Frame {
            section: PageSection::Policies,
            ..self.live_frame(session, name, &snapshot)
        };
        match views::policy::policy(frame, &snapshot, name, Timestamp::now()) {
            Some(page) => respond::page(views::html(&page)),
            None => self.not_found(session),
        }
    }

    async fn node(&self, session: &Session, name: &str, show: Show) -> ConsoleResponse {
        let hub = &session.hub;
        let snapshot = hub.snapshot().await;
        let Some((_, overview)) = snapshot.node(name) else {
            return self.not_found(session);
        };
        let events = hub.events(name).await.map_err(|error| error.to_string());
        let frame = self.live_frame(session, name, &snapshot);
        let page = |between: &Between<'_>| {
            views::node::node(frame, &snapshot, name, between, events, show, Timestamp::now())
        };
        let (current, desired) =
            overview.map_or(("", ""), |node| (node.current.as_str(), node.desired.as_str()));
        let page = if current == desired || current.is_empty() || desired.is_empty() {
            page(&Between::Nothing)
        } else {
            match (hub.rendered(current).await, hub.rendered(desired).await) {
                (Ok(Some(old)), Ok(Some(new))) => {
                    let comparison = comparison::compare(&old, &new, &hub.rules().await);
                    page(&Between::Configs(&comparison, &old, &new))
                }
                (Err(error), _) | (_, Err(error)) => page(&Between::Unknown(error.to_string())),
                _ => page(&Between::Unknown(
                    "One of the two configs is no longer in the cluster.".to_owned(),
                )),
            }
        };
        match page {
            Some(page) => respond::page(views::html(&page)),
            None => self.not_found(session),
        }
    }

    async fn adoption(&self, session: &Session, name: &str) -> ConsoleResponse {
        let state = match session.hub.adoption(name).await {
            Ok(Some(state)) => state,
            Ok(None) => return self.not_found(session),
            Err(error) => return self.unreadable(session, &error),
        };
        let frame = self.frame(Some(session), name, PageSection::Pools);
        respond::page(views::html(&views::adoption::adoption(frame, name, &state)))
    }

    async fn configs(&self, session: &Session) -> ConsoleResponse {
        let sources = match session.hub.sources().await {
            Ok(sources) => sources,
            Err(error) => return self.unreadable(session, &error),
        };
        let frame = self.frame(Some(session), "MachineConfigs", PageSection::Configs);
        let listed = compose::listed(&sources, &self.options.version);
        respond::page(views::html(&views::configs::configs(frame, listed)))
    }

    async fn config(&self, session: &Session, name: &str, show: Show) -> ConsoleResponse {
        let config = match session.hub.config(name).await {
            Ok(Some(config)) => config,
            Ok(None) => return self.not_found(session),
            Err(error) => return self.unreadable(session, &error),
        };
        let sources = match session.hub.sources().await {
            Ok(sources) => sources,
            Err(error) => return self.unreadable(session, &error),
        };
        let snapshot = session.hub.snapshot().await;
        let frame = self.frame(Some(session), name, PageSection::Configs);
        let version = &self.options.version;
        match compose::config(
            frame,
            config,
            &sources,
            &snapshot,
            version,
            show,
            Timestamp::now(),
        ) {
            Ok(page) => respond::page(views::html(&page)),
            Err(invalid) => self.message(
                Some(session),
                StatusCode::OK,
                "This MachineConfig cannot be used",
                invalid.to_string(),
            ),
        }
    }

    async fn search(&self, session: &Session, query: &FormFields) -> ConsoleResponse {
        let question = SearchQuery {
            query: query.get("q"),
            node: query.get("node"),
        };
        let frame = self.frame(Some(session), "Search", PageSection::Search);
        let snapshot = session.hub.snapshot().await;
        if question.query.trim().is_empty() {
            let page = views::search::search(frame, question, &[], &snapshot, &[]);
            return respond::page(views::html(&page));
        }
        let sources = match session.hub.sources().await {
            Ok(sources) => sources,
            Err(error) => return self.unreadable(session, &error),
        };
        let explained = compose::explain_pools(&sources, &self.options.version);
        let names = compose::config_names(&sources);
        let page = views::search::search(frame, question, &explained, &snapshot, &names);
        respond::page(views::html(&page))
    }

    fn unreadable(&self, session: &Session, error: &ReadError) -> ConsoleResponse {
        let status = match error {
            ReadError::Refused { code, .. } => StatusCode::from_u16(*code).unwrap_or(StatusCode::BAD_GATEWAY),
            _ => StatusCode::BAD_GATEWAY,
        };
        self.message(
            Some(session),
            status,
            "Request rejected by the API server",
            error.to_string(),
        )
    }
}
