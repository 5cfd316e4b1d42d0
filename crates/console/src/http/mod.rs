//! From a request to an answer: who asks, what for, and with what right.

mod actions;
mod compose;
pub mod listen;
mod live;
mod login;
mod pages;
mod request;
mod respond;

use std::sync::Arc;

use ::http::{Method, Request, StatusCode};
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{Door, Session, Sessions};
use crate::assets;
use crate::run::Options;
use crate::views::{self, Frame, Live, Message, Section, Text, Viewer};
use request::Fields;
use respond::Answer;

/// Tabs that listen for news at once. Beyond it pages still refresh themselves now and then.
const STREAMS: usize = 256;
/// Logins ask the cluster something; a guesser must not ask much.
const LOGINS: usize = 4;

/// Everything a request needs.
#[derive(Debug)]
pub struct App {
    door: Door,
    sessions: Sessions,
    options: Options,
    cookie: String,
    streams: Arc<Semaphore>,
    logins: Semaphore,
}

impl App {
    pub fn new(door: Door, options: Options, port: u16) -> Self {
        // Cookies do not tell ports apart, so the name does; over TLS the browser itself binds it to this host.
        let cookie = match options.tls {
            Some(_) => "__Host-mco-console".to_owned(),
            None => format!("mco-console-{port}"),
        };
        Self {
            door,
            sessions: Sessions::default(),
            options,
            cookie,
            streams: Arc::new(Semaphore::new(STREAMS)),
            logins: Semaphore::new(LOGINS),
        }
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>, stop: &CancellationToken) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if let Some(asset) = assets::find(parts.uri.path()) {
            return respond::asset(asset);
        }
        let Some(segments) = request::segments(parts.uri.path()) else {
            return respond::text(StatusCode::BAD_REQUEST, "the address is not text\n");
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let query = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let id = request::cookie(&parts.headers, &self.cookie);
        let session = id.and_then(|id| self.sessions.find(id));
        match parts.method {
            Method::GET | Method::HEAD => match (segments.as_slice(), session) {
                (["healthz"], _) => respond::text(StatusCode::OK, "ok\n"),
                (["login"], _) => self.login_page(&query).await,
                (["live"], None) => respond::text(StatusCode::UNAUTHORIZED, "log in first\n"),
                (["live"], Some(session)) => self.live(&session, stop),
                (_, None) => respond::see("/login"),
                (segments, Some(session)) => self.page(&session, segments, &query).await,
            },
            Method::POST => {
                if !request::is_our_own(&parts.headers) {
                    return respond::text(
                        StatusCode::FORBIDDEN,
                        "forms are taken from the console's own pages alone\n",
                    );
                }
                let form = match request::form(body).await {
                    Ok(form) => form,
                    Err(bad) => return self.bad_form(session.as_deref(), bad),
                };
                match (segments.as_slice(), session) {
                    (["login"], _) => self.login(&form).await,
                    (_, None) => respond::see("/login"),
                    (segments, Some(session)) => self.act(&session, id, segments, &form).await,
                }
            }
            _ => respond::text(
                StatusCode::METHOD_NOT_ALLOWED,
                "GET and POST alone are understood\n",
            ),
        }
    }

    fn live(&self, session: &Session, stop: &CancellationToken) -> Answer {
        match Arc::clone(&self.streams).try_acquire_owned() {
            Ok(slot) => respond::stream(live::events(Arc::clone(&session.hub), slot, stop.clone())),
            Err(_) => respond::text(StatusCode::SERVICE_UNAVAILABLE, "too many tabs listen\n"),
        }
    }

    fn frame(&self, session: Option<&Session>, title: &str, section: Section) -> Frame {
        Frame {
            title: Text::at_most(title, 100),
            section,
            viewer: session.map(|session| Viewer {
                name: Text::at_most(&session.hub.user, 100),
                csrf: session.csrf.clone(),
                may_steer: session.hub.may_steer,
            }),
            live: Live::No,
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
    ) -> Answer {
        let page = Message {
            frame: self.frame(session, headline, Section::None),
            headline: headline.into(),
            text: text.into(),
        };
        respond::page_with(status, views::html(&page))
    }

    fn bad_form(&self, session: Option<&Session>, bad: request::BadForm) -> Answer {
        match bad {
            request::BadForm::TooLarge => self.message(
                session,
                StatusCode::PAYLOAD_TOO_LARGE,
                "That is too much",
                format!(
                    "A form may have {} MiB. Use mco plan -f for larger files.",
                    request::LARGEST_FORM >> 20
                ),
            ),
            request::BadForm::CutOff => self.message(
                session,
                StatusCode::BAD_REQUEST,
                "The form did not arrive",
                "Please send it again.",
            ),
        }
    }
}
