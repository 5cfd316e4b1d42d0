//! Request handling: sessions, routing, forms and responses.

mod actions;
mod compose;
pub mod listen;
mod live;
mod login;
mod pages;
pub mod request;
mod respond;

use std::sync::Arc;

use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{Method, Request, StatusCode};
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{ConsoleAccess, Session, Sessions};
use crate::assets;
use crate::run::ConsoleOptions;
use crate::views::{self, Frame, LiveRegion, Notice, PageSection, Text, Viewer};
use request::{BadForm, FormFields, FormLimit, RequestedHost};
use respond::ConsoleResponse;

/// Event streams of open tabs at once. Beyond it pages still refresh themselves periodically.
const STREAMS: usize = 256;
/// Concurrent logins, each of which sends requests to the API server.
const LOGINS: usize = 4;
/// Forms that are read at once: of clients without a session, and of users.
const LOGIN_FORMS: usize = 64;
const FORMS: usize = 8;

/// The state that requests share.
#[derive(Debug)]
pub struct ConsoleApp {
    access: ConsoleAccess,
    sessions: Sessions,
    options: Arc<ConsoleOptions>,
    cookie: String,
    streams: Arc<Semaphore>,
    logins: Semaphore,
    login_forms: Semaphore,
    forms: Semaphore,
}

impl ConsoleApp {
    pub fn new(access: ConsoleAccess, options: ConsoleOptions, port: u16) -> Self {
        // Browsers share cookies among the ports of a host, so the name contains the port; over TLS the prefix binds it
        // to the host.
        let cookie = match options.tls {
            Some(_) => "__Host-mco-console".to_owned(),
            None => format!("mco-console-{port}"),
        };
        Self {
            access,
            sessions: Sessions::default(),
            options: Arc::new(options),
            cookie,
            streams: Arc::new(Semaphore::new(STREAMS)),
            logins: Semaphore::new(LOGINS),
            login_forms: Semaphore::new(LOGIN_FORMS),
            forms: Semaphore::new(FORMS),
        }
    }

    /// Returns the response to a request.
    pub async fn respond<B>(&self, request: Request<B>, stop: &CancellationToken) -> ConsoleResponse
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if let Some(asset) = assets::find(parts.uri.path()) {
            return respond::asset(asset);
        }
        let Some(segments) = request::segments(parts.uri.path()) else {
            return respond::text(StatusCode::BAD_REQUEST, "the path is not UTF-8\n");
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if segments != ["healthz"]
            && let Some(response) = self.misdirected(&parts)
        {
            return response;
        }
        let query = FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let id = request::cookie(&parts.headers, &self.cookie);
        let session = id.and_then(|id| self.sessions.find(id));
        match parts.method {
            Method::GET | Method::HEAD => match (segments.as_slice(), session) {
                (["healthz"], _) => respond::text(StatusCode::OK, "ok\n"),
                // Previews of links send HEAD, which must not use up a login code.
                (["login"], _) if parts.method == Method::HEAD => {
                    self.login_page(&FormFields::default()).await
                }
                (["login"], _) => self.login_page(&query).await,
                (["live"], None) => respond::text(StatusCode::UNAUTHORIZED, "log in first\n"),
                (["live"], Some(session)) => self.live(&session, stop),
                (_, None) => respond::redirect("/login"),
                (segments, Some(session)) => self.page(&session, segments, &query).await,
            },
            Method::POST => {
                if !request::is_same_origin(&parts.headers) {
                    return respond::text(
                        StatusCode::FORBIDDEN,
                        "forms are accepted from pages of the console only\n",
                    );
                }
                // The body is read after the session was found, so that others cannot make the console store theirs.
                match (segments.as_slice(), session) {
                    (["login"], session) if request::announces_more(&body, request::LOGIN) => {
                        self.bad_form(session.as_deref(), BadForm::TooLarge, request::LOGIN)
                    }
                    (["login"], session) => match self.form(body, request::LOGIN, &self.login_forms).await {
                        Ok(form) => self.login(&form).await,
                        Err(bad) => self.bad_form(session.as_deref(), bad, request::LOGIN),
                    },
                    (_, None) => respond::redirect("/login"),
                    (segments, Some(session)) => {
                        let limit = if segments == ["plan"] {
                            request::MANIFESTS
                        } else {
                            request::ACTION
                        };
                        match self.form(body, limit, &self.forms).await {
                            Ok(form) => self.act(&session, id, segments, &form).await,
                            Err(bad) => self.bad_form(Some(&session), bad, limit),
                        }
                    }
                }
            }
            _ => respond::text(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST\n"),
        }
    }

    /// Reads a form when one of the slots is free.
    async fn form<B>(&self, body: B, limit: FormLimit, slots: &Semaphore) -> Result<FormFields, BadForm>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let _slot = slots.acquire().await.map_err(|_| BadForm::Incomplete)?;
        request::form(body, limit).await
    }

    /// Returns the response to a request for another host than ours; `None` if it is for ours.
    fn misdirected(&self, parts: &Parts) -> Option<ConsoleResponse> {
        let own = self.options.host.as_deref()?;
        match RequestedHost::of(&parts.headers, own) {
            RequestedHost::Own => None,
            RequestedHost::Loopback { port } if parts.method != Method::POST => {
                let separator = if port.is_empty() { "" } else { ":" };
                let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
                Some(respond::redirect(&format!("http://{own}{separator}{port}{path}")))
            }
            RequestedHost::Loopback { .. } | RequestedHost::Foreign => Some(respond::text(
                StatusCode::MISDIRECTED_REQUEST,
                "this console has another address; use the one that it has printed\n",
            )),
        }
    }

    fn live(&self, session: &Session, stop: &CancellationToken) -> ConsoleResponse {
        match Arc::clone(&self.streams).try_acquire_owned() {
            Ok(slot) => respond::stream(live::events(Arc::clone(&session.hub), slot, stop.clone())),
            Err(_) => respond::text(StatusCode::SERVICE_UNAVAILABLE, "too many event streams\n"),
        }
    }

    fn frame(&self, session: Option<&Session>, title: &str, section: PageSection) -> Frame {
        Frame {
            title: Text::at_most(title, 100),
            section,
            viewer: session.map(|session| Viewer {
                name: Text::at_most(&session.hub.user, 100),
                csrf: session.csrf.clone(),
                may_steer: session.hub.may_steer,
            }),
            live: LiveRegion::No,
            trouble: Vec::new(),
            version: self.options.version.clone(),
        }
    }

    fn message(
        &self,
        session: Option<&Session>,
        status: StatusCode,
        headline: &str,
        text: impl Into<Text>,
    ) -> ConsoleResponse {
        let page = Notice {
            frame: self.frame(session, headline, PageSection::None),
            headline: headline.into(),
            text: text.into(),
        };
        respond::page_with(status, views::html(&page))
    }

    fn bad_form(&self, session: Option<&Session>, bad: BadForm, limit: FormLimit) -> ConsoleResponse {
        match bad {
            BadForm::TooLarge => self.message(
                session,
                StatusCode::PAYLOAD_TOO_LARGE,
                "The form is too large",
                format!(
                    "A form may have {} KiB. Use mco plan -f for larger files.",
                    limit.bytes >> 10
                ),
            ),
            BadForm::Incomplete => self.message(
                session,
                StatusCode::BAD_REQUEST,
                "The form was not received completely",
                "Please send it again.",
            ),
        }
    }
}
