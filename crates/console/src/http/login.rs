//! Login and logout.

use std::sync::Arc;

use ::http::StatusCode;
use mco_client::cluster::ReadError;

use super::ConsoleApp;
use super::request::FormFields;
use super::respond::{self, ConsoleResponse};
use crate::access::LoginError;
use crate::hub::Hub;
use crate::views::login::{Login, Welcome};
use crate::views::{self, PageSection, Text};

/// The credential of the user who started the console.
const OWNER: &str = "owner";

impl ConsoleApp {
    /// Returns the login form, or logs in with the code of the address.
    pub(super) async fn login_page(&self, query: &FormFields) -> ConsoleResponse {
        let code = query.get("code");
        if code.is_empty() {
            return self.login_form(StatusCode::OK, None);
        }
        let client = match self.access.with_code(code) {
            Ok(client) => client,
            Err(refused) => {
                if refused == LoginError::Expired {
                    self.announce_next_code();
                }
                return self.login_form(StatusCode::FORBIDDEN, Some(refused.to_string().into()));
            }
        };
        self.announce_next_code();
        let hub = match self.sessions.hub(OWNER) {
            Some(hub) => Ok(hub),
            None => Hub::open(client).await.map(Arc::new),
        };
        match hub {
            Ok(hub) => self.start_session(OWNER, hub),
            Err(error) => self.login_form(StatusCode::BAD_GATEWAY, Some(error.to_string().into())),
        }
    }

    fn announce_next_code(&self) {
        if let Err(error) = self.access.new_code() {
            tracing::error!("cannot create the next login code: {error}");
        }
    }

    /// Logs in with the token of the form.
    pub(super) async fn login(&self, form: &FormFields) -> ConsoleResponse {
        let token = form.get("token").trim();
        let client = match self.access.with_token(token) {
            Ok(client) => client,
            Err(refused) => return self.login_form(StatusCode::FORBIDDEN, Some(refused.to_string().into())),
        };
        let credential = format!("token {token}");
        let Ok(_slot) = self.logins.acquire().await else {
            return self.login_form(StatusCode::SERVICE_UNAVAILABLE, None);
        };
        // Every login is verified by the API server, so that a revoked token is rejected even if its user has a
        // session.
        match Hub::open(client).await {
            Ok(fresh) => {
                let hub = self.sessions.hub(&credential).unwrap_or_else(|| Arc::new(fresh));
                self.start_session(&credential, hub)
            }
            Err(ReadError::Refused { code: 401 | 403, .. }) => {
                self.login_form(StatusCode::FORBIDDEN, Some(LoginError::Token.to_string().into()))
            }
            Err(error) => self.login_form(StatusCode::BAD_GATEWAY, Some(error.to_string().into())),
        }
    }

    pub(super) fn logout(&self, id: Option<&str>) -> ConsoleResponse {
        if let Some(id) = id {
            self.sessions.end(id);
        }
        let gone = format!("{}=; {}; Max-Age=0", self.cookie, self.cookie_rules());
        respond::with_cookie(respond::redirect("/login"), &gone)
    }

    fn start_session(&self, credential: &str, hub: Arc<Hub>) -> ConsoleResponse {
        let id = match self.sessions.start(credential, hub) {
            Ok(id) => id,
            Err(error) => {
                tracing::error!("cannot start a session: {error}");
                return self.login_form(StatusCode::INTERNAL_SERVER_ERROR, None);
            }
        };
        let page = Welcome {
            frame: self.frame(None, "Logged in", PageSection::None),
        };
        let cookie = format!("{}={id}; {}", self.cookie, self.cookie_rules());
        respond::with_cookie(respond::page(views::html(&page)), &cookie)
    }

    fn cookie_rules(&self) -> &'static str {
        match self.options.tls {
            Some(_) => "Path=/; HttpOnly; SameSite=Strict; Secure",
            None => "Path=/; HttpOnly; SameSite=Strict",
        }
    }

    fn login_form(&self, status: StatusCode, problem: Option<Text>) -> ConsoleResponse {
        let page = Login {
            frame: self.frame(None, "Log in", PageSection::None),
            problem,
            has_owner: self.access.has_owner(),
        };
        respond::page_with(status, views::html(&page))
    }
}
