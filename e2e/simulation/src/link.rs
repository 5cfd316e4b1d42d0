//! The connection of one client to the API server, with failures.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use kube::Client;
use mco_apiserver::ApiService;
use mco_apiserver::http::ApiBody;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{Service, ServiceExt as _};

use crate::determinism::Random;
use crate::story::Fault;
use crate::world::World;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// A client that is cut off learns it this late, as with a TCP connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(20);
/// One request in this many has a failure of a kind that happens in the story.
const REQUESTS_PER_FAULT: u64 = 12;
const EVENTS_PER_FAULT: u64 = 30;

/// The connection of one client.
#[derive(Clone)]
pub struct Link {
    inner: Arc<LinkState>,
    service: ApiService,
}

struct LinkState {
    client: String,
    world: Arc<World>,
    random: Mutex<Random>,
    cut_until: Mutex<Option<Instant>>,
    /// The only Node that the client watches.
    node: Option<String>,
}

impl Link {
    pub fn new(world: &Arc<World>, client: &str, node: Option<&str>) -> Self {
        let state = LinkState {
            client: client.to_owned(),
            world: Arc::clone(world),
            random: Mutex::new(Random::new(world.story.seed, client)),
            cut_until: Mutex::new(None),
            node: node.map(str::to_owned),
        };
        Self {
            inner: Arc::new(state),
            service: world.server.service(),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Cuts the client off for a time.
    pub fn cut(&self, time: Duration) {
        *self.inner.cut_until.lock() = Some(Instant::now() + time);
    }

    /// Connects the client again.
    pub fn heal(&self) {
        *self.inner.cut_until.lock() = None;
    }
}

impl LinkState {
    fn is_cut_until(&self) -> Option<Instant> {
        self.cut_until.lock().filter(|until| *until > Instant::now())
    }

    /// Returns true for one in so many, if the kind of failure happens at the moment.
    fn happens(&self, fault: Fault, one_in: u64) -> bool {
        let is_drawn = self.random.lock().below(one_in) == 0;
        let happens = is_drawn && self.world.is_chaos() && self.world.story.faults.contains(&fault);
        if happens {
            self.world.count_failure();
        }
        happens
    }

    fn delay(&self) -> Duration {
        self.random
            .lock()
            .between(Duration::from_millis(1), LONGEST_DELAY)
    }

    async fn request(self: Arc<Self>, service: ApiService, request: Request<Bytes>) -> Outcome {
        let fails = |fault| self.happens(fault, REQUESTS_PER_FAULT);
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        if self.is_cut_until().is_some() {
            sleep(CONNECTION_TIMEOUT).await;
            self.log(&request, "cut off");
            return Err("the connection timed out".into());
        }
        if fails(Fault::Delay) {
            sleep(self.delay()).await;
        }
        if fails(Fault::TooMany) {
            self.log(&request, "429");
            return Ok(refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"));
        }
        if fails(Fault::ServerError) {
            self.log(&request, "500");
            return Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
        }
        if matches!(*request.method(), Method::PUT | Method::PATCH) && fails(Fault::Conflict) {
            self.log(&request, "409");
            return Ok(refused(StatusCode::CONFLICT, "Conflict"));
        }
        if is_watch && fails(Fault::Gone) {
            self.log(&request, "410");
            return Ok(refused(StatusCode::GONE, "Expired"));
        }
        let mut response = self.process(&service, &request, is_write, "").await?;
        if is_write && fails(Fault::Duplicate) {
            response = self.process(&service, &request, is_write, "again").await?;
        }
        if !is_watch && fails(Fault::LateResponse) {
            sleep(self.delay()).await;
        }
        if is_write && fails(Fault::LostResponse) {
            self.log(&request, "response lost");
            return Err("the connection was closed before the response".into());
        }
        if !is_watch {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = LinkBody::Watch(WatchBody {
            inner: unwatched(body),
            link: self,
            held: VecDeque::new(),
            wait: None,
            has_ended: false,
        });
        Ok(Response::from_parts(head, body))
    }

    async fn process(
        &self,
        service: &ApiService,
        request: &Request<Bytes>,
        is_write: bool,
        note: &str,
    ) -> Outcome {
        let mut builder = Request::builder()
            .method(request.method().clone())
            .uri(request.uri().clone());
        if let Some(headers) = builder.headers_mut() {
            headers.clone_from(request.headers());
        }
        let copy = builder.body(Full::new(request.body().clone()))?;
        let response = service.clone().oneshot(copy).await?;
        self.log(request, &format!("{} {note}", response.status().as_u16()));
        if is_write && response.status().is_success() {
            self.world.observe(&self.client, request.uri().path());
        }
        Ok(response.map(LinkBody::Plain))
    }

    fn log(&self, request: &Request<Bytes>, outcome: &str) {
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let line = format!(
            "{} {} {} -> {}",
            self.client,
            request.method(),
            request.uri().path(),
            outcome.trim()
        );
        self.world.log(line, is_write);
    }
}

fn unwatched(body: LinkBody) -> ApiBody {
    match body {
        LinkBody::Plain(body) => body,
        LinkBody::Watch(watch) => watch.inner,
        LinkBody::Refusal(_) => ApiBody::empty(),
    }
}

type Outcome = Result<Response<LinkBody>, BoxError>;

fn refused(code: StatusCode, reason: &str) -> Response<LinkBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "as planned by the simulation",
    });
    let mut response = Response::new(LinkBody::Refusal(Some(Bytes::from(status.to_string()))));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

impl Service<Request<kube::client::Body>> for Link {
    type Response = Response<LinkBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let (state, service) = (Arc::clone(&self.inner), self.service.clone());
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            if let Some(node) = &state.node
                && head.uri.path() == "/api/v1/nodes"
                && head.method == Method::GET
            {
                let query = head.uri.query().unwrap_or_default();
                let only = format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}&{query}");
                head.uri = only.parse()?;
            }
            let body = body.collect().await?.to_bytes();
            state.request(service, Request::from_parts(head, body)).await
        })
    }
}

/// The body of a response.
pub enum LinkBody {
    Plain(ApiBody),
    Watch(WatchBody),
    Refusal(Option<Bytes>),
}

/// The events of a watch.
pub struct WatchBody {
    inner: ApiBody,
    link: Arc<LinkState>,
    /// Events that were received and not delivered.
    held: VecDeque<Bytes>,
    wait: Option<Pin<Box<Sleep>>>,
    has_ended: bool,
}

type FramePoll = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl WatchBody {
    fn poll(&mut self, context: &mut Context<'_>) -> FramePoll {
        loop {
            if self.has_ended {
                return Poll::Ready(None);
            }
            if let Some(wait) = &mut self.wait {
                if wait.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.wait = None;
            }
            // What arrives while the client is cut off is not lost, as with a TCP connection.
            if let Some(until) = self.link.is_cut_until() {
                self.wait = Some(Box::pin(sleep_until(until)));
                continue;
            }
            if let Some(held) = self.held.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(held))));
            }
            let frame = match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(never))) => match never {},
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let fails = |fault| self.link.happens(fault, EVENTS_PER_FAULT);
            if fails(Fault::WatchEnds) {
                self.has_ended = true;
                return Poll::Ready(None);
            }
            if fails(Fault::DuplicateEvent) {
                self.held.push_back(data.clone());
            }
            if fails(Fault::StaleWatch) {
                let delay = self.link.delay();
                self.wait = Some(Box::pin(sleep(delay)));
            }
            self.held.push_back(data);
        }
    }
}

impl Body for LinkBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Watch(body) => body.poll(context),
            Self::Refusal(body) => Poll::Ready(body.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Link").field(&self.inner.client).finish()
    }
}
