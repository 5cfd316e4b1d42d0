//! Parsing of requests: path, form, cookie and origin.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{COOKIE, HOST, ORIGIN};
use hyper::body::Body;
use mco_http::{BodyError, read_body};
use percent_encoding::percent_decode_str;

/// Room for pasted manifests; a MachineConfig has at most a third of it.
pub const MAX_FORM_BYTES: usize = 4 << 20;
const FORM_DEADLINE: Duration = Duration::from_secs(30);
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

/// Reads a form within its size limit and deadline.
pub async fn form<B>(body: B) -> Result<FormFields, BadForm>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match read_body(body, MAX_FORM_BYTES, FORM_DEADLINE).await {
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
