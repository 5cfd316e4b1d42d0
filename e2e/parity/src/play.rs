//! Plays one transcript against one server and records the comparable responses.
//!
//! Nothing here judges: an unreachable server, a missing event and a timeout become part of the recording, where the
//! comparison shows them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::golden::Recording;
use crate::normalise::Normaliser;
use crate::server::{Answer, Next, Outgoing, Server, ServerError, Stream};
use crate::shell::{Output, Shell, ShellError};
use crate::transcript::{
    Action, After, Call, Credentials, Marks, Payload, ShellMode, Step, Transcript, Until, View,
};
use crate::variables::Variables;

/// Timeout of an expected event; garbage collectors of real clusters are slow.
const EVENT: Duration = Duration::from_secs(30);

/// Time without an event after which a watch counts as quiet.
const QUIET: Duration = Duration::from_millis(700);

/// Timeout of a condition: the slowest is a garbage collector that discovers a new kind.
const CONDITION: Duration = Duration::from_secs(90);

/// The repository, where transcripts find the manifests that users install.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("{transcript}: step {step} ({request}) prepares later checks and failed: {message}")]
    Preparation {
        transcript: String,
        step: usize,
        request: String,
        message: String,
    },
    #[error(transparent)]
    Shell(#[from] ShellError),
}

/// The responses of the checks of a transcript, and the preparations that failed.
///
/// A transcript is played to its end despite failures, because each response is informative.
#[derive(Debug)]
pub struct Played {
    pub recordings: Vec<Recording>,
    pub failures: Vec<PlayError>,
}

/// Plays every step; `kubectl` is the directory that holds the command, for transcripts that need it.
pub async fn play(
    transcript: &Transcript,
    server: &Server,
    run: &str,
    kubectl: Option<&std::path::Path>,
) -> Played {
    let mut player = match Player::new(transcript, server, run, kubectl) {
        Ok(player) => player,
        Err(failure) => {
            return Played {
                recordings: Vec::new(),
                failures: vec![failure],
            };
        }
    };
    player.play(transcript).await;
    player.clean_up().await;
    Played {
        recordings: player.recordings,
        failures: player.failures,
    }
}

struct Player<'a> {
    server: &'a Server,
    namespace: String,
    variables: Variables,
    normaliser: Normaliser,
    watches: HashMap<String, Stream>,
    shell: Shell,
    recordings: Vec<Recording>,
    failures: Vec<PlayError>,
}

/// The result of a step, before it is made comparable.
enum Seen {
    Answer(Answer),
    Events { events: Vec<Value>, end: &'static str },
    Output(Output),
    Nothing,
    Trouble(String),
}

impl<'a> Player<'a> {
    fn new(
        transcript: &Transcript,
        server: &'a Server,
        run: &str,
        kubectl: Option<&std::path::Path>,
    ) -> Result<Self, PlayError> {
        let namespace = format!("parity-{}-{run}", transcript.name);
        let mut variables = Variables::default();
        variables.set("ns", json!(namespace));
        variables.set("run", json!(run));
        variables.set("repo", json!(REPOSITORY));
        variables.set("mebibyte", json!("x".repeat(1 << 20)));
        Ok(Self {
            server,
            namespace,
            variables,
            normaliser: Normaliser::new(run, Timestamp::now()),
            watches: HashMap::new(),
            shell: Shell::new(server.kubeconfig(), kubectl)?,
            recordings: Vec::new(),
            failures: Vec::new(),
        })
    }

    async fn play(&mut self, transcript: &Transcript) {
        let create = Outgoing {
            method: "POST".into(),
            path: "/api/v1/namespaces".into(),
            headers: BTreeMap::from([("content-type".into(), "application/json".into())]),
            body: Payload::Json(json!({"metadata": {"name": self.namespace}})),
            credentials: Credentials::Admin,
        };
        let created = self.server.call(&create).await;
        self.expect_prepared(transcript, 0, "create the namespace", &seen_answer(created));
        for (index, step) in transcript.steps.iter().enumerate() {
            let request = self.variables.text(&step.action.summary());
            let seen = self.step(step).await;
            self.save(step, &seen);
            // A completed wait has its expected result, even if that is an error.
            let awaited = matches!((&step.action, &seen), (Action::Poll(..), Seen::Answer(_)));
            match &step.check {
                Some(check) => self.record(check, &step.action.summary(), &seen, &step.view),
                None if awaited => {}
                None => self.expect_prepared(transcript, index + 1, &request, &seen),
            }
        }
    }

    fn expect_prepared(&mut self, transcript: &Transcript, step: usize, request: &str, seen: &Seen) {
        if let Err(message) = prepared(seen) {
            let (transcript, request) = (transcript.name.clone(), request.to_owned());
            self.failures.push(PlayError::Preparation {
                transcript,
                step,
                request,
                message,
            });
        }
    }

    async fn step(&mut self, step: &Step) -> Seen {
        match &step.action {
            Action::Call(call) => seen_answer(self.server.call(&self.outgoing(call)).await),
            Action::Poll(call, until) => self.poll(call, until).await,
            Action::OpenWatch { name, call } => match self.server.open(&self.outgoing(call)).await {
                Ok(Ok((answer, stream))) => {
                    self.watches.insert(name.clone(), stream);
                    Seen::Answer(answer)
                }
                Ok(Err(refusal)) => Seen::Answer(refusal),
                Err(error) => Seen::Trouble(describe(&error)),
            },
            Action::ReadEvents {
                name,
                count,
                marks,
                then,
            } => self.read_events(name, *count, *marks, *then).await,
            Action::Shell { line, files, mode } => self.run_line(line, files, mode).await,
            Action::Collect { name, lines } => match self.shell.collect(name, *lines).await {
                Ok(output) => Seen::Output(output),
                Err(error) => Seen::Trouble(describe(&error)),
            },
        }
    }

    fn outgoing(&self, call: &Call) -> Outgoing {
        Outgoing {
            method: call.method.clone(),
            path: self.variables.text(&call.path),
            headers: call.headers.clone(),
            body: match &call.body {
                Payload::Empty => Payload::Empty,
                Payload::Json(value) => Payload::Json(self.variables.document(value)),
                Payload::Text(text) => Payload::Text(self.variables.text(text)),
            },
            credentials: call.credentials,
        }
    }

    async fn poll(&self, call: &Call, until: &Until) -> Seen {
        let outgoing = self.outgoing(call);
        let started = Instant::now();
        loop {
            let last = self.server.call(&outgoing).await;
            match last {
                Ok(answer) if self.satisfied(&answer, until) => return Seen::Answer(answer),
                Ok(answer) if started.elapsed() > CONDITION => {
                    let body = answer.body.unwrap_or_default();
                    return Seen::Trouble(format!("not as wanted after {} s: {body}", CONDITION.as_secs()));
                }
                Err(error) if started.elapsed() > CONDITION => return Seen::Trouble(describe(&error)),
                Ok(_) | Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn satisfied(&self, answer: &Answer, until: &Until) -> bool {
        let body = answer.body.as_ref().unwrap_or(&Value::Null);
        until.status.is_none_or(|status| status == answer.status)
            && until.at.iter().all(|(pointer, wanted)| {
                body.pointer(&self.variables.text(pointer))
                    .unwrap_or(&Value::Null)
                    == &self.variables.document(wanted)
            })
    }

    async fn read_events(&mut self, name: &str, count: usize, marks: Marks, then: After) -> Seen {
        let Some(stream) = self.watches.get_mut(name) else {
            return Seen::Trouble(format!("watch {name} is not open"));
        };
        let mut marks_wanted = marks == Marks::First;
        let mut events = Vec::new();
        while events.len() < count {
            match next_event(stream, EVENT, &mut marks_wanted).await {
                Next::Event(event) => events.push(event),
                Next::Closed => {
                    return Seen::Events {
                        events,
                        end: "closed too early",
                    };
                }
                Next::Silence => {
                    return Seen::Events {
                        events,
                        end: "silent too early",
                    };
                }
            }
        }
        let patience = if then == After::Closed { EVENT } else { QUIET };
        let end = match then {
            After::Open => "open",
            After::Quiet | After::Closed => match next_event(stream, patience, &mut marks_wanted).await {
                Next::Event(extra) => {
                    events.push(extra);
                    "one more event"
                }
                Next::Closed => "closed",
                Next::Silence => "quiet",
            },
        };
        Seen::Events { events, end }
    }

    async fn run_line(&mut self, line: &str, files: &BTreeMap<String, String>, mode: &ShellMode) -> Seen {
        let line = self.variables.text(line);
        let files = files
            .iter()
            .map(|(name, text)| (name.clone(), self.variables.text(text)))
            .collect();
        let result = match mode {
            ShellMode::Wait => self.shell.run(&line, &files).await.map(Seen::Output),
            ShellMode::UntilSuccess => self
                .shell
                .run_until_success(&line, &files)
                .await
                .map(Seen::Output),
            ShellMode::Background { name, lines } => self
                .shell
                .start(name, &line, &files, *lines)
                .await
                .map(|()| Seen::Nothing),
        };
        result.unwrap_or_else(|error| Seen::Trouble(describe(&error)))
    }

    fn save(&mut self, step: &Step, seen: &Seen) {
        let document = match seen {
            Seen::Answer(Answer { body: Some(body), .. }) => body.clone(),
            Seen::Events { events, .. } => Value::Array(events.clone()),
            _ => return,
        };
        for (name, pointer) in &step.save {
            if let Some(value) = document.pointer(pointer) {
                self.variables.set(name, value.clone());
            }
        }
    }

    fn record(&mut self, check: &str, request: &str, seen: &Seen, view: &View) {
        let answer = match seen {
            Seen::Answer(answer) => self.comparable_answer(answer, view),
            Seen::Events { events, end } => {
                let events: Vec<Value> = events
                    .iter()
                    .map(|event| self.normaliser.document(event, view))
                    .collect();
                json!({"events": events, "then": end})
            }
            Seen::Output(output) => json!({
                "exit": output.exit,
                "stdout": self.normaliser.output(&output.stdout),
                "stderr": self.normaliser.output(&output.stderr),
            }),
            Seen::Nothing => Value::Null,
            Seen::Trouble(message) => json!({"trouble": self.normaliser.text(message)}),
        };
        self.recordings.push(Recording {
            check: check.to_owned(),
            request: request.to_owned(),
            answer,
        });
    }

    fn comparable_answer(&mut self, answer: &Answer, view: &View) -> Value {
        let mut comparable = Map::new();
        comparable.insert("status".into(), answer.status.into());
        if view.without_body {
            return Value::Object(comparable);
        }
        for (name, value) in &answer.headers {
            comparable.insert(name.clone(), self.normaliser.document(value, &View::default()));
        }
        if let Some(body) = &answer.body {
            comparable.insert("body".into(), self.normaliser.document(body, view));
        }
        Value::Object(comparable)
    }

    /// Stops all processes and requests the deletion of the namespace, without waiting for it.
    async fn clean_up(&mut self) {
        self.watches.clear();
        self.shell.stop().await;
        let delete = Outgoing {
            method: "DELETE".into(),
            path: format!("/api/v1/namespaces/{}", self.namespace),
            headers: BTreeMap::new(),
            body: Payload::Empty,
            credentials: Credentials::Admin,
        };
        // An unreachable server is already visible in the recordings.
        let _ = self.server.call(&delete).await;
    }
}

/// Returns the next relevant event, within the timeout from now.
async fn next_event(stream: &mut Stream, patience: Duration, marks_wanted: &mut bool) -> Next {
    let until = Instant::now() + patience;
    loop {
        let next = stream.next(until.saturating_duration_since(Instant::now())).await;
        match &next {
            Next::Event(event) if is_plain_bookmark(event) => {
                if std::mem::take(marks_wanted) {
                    return next;
                }
            }
            _ => return next,
        }
    }
}

fn is_plain_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event.pointer("/object/metadata/annotations").is_none()
}

fn seen_answer(result: Result<Answer, ServerError>) -> Seen {
    match result {
        Ok(answer) => Seen::Answer(answer),
        Err(error) => Seen::Trouble(describe(&error)),
    }
}

/// Returns whether a preparing step succeeded.
fn prepared(seen: &Seen) -> Result<(), String> {
    match seen {
        Seen::Answer(answer) if answer.status >= 400 => Err(format!(
            "{} {}",
            answer.status,
            answer.body.clone().unwrap_or_default()
        )),
        Seen::Output(output) if output.exit != 0 => Err(format!(
            "exit {}: {}{}",
            output.exit, output.stdout, output.stderr
        )),
        Seen::Events { end, .. } if end.ends_with("too early") => Err(format!("the watch was {end}")),
        Seen::Trouble(message) => Err(message.clone()),
        Seen::Answer(_) | Seen::Output(_) | Seen::Events { .. } | Seen::Nothing => Ok(()),
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
