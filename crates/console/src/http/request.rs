//! Parsing of requests: path, form, cookie and origin.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{COOKIE, HOST, ORIGIN};
use hyper::body::Body;
use mco_http::{BodyError, read_body};
use percent_encoding::percent_decode_str;

/// How much of a form is read, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct FormLimit {
    pub bytes: usize,
    deadline: Duration,
}

/// Room for pasted manifests; a MachineConfig has at most a third of it.
pub const MANIFESTS: FormLimit = FormLimit {
    bytes: 4 << 20,
    deadline: Duration::from_secs(30),
};
/// Room for a token. Clients without a session send this form, so it has little time.
pub const LOGIN: FormLimit = FormLimit {
    bytes: 64 << 10,
    deadline: Duration::from_secs(5),
};
/// Buttons.
pub const ACTION: FormLimit = FormLimit {
    bytes: 64 << 10,
    deadline: Duration::from_secs(30),
};
const FETCH_SITE: &str = "sec-fetch-site";

/// Returns the decoded segments of a path; `None` if it is not UTF-8.
pub fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(|part| Some(percent_decode_str(part).decode_utf8().ok()?.into_owned()))
        .collect()
}

/// The fields of a query or form; the last value of a repeated name wins.
#[derive(Debug, Default)]
pub struct FormFields(HashMap<String, String>);

impl FormFields {
    pub fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }
}

/// Why a form could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadForm {
    TooLarge,
    Incomplete,
}

/// Whether a body announces more than the limit. The form of a user is read up to the limit regardless: a browser that
/// cannot send all of it shows no response.
pub fn announces_more(body: &impl Body, limit: FormLimit) -> bool {
    body.size_hint().lower() > u64::try_from(limit.bytes).unwrap_or(u64::MAX)
}

/// Reads a form within its limit.
pub async fn form<B>(body: B, limit: FormLimit) -> Result<FormFields, BadForm>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match read_body(body, limit.bytes, limit.deadline).await {
        Ok(body) => Ok(FormFields::parse(&body)),
        Err(BodyError::TooLarge(_)) => Err(BadForm::TooLarge),
        Err(BodyError::TimedOut(_) | BodyError::Failed(_)) => Err(BadForm::Incomplete),
    }
}

/// Returns the value of a cookie.
pub fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Whether a request is for this console, by the name under which browsers reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedHost<'h> {
    Own,
    /// The loopback interface by another name, with its port: our own name is a better one.
    Loopback {
        port: &'h str,
    },
    /// A name that a page of another site may have pointed at this address (DNS rebinding).
    Foreign,
}

impl<'h> RequestedHost<'h> {
    pub fn of(headers: &'h HeaderMap, own: &str) -> Self {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        let Some(host) = host else {
            return Self::Foreign;
        };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
            _ => (host, ""),
        };
        if name.eq_ignore_ascii_case(own) {
            return Self::Own;
        }
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if is_loopback || name.eq_ignore_ascii_case("localhost") {
            Self::Loopback { port }
        } else {
            Self::Foreign
        }
    }
}

/// Whether a form was sent by a page of this console. Browsers share cookies among the ports of a host, so a session
/// cookie alone proves nothing.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    // A value that is not text is present and matches nothing; as absent it would count as that of another client.
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text(FETCH_SITE) {
        return matches!(site, "same-origin" | "none");
    }
    match (text(ORIGIN.as_str()), text(HOST.as_str())) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, of)| of == host),
        (Some(_), None) => false,
        // The client is not a browser.
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_origins_are_detected() {
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);
        let cases: &[Case<'_>] = &[
            ("our page", &[("sec-fetch-site", "same-origin")], true),
            ("typed by hand", &[("sec-fetch-site", "none")], true),
            (
                "another port of this host",
                &[("sec-fetch-site", "same-site")],
                false,
            ),
            ("somewhere else", &[("sec-fetch-site", "cross-site")], false),
            (
                "an old browser",
                &[("origin", "http://127.0.0.1:7480"), ("host", "127.0.0.1:7480")],
                true,
            ),
            (
                "an old browser, another port",
                &[("origin", "http://127.0.0.1:9999"), ("host", "127.0.0.1:7480")],
                false,
            ),
            (
                "a page without origin",
                &[("origin", "null"), ("host", "a")],
                false,
            ),
            ("curl", &[("host", "127.0.0.1:7480")], true),
            (
                "an origin that is not text",
                &[("origin", "http://ä"), ("host", "127.0.0.1:7480")],
                false,
            ),
            ("a site that is not text", &[("sec-fetch-site", "ä")], false),
        ];
        for (name, headers, ours) in cases {
            let headers = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            assert_eq!(is_same_origin(&headers.collect()), *ours, "{name}");
        }
    }

    #[test]
    fn a_name_that_was_rebound_to_this_address_is_foreign() {
        for (host, expected) in [
            ("mco-1.localhost:7480", RequestedHost::Own),
            ("MCO-1.localhost", RequestedHost::Own),
            ("127.0.0.1:7480", RequestedHost::Loopback { port: "7480" }),
            ("[::1]:7480", RequestedHost::Loopback { port: "7480" }),
            ("localhost", RequestedHost::Loopback { port: "" }),
            ("evil.example.com:7480", RequestedHost::Foreign),
            ("mco-2.localhost:7480", RequestedHost::Foreign),
            ("192.0.2.1:7480", RequestedHost::Foreign),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            assert_eq!(RequestedHost::of(&headers, "mco-1.localhost"), expected, "{host}");
        }
        assert_eq!(RequestedHost::of(&HeaderMap::new(), "a"), RequestedHost::Foreign);
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "xmco=1; mco=2; mco-x=3".parse().unwrap());
        assert_eq!(cookie(&headers, "mco"), Some("2"));
        assert_eq!(cookie(&headers, "co"), None);
    }

    #[test]
    fn paths_are_decoded_after_they_are_split() {
        assert_eq!(
            segments("/nodes/a%2Fb%3Cscript%3E").unwrap(),
            ["nodes", "a/b<script>"]
        );
        assert_eq!(segments("/%ff"), None);
    }
}
