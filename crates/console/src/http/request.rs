//! What of a request matters: its path, its form, its cookie and where it comes from.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{COOKIE, HOST, ORIGIN};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Body;
use percent_encoding::percent_decode_str;

/// Pasted manifests; a MachineConfig has at most a third of it.
pub const LARGEST_FORM: usize = 4 << 20;
const FORM_PATIENCE: Duration = Duration::from_secs(30);
const FETCH_SITE: &str = "sec-fetch-site";

/// The parts of a path between its slashes, decoded. `None` if it is not text.
pub fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(|part| Some(percent_decode_str(part).decode_utf8().ok()?.into_owned()))
        .collect()
}

/// Names and values of a query or form; of a repeated name the last counts.
#[derive(Debug, Default)]
pub struct Fields(HashMap<String, String>);

impl Fields {
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
    CutOff,
}

pub async fn form<B>(body: B) -> Result<Fields, BadForm>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reading = Limited::new(body, LARGEST_FORM).collect();
    match tokio::time::timeout(FORM_PATIENCE, reading).await {
        Ok(Ok(body)) => Ok(Fields::parse(&body.to_bytes())),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(BadForm::TooLarge),
        _ => Err(BadForm::CutOff),
    }
}

pub fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Whether a form was sent by one of our own pages. Cookies do not tell ports of one host apart, so they alone prove
/// nothing.
pub fn is_our_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(FETCH_SITE) {
        return matches!(site, "same-origin" | "none");
    }
    match (text(ORIGIN.as_str()), text(HOST.as_str())) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, of)| of == host),
        (Some(_), None) => false,
        // Not a browser.
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_pages_are_told_from_ours() {
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
        ];
        for (name, headers, ours) in cases {
            let headers = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            assert_eq!(is_our_own(&headers.collect()), *ours, "{name}");
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
    fn paths_are_decoded_after_they_are_taken_apart() {
        assert_eq!(
            segments("/nodes/a%2Fb%3Cscript%3E").unwrap(),
            ["nodes", "a/b<script>"]
        );
        assert_eq!(segments("/%ff"), None);
    }
}
