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

use ::http::{Method, Request, StatusCode};
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{ConsoleAccess, Session, Sessions};
use crate::assets;
use crate::run::ConsoleOptions;
use crate::views::{self, Frame, LiveRegion, Notice, PageSection, Text, Viewer};
use request::FormFields;
use respond::ConsoleResponse;

/// Event streams of open tabs at once. Beyond it pages still refresh themselves periodically.
const STREAMS: usize = 256;
/// Concurrent logins, each of which sends requests to the API server.
const LOGINS: usize = 4;

/// The state that requests share.
#[derive(Debug)]
pub struct ConsoleApp {
    access: ConsoleAccess,
    sessions: Sessions,
    options: ConsoleOptions,
    cookie: String,
    streams: Arc<Semaphore>,
    logins: Semaphore,
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
            options,
            cookie,
            streams: Arc::new(Semaphore::new(STREAMS)),
            logins: Semaphore::new(LOGINS),
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
        let query = FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let id = request::cookie(&parts.headers, &self.cookie);
        let session = id.and_then(|id| self.sessions.find(id));
        match parts.method {
            Method::GET | Method::HEAD => match (segments.as_slice(), session) {
                (["healthz"], _) => respond::text(StatusCode::OK, "ok\n"),
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
                let form = match request::form(body).await {
                    Ok(form) => form,
                    Err(bad) => return self.bad_form(session.as_deref(), bad),
                };
                match (segments.as_slice(), session) {
                    (["login"], _) => self.login(&form).await,
                    (_, None) => respond::redirect("/login"),
                    (segments, Some(session)) => self.act(&session, id, segments, &form).await,
                }
            }
            _ => respond::text(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST\n"),
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

    fn bad_form(&self, session: Option<&Session>, bad: request::BadForm) -> ConsoleResponse {
        match bad {
            request::BadForm::TooLarge => self.message(
                session,
                StatusCode::PAYLOAD_TOO_LARGE,
                "The form is too large",
                format!(
                    "A form may have {} MiB. Use mco plan -f for larger files.",
                    request::MAX_FORM_BYTES >> 20
                ),
            ),
            request::BadForm::Incomplete => self.message(
                session,
                StatusCode::BAD_REQUEST,
                "The form was not received completely",
                "Please send it again.",
            ),
        }
    }
}
