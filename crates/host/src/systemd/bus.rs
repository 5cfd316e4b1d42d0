//! systemd and logind over D-Bus: jobs with results instead of commands with exit codes.
//!
//! A connection is opened per request, so that an idle daemon holds none. The fallback for a machine without a bus is
//! the caller's decision.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use thiserror::Error;
use zbus::{Connection, DynamicType, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant};

use super::services::{ServiceAction, ServiceError};

/// Relative to the root of a machine, so that a container with the mounted root finds it as well.
const SOCKET: &str = "run/dbus/system_bus_socket";
/// The connection timeout.
const GREETING: Duration = Duration::from_secs(10);

const SYSTEMD: Peer = Peer {
    name: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const LOGIND: Peer = Peer {
    name: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// The results that count as success; `systemctl` also counts a skipped job as such.
const SUCCESSES: [&str; 2] = ["done", "skipped"];

struct Peer {
    name: &'static str,
    path: &'static str,
    interface: &'static str,
}

#[derive(Debug, Error)]
pub enum BusError {
    /// No request was sent.
    #[error("the machine's D-Bus cannot be reached: {0}")]
    Unreachable(String),
    #[error("{method} over D-Bus failed: {source}")]
    Call {
        method: &'static str,
        source: zbus::Error,
    },
    #[error("the connection to D-Bus ended before systemd was done")]
    Ended,
}

/// The system bus of a machine.
#[derive(Debug, Clone)]
pub struct Bus {
    socket: PathBuf,
}

impl Bus {
    /// Returns the bus of the machine with this root.
    pub fn at(root: &Path) -> Self {
        Self {
            socket: root.join(SOCKET),
        }
    }

    /// Performs the action, waits for the result of its job, and then checks the state of the unit.
    pub(super) fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        self.connected(|connection| async move { perform(&connection, action).await })
    }

    /// Requests a reboot from logind. `first` is a unit that has to run before the shutdown.
    pub(crate) fn reboot(&self, because: &str, first: Option<&str>) -> Result<(), ServiceError> {
        self.connected(|connection| async move {
            if let Some(unit) = first {
                run_job(&connection, "StartUnit", unit, &format!("start {unit}")).await?;
            }
            // The wall message is optional; without the right to set it, the machine must still reboot.
            let _ = call(&connection, &LOGIND, "SetWallMessage", &(because, true)).await;
            let interactive = false;
            call(&connection, &LOGIND, "Reboot", &interactive).await?;
            Ok(())
        })
    }

    /// Must not be called from an async worker thread; blocking work has threads of its own.
    fn connected<F>(&self, work: impl FnOnce(Connection) -> F) -> Result<(), ServiceError>
    where
        F: Future<Output = Result<(), ServiceError>>,
    {
        let unreachable = |why: String| BusError::Unreachable(why);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| unreachable(error.to_string()))?;
        runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket)
                .map_err(|error| unreachable(format!("{}: {error}", self.socket.display())))?;
            let greeting = zbus::connection::Builder::unix_stream(stream).build();
            let connection = tokio::time::timeout(GREETING, greeting)
                .await
                .map_err(|_| unreachable("the connection timed out".to_owned()))?
                .map_err(|error| unreachable(error.to_string()))?;
            work(connection).await
        })
    }
}

async fn perform(connection: &Connection, action: &ServiceAction) -> Result<(), ServiceError> {
    let (method, unit) = match action {
        ServiceAction::DaemonReload => {
            call(connection, &SYSTEMD, "Reload", &()).await?;
            return Ok(());
        }
        ServiceAction::Enable(unit) => {
            let (for_this_boot_only, replace) = (false, true);
            let units = [unit.as_str()];
            let arguments = (units.as_slice(), for_this_boot_only, replace);
            call(connection, &SYSTEMD, "EnableUnitFiles", &arguments).await?;
            call(connection, &SYSTEMD, "Reload", &()).await?;
            return Ok(());
        }
        ServiceAction::Reload(unit) => ("ReloadUnit", unit),
        ServiceAction::Restart(unit) => ("RestartUnit", unit),
    };
    run_job(connection, method, unit, &action.to_string()).await
}

/// Queues a job, waits for its end, and then checks the unit: a service may fail right after it has started.
async fn run_job(
    connection: &Connection,
    method: &'static str,
    unit: &str,
    action: &str,
) -> Result<(), ServiceError> {
    // Subscribe first: a quick job ends before the response with its name arrives.
    let mut ended = job_ends(connection).await?;
    let queued = call(connection, &SYSTEMD, method, &(unit, "replace")).await?;
    let job: OwnedObjectPath = read(&queued, method)?;
    let result = loop {
        let signal = ended.next().await.ok_or(BusError::Ended)?;
        let signal = signal.map_err(failed("JobRemoved"))?;
        let (_, removed, _, result): (u32, OwnedObjectPath, String, String) = read(&signal, "JobRemoved")?;
        if removed == job {
            break result;
        }
    };
    let (state, outcome) = state(connection, unit).await?;
    let job_failed = !SUCCESSES.contains(&result.as_str());
    if job_failed || state == "failed" || !matches!(outcome.as_str(), "success" | "") {
        return Err(ServiceError::NotRunning {
            unit: unit.to_owned(),
            action: action.to_owned(),
            state,
            // The result of the job is more specific than that of the service, unless the service itself has failed.
            result: if outcome.is_empty() || outcome == "success" {
                result
            } else {
                outcome
            },
        });
    }
    Ok(())
}

async fn job_ends(connection: &Connection) -> Result<MessageStream, BusError> {
    let rule = || {
        MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender(SYSTEMD.name)
            .path(SYSTEMD.path)
            .interface(SYSTEMD.interface)
            .member("JobRemoved")
            .build()
    };
    let rule = rule().map_err(failed("JobRemoved"))?;
    let stream = MessageStream::for_match_rule(rule, connection, None)
        .await
        .map_err(failed("JobRemoved"))?;
    // systemd sends its signals only to subscribers.
    call(connection, &SYSTEMD, "Subscribe", &()).await?;
    Ok(stream)
}

/// Returns the unit's state, and the result of its last run if it is a service.
async fn state(connection: &Connection, unit: &str) -> Result<(String, String), BusError> {
    // A unit that has finished may have been unloaded already; loading it is harmless.
    let loaded = call(connection, &SYSTEMD, "LoadUnit", &unit).await?;
    let path: OwnedObjectPath = read(&loaded, "LoadUnit")?;
    let state = property(connection, &path, UNIT, "ActiveState").await?;
    // Only services have a result.
    let result = property(connection, &path, SERVICE, "Result")
        .await
        .unwrap_or_default();
    Ok((state, result))
}

async fn property(
    connection: &Connection,
    path: &OwnedObjectPath,
    interface: &'static str,
    name: &'static str,
) -> Result<String, BusError> {
    let answer = connection
        .call_method(
            Some(SYSTEMD.name),
            path.as_str(),
            Some(PROPERTIES),
            "Get",
            &(interface, name),
        )
        .await
        .map_err(failed(name))?;
    let value: OwnedVariant = read(&answer, name)?;
    String::try_from(value).map_err(failed(name))
}

async fn call<B>(
    connection: &Connection,
    peer: &Peer,
    method: &'static str,
    arguments: &B,
) -> Result<Message, BusError>
where
    B: serde::Serialize + DynamicType,
{
    connection
        .call_method(
            Some(peer.name),
            peer.path,
            Some(peer.interface),
            method,
            arguments,
        )
        .await
        .map_err(failed(method))
}

fn read<T>(message: &Message, method: &'static str) -> Result<T, BusError>
where
    T: for<'any> zbus::wire::DynamicDeserialize<'any>,
{
    message.body().deserialize().map_err(failed(method))
}

fn failed(method: &'static str) -> impl FnOnce(zbus::Error) -> BusError {
    move |source| BusError::Call { method, source }
}

#[cfg(test)]
#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    clippy::used_underscore_binding,
    reason = "the signatures of D-Bus methods are fixed"
)]
mod tests {
    use zbus::ObjectPath;
    use zbus::object_server::SignalEmitter;

    use super::*;

    const UNIT_PATH: &str = "/org/freedesktop/systemd1/unit/app_2eservice";

    /// A fake systemd with one unit, whose jobs end with a configured result.
    struct Manager {
        job_result: &'static str,
    }

    #[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
    impl Manager {
        fn subscribe(&self) {}

        fn reload(&self) -> zbus::fdo::Result<()> {
            Ok(())
        }

        async fn restart_unit(
            &self,
            unit: String,
            mode: String,
            #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
        ) -> zbus::fdo::Result<OwnedObjectPath> {
            if unit != "app.service" || mode != "replace" {
                return Err(zbus::fdo::Error::FileNotFound(format!("Unit {unit} not found.")));
            }
            let job = |number: u32| ObjectPath::try_from(format!("/org/freedesktop/systemd1/job/{number}"));
            // Another client's job ends as well, and ours before its name is returned.
            for (number, result) in [(7, "failed"), (8, self.job_result)] {
                Self::job_removed(&emitter, number, job(number)?, "app.service", result).await?;
            }
            Ok(job(8)?.into())
        }

        fn load_unit(&self, _unit: String) -> zbus::fdo::Result<OwnedObjectPath> {
            Ok(ObjectPath::try_from(UNIT_PATH)?.into())
        }

        #[zbus(signal)]
        async fn job_removed(
            emitter: &SignalEmitter<'_>,
            id: u32,
            job: ObjectPath<'_>,
            unit: &str,
            result: &str,
        ) -> zbus::Result<()>;
    }

    struct BusUnit(&'static str);

    #[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
    impl BusUnit {
        #[zbus(property)]
        fn active_state(&self) -> String {
            self.0.to_owned()
        }
    }

    struct BusService(&'static str);

    #[zbus::interface(name = "org.freedesktop.systemd1.Service")]
    impl BusService {
        #[zbus(property)]
        fn result(&self) -> String {
            self.0.to_owned()
        }
    }

    async fn asked(
        (job_result, state, outcome): (&'static str, &'static str, &'static str),
        action: &ServiceAction,
    ) -> Result<(), String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let systemd = zbus::connection::Builder::unix_stream(theirs)
            .server(zbus::Guid::generate())
            .p2p()
            .serve_at(SYSTEMD.path, Manager { job_result })
            .serve_at(UNIT_PATH, BusUnit(state))
            .serve_at(UNIT_PATH, BusService(outcome))
            .build();
        let client = zbus::connection::Builder::unix_stream(ours).p2p().build();
        let (_systemd, client) = tokio::try_join!(systemd, client).unwrap();
        perform(&client, action).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_end_of_the_job_and_the_state_after_it_decide() {
        let restart = ServiceAction::Restart("app.service".to_owned());
        let cases: [(&str, _, Result<(), &str>); 5] = [
            ("a service that runs", ("done", "active", "success"), Ok(())),
            (
                "a oneshot that ran to its end",
                ("done", "inactive", "success"),
                Ok(()),
            ),
            (
                "a service that does not start",
                ("failed", "failed", "exit-code"),
                Err("app.service is failed after restart app.service, with result exit-code"),
            ),
            (
                "a service that died after it had started",
                ("done", "failed", "signal"),
                Err("app.service is failed after restart app.service, with result signal"),
            ),
            (
                "a job that took too long while the old process goes on",
                ("timeout", "active", "success"),
                Err("app.service is active after restart app.service, with result timeout"),
            ),
        ];
        for (name, systemd, expected) in cases {
            let found = asked(systemd, &restart).await;
            assert_eq!(found, expected.map_err(str::to_owned), "{name}");
        }
    }

    #[tokio::test]
    async fn an_error_of_systemd_is_reported_with_its_message() {
        let systemd = ("done", "active", "success");
        asked(systemd, &ServiceAction::DaemonReload).await.unwrap();
        let refusal = asked(systemd, &ServiceAction::Restart("ghost.service".to_owned())).await;
        let refusal = refusal.unwrap_err();
        assert!(
            refusal.starts_with("RestartUnit over D-Bus failed: "),
            "{refusal}"
        );
        assert!(refusal.contains("Unit ghost.service not found."), "{refusal}");
    }

    #[test]
    fn a_machine_without_a_bus_is_distinguished_from_one_that_refuses() {
        let root = tempfile::tempdir().unwrap();
        let error = Bus::at(root.path())
            .perform(&ServiceAction::DaemonReload)
            .unwrap_err();
        assert!(
            matches!(&error, ServiceError::Bus(BusError::Unreachable(why)) if why.contains("No such file")),
            "{error}"
        );
    }
}
