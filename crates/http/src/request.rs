//! Reading requests: bearer tokens, and bodies within a size and a deadline.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use thiserror::Error;

/// Returns the bearer token of a request. The scheme is case-insensitive; an empty token counts as none.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Why a body could not be read.
#[derive(Debug, Error)]
pub enum BodyError {
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the request body did not arrive within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("reading the request body: {0}")]
    Failed(Box<dyn Error + Send + Sync>),
}

/// Reads a whole body of at most `limit` bytes within `deadline`.
pub async fn read_body<B>(body: B, limit: usize, deadline: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    match tokio::time::timeout(deadline, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(limit)),
        Ok(Err(error)) => Err(BodyError::Failed(error)),
        Err(_) => Err(BodyError::TimedOut(deadline)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[test]
    fn only_a_bearer_token_is_one() {
        for (name, header, expected) in [
            ("the usual spelling", Some("Bearer abc"), Some("abc")),
            ("lower case", Some("bearer abc"), Some("abc")),
            ("more space", Some("Bearer   abc "), Some("abc")),
            ("no header", None, None),
            ("an empty token", Some("Bearer "), None),
            ("no token", Some("Bearer"), None),
            ("a password", Some("Basic abc"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, HeaderValue::from_static(header));
            }
            assert_eq!(bearer_token(&headers), expected, "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap());
        assert_eq!(bearer_token(&headers), None, "not text");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_within_its_size_and_deadline() {
        let deadline = Duration::from_secs(30);
        let full = || Full::new(Bytes::from_static(b"12345"));
        assert_eq!(read_body(full(), 5, deadline).await.unwrap(), "12345");
        assert!(matches!(
            read_body(full(), 4, deadline).await,
            Err(BodyError::TooLarge(4))
        ));
        let endless = StreamBody::new(futures::stream::pending::<
            Result<http_body::Frame<Bytes>, std::convert::Infallible>,
        >());
        assert!(matches!(
            read_body(endless, 5, deadline).await,
            Err(BodyError::TimedOut(_))
        ));
    }
}
