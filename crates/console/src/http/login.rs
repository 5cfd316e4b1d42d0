//! Logging in and out.

use std::sync::Arc;

use ::http::StatusCode;

use super::App;
use super::request::Fields;
use super::respond::{self, Answer};
use crate::hub::Hub;
use crate::views::login::{Login, Welcome};
use crate::views::{self, Section, Text};
use mco_client::cluster::ReadError;

/// Stands for the person who started the console.
const OWNER: &str = "owner";

impl App {
    /// The form, or the way in for an address with a code.
    pub(super) async fn login_page(&self, query: &Fields) -> Answer {
        let code = query.get("code");
        if code.is_empty() {
            return self.login_form(StatusCode::OK, None);
        }
        let client = match self.door.with_code(code) {
            Ok(client) => client,
            Err(refused) => return self.login_form(StatusCode::FORBIDDEN, Some(refused.to_string().into())),
        };
        if let Err(error) = self.door.new_code() {
            tracing::error!("no further login code: {error}");
        }
        let hub = match self.sessions.hub(OWNER) {
            Some(hub) => Ok(hub),
            None => Hub::open(client).await.map(Arc::new),
        };
        match hub {
            Ok(hub) => self.welcome(OWNER, hub),
            Err(error) => self.login_form(StatusCode::BAD_GATEWAY, Some(error.to_string().into())),
        }
    }

    /// A token from the form.
    pub(super) async fn login(&self, form: &Fields) -> Answer {
        let token = form.get("token").trim();
        let client = match self.door.with_token(token) {
            Ok(client) => client,
            Err(refused) => return self.login_form(StatusCode::FORBIDDEN, Some(refused.to_string().into())),
        };
        let credential = format!("token {token}");
        let Ok(_slot) = self.logins.acquire().await else {
            return self.login_form(StatusCode::SERVICE_UNAVAILABLE, None);
        };
        // The cluster is asked each time: a token that it no longer accepts opens nothing, whoever is still logged in.
        match Hub::open(client).await {
            Ok(fresh) => {
                let hub = self.sessions.hub(&credential).unwrap_or_else(|| Arc::new(fresh));
                self.welcome(&credential, hub)
            }
            Err(ReadError::Refused { code: 401 | 403, .. }) => self.login_form(
                StatusCode::FORBIDDEN,
                Some(crate::access::Refused::Token.to_string().into()),
            ),
            Err(error) => self.login_form(StatusCode::BAD_GATEWAY, Some(error.to_string().into())),
        }
    }

    pub(super) fn logout(&self, id: Option<&str>) -> Answer {
        if let Some(id) = id {
            self.sessions.end(id);
        }
        let gone = format!("{}=; {}; Max-Age=0", self.cookie, self.cookie_rules());
        respond::with_cookie(respond::see("/login"), &gone)
    }

    fn welcome(&self, credential: &str, hub: Arc<Hub>) -> Answer {
        let id = match self.sessions.start(credential, hub) {
            Ok(id) => id,
            Err(error) => {
                tracing::error!("no session: {error}");
                return self.login_form(StatusCode::INTERNAL_SERVER_ERROR, None);
            }
        };
        let page = Welcome {
            frame: self.frame(None, "Logged in", Section::None),
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

    fn login_form(&self, status: StatusCode, problem: Option<Text>) -> Answer {
        let page = Login {
            frame: self.frame(None, "Log in", Section::None),
            problem,
            has_owner: self.door.has_owner(),
        };
        respond::page_with(status, views::html(&page))
    }
}
