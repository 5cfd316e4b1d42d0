//! A server under test: raw requests, no interpretation, every wait bounded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::transcript::{Credentials, Payload};

/// Long enough for a loaded machine; a slower response is a failure.
const ANSWER: Duration = Duration::from_secs(30);

/// The default field manager of writes.
const USER_AGENT: &str = "parity/1.0";

/// Headers that clients act on.
const COMPARED_HEADERS: [&str; 3] = ["content-type", "retry-after", "warning"];

#[derive(Clone)]
pub struct Server {
    admin: Client,
    anonymous: Client,
    wrong_token: Client,
    kubeconfig: PathBuf,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("kubeconfig", &self.kubeconfig)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("kubeconfig {path}")]
    Kubeconfig {
        path: PathBuf,
        source: Box<kube::config::KubeconfigError>,
    },
    #[error("client for {path}")]
    Client { path: PathBuf, source: Box<kube::Error> },
    #[error("the request cannot be built")]
    Request(#[from] http::Error),
    #[error("the request was not answered")]
    Transport(#[source] Box<kube::Error>),
    #[error("no answer within {} s", ANSWER.as_secs())]
    Deadline,
}

/// A request with its variables filled in.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Payload,
    pub credentials: Credentials,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, Value>,
    /// JSON where the body is JSON, else its text; `None` when empty.
    pub body: Option<Value>,
}

/// An open watch; lines arrive as the server writes them.
#[derive(Debug)]
pub struct Stream {
    lines: mpsc::Receiver<Value>,
}

/// The result of waiting for an event.
#[derive(Debug)]
pub enum Next {
    Event(Value),
    Closed,
    Silence,
}

impl Server {
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, ServerError> {
        let wrap = |source| ServerError::Kubeconfig {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(wrap)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(wrap)?;
        // The status of a blocked or throttled request is compared.
        config.default_retry = false;
        let mut without = config.clone();
        without.auth_info = AuthInfo::default();
        let mut wrong = without.clone();
        wrong.auth_info.token = Some("not-a-token-of-this-server".to_owned().into());
        let client = |config: Config| {
            Client::try_from(config).map_err(|source| ServerError::Client {
                path: path.to_owned(),
                source: Box::new(source),
            })
        };
        Ok(Self {
            admin: client(config)?,
            anonymous: client(without)?,
            wrong_token: client(wrong)?,
            kubeconfig: path.to_owned(),
        })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub async fn call(&self, outgoing: &Outgoing) -> Result<Answer, ServerError> {
        timeout(ANSWER, async {
            let (status, headers, body) = self.send(outgoing).await?;
            let bytes = body
                .collect()
                .await
                .map_err(|source| ServerError::Transport(Box::new(source)))?
                .to_bytes();
            Ok(Answer {
                status,
                headers,
                body: parse(&bytes),
            })
        })
        .await
        .map_err(|_| ServerError::Deadline)?
    }

    /// Opens a stream; a response other than success is returned.
    pub async fn open(&self, outgoing: &Outgoing) -> Result<Result<(Answer, Stream), Answer>, ServerError> {
        let (status, headers, body) = timeout(ANSWER, self.send(outgoing))
            .await
            .map_err(|_| ServerError::Deadline)??;
        if status >= 300 {
            let bytes = timeout(ANSWER, body.collect())
                .await
                .map_err(|_| ServerError::Deadline)?
                .map_err(|source| ServerError::Transport(Box::new(source)))?
                .to_bytes();
            return Ok(Err(Answer {
                status,
                headers,
                body: parse(&bytes),
            }));
        }
        let (sender, lines) = mpsc::channel(1024);
        tokio::spawn(forward_lines(body, sender));
        Ok(Ok((
            Answer {
                status,
                headers,
                body: None,
            },
            Stream { lines },
        )))
    }

    async fn send(&self, outgoing: &Outgoing) -> Result<(u16, BTreeMap<String, Value>, Body), ServerError> {
        let mut request = Request::builder()
            .method(outgoing.method.as_str())
            .uri(&outgoing.path)
            .header("user-agent", USER_AGENT);
        for (name, value) in &outgoing.headers {
            request = request.header(name, value);
        }
        let body = match &outgoing.body {
            Payload::Empty => Body::empty(),
            Payload::Json(value) => Body::from(value.to_string().into_bytes()),
            Payload::Text(text) => Body::from(text.clone().into_bytes()),
        };
        let client = match outgoing.credentials {
            Credentials::Admin => &self.admin,
            Credentials::None => &self.anonymous,
            Credentials::WrongToken => &self.wrong_token,
        };
        let response = client
            .send(request.body(body)?)
            .await
            .map_err(|source| ServerError::Transport(Box::new(source)))?;
        Ok((
            response.status().as_u16(),
            compared_headers(&response),
            response.into_body(),
        ))
    }
}

impl Stream {
    pub async fn next(&mut self, patience: Duration) -> Next {
        match timeout(patience, self.lines.recv()).await {
            Ok(Some(event)) => Next::Event(event),
            Ok(None) => Next::Closed,
            Err(_) => Next::Silence,
        }
    }
}

async fn forward_lines(mut body: Body, sender: mpsc::Sender<Value>) {
    let mut pending = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if let Some(event) = parse(&line)
                && sender.send(event).await.is_err()
            {
                return;
            }
        }
    }
}

fn compared_headers(response: &Response<Body>) -> BTreeMap<String, Value> {
    let mut headers = BTreeMap::new();
    for name in COMPARED_HEADERS {
        let values: Vec<Value> = response
            .headers()
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned().into())
            .collect();
        match values.as_slice() {
            [] => {}
            [one] => {
                headers.insert(name.to_owned(), one.clone());
            }
            _ => {
                headers.insert(name.to_owned(), Value::Array(values));
            }
        }
    }
    headers
}

fn parse(bytes: &[u8]) -> Option<Value> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    Some(serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into()))
}
