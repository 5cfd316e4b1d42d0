//! A process with few descriptors, in a child process: its limit applies to the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use http::StatusCode;
use hyper::body::Incoming;
use mco_http::{
    ConnectionPeer, Http1Limits, HttpProtocol, Listener, ListenerLimits, ListenerTransport, Overflow,
    ServeOptions, serve, text,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The variable that makes a test the child process.
const ROLE: &str = "MCO_TEST_DESCRIPTORS";
const DESCRIPTORS: u64 = 96;
/// No exchange on the loopback interface takes this long.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server in another process, which ends with its standard input.
struct Server {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Server {
    /// Starts this test program again, so that it runs `test` as a server.
    fn start(test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, test)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = output.find_map(|line| Some(line.unwrap().strip_prefix("listening ")?.to_owned()));
        let address = address.expect("the server listens");
        Self {
            child,
            output,
            address,
        }
    }

    /// Makes the server use up its descriptors, or free them, and waits until it has.
    fn toggle_descriptors(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"t").unwrap();
        self.output.next().unwrap().unwrap();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn is_serving(&self) -> bool {
        responds(&mut self.connect())
    }

    /// Returns the number of open descriptors.
    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }

    /// Returns the CPU time that the server has used, in clock ticks.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and returns whether it is answered.
fn responds(stream: &mut TcpStream) -> bool {
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let mut response = String::new();
    sent.is_ok() && stream.read_to_string(&mut response).is_ok() && response.starts_with("HTTP/1.1 200")
}

/// Runs the server if this process is the child for `test`. A byte on standard input makes it use up its descriptors,
/// the next one frees them.
fn serve_if_child(test: &str) -> bool {
    if std::env::var(ROLE).as_deref() != Ok(test) {
        return false;
    }
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    std::thread::spawn(hold_descriptors_on_command);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\nlistening {}", socket.local_addr().unwrap());
        let limits = ListenerLimits {
            connections: 10_000,
            overflow: Overflow::Wait,
            handshake: DEADLINE * 10,
            headers: DEADLINE * 10,
            stall: None,
            lifetime: None,
            drain: DEADLINE,
        };
        let options = ServeOptions::new(HttpProtocol::Http1(Http1Limits::default()), limits);
        let connect = |_: &ConnectionPeer| {
            |_: http::Request<Incoming>| async {
                // What a request needs beside its connection.
                let files: Vec<_> = (0..8).map(|_| File::open("/dev/null")).collect();
                let is_able = files.iter().all(Result::is_ok);
                text(
                    if is_able {
                        StatusCode::OK
                    } else {
                        StatusCode::INTERNAL_SERVER_ERROR
                    },
                    "",
                )
            }
        };
        let transport = ListenerTransport::Plain;
        serve(
            Listener { socket, transport },
            options,
            connect,
            CancellationToken::new(),
        )
        .await;
    });
    true
}

fn hold_descriptors_on_command() {
    let mut command = [0];
    let mut held = Vec::new();
    while std::io::stdin().read_exact(&mut command).is_ok() {
        if held.is_empty() {
            // Twice: the server may still be closing an earlier connection, whose descriptor becomes free.
            for _ in 0..2 {
                held.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                std::thread::sleep(Duration::from_millis(300));
            }
        } else {
            held.clear();
        }
        println!("toggled");
    }
    std::process::exit(0);
}

#[test]
fn idle_connections_used_up_all_descriptors() {
    const TEST: &str = "idle_connections_used_up_all_descriptors";
    if serve_if_child(TEST) {
        return;
    }
    let server = Server::start(TEST);
    let mut idle = Vec::new();
    for _ in 0..4 * DESCRIPTORS {
        idle.push(server.connect());
    }
    assert!(server.is_serving(), "while the idle connections are open");
    let mut half_sent: Vec<_> = (0..4 * DESCRIPTORS).map(|_| server.connect()).collect();
    for stream in &mut half_sent {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHos");
    }
    assert!(server.is_serving(), "while half-sent requests are open");
}

#[test]
fn exhausted_descriptors_neither_spin_nor_stay() {
    const TEST: &str = "exhausted_descriptors_neither_spin_nor_stay";
    if serve_if_child(TEST) {
        return;
    }
    let mut server = Server::start(TEST);
    let unused = server.descriptors();
    assert!(server.is_serving());
    let since = Instant::now();
    // A connection that closes later would free a descriptor.
    while server.descriptors() > unused {
        assert!(since.elapsed() < DEADLINE, "the connection is closed");
        std::thread::yield_now();
    }
    let before = server.ticks();
    server.toggle_descriptors();
    let mut waiting = server.connect();
    let mut second = server.connect();
    waiting.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let since = Instant::now();
    assert!(
        !responds(&mut waiting) && since.elapsed() > Duration::from_millis(500),
        "it is not accepted"
    );
    let spent = server.ticks() - before;
    assert!(spent < 50, "{spent} ticks of CPU time in {:?}", since.elapsed());
    server.toggle_descriptors();
    assert!(responds(&mut second));
    assert!(server.is_serving());
}
