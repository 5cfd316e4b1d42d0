//! Captures the logs of all daemons of this test process, in the format of the program.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the capture, once per process. The daemon's threads are not those of the test, so there is one log for all.
pub fn start() {
    LOG.get_or_init(|| {
        let log = Log::default();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            .with_writer(log.clone())
            .init();
        log
    });
}

/// Returns everything that was logged since [`start`].
pub fn text() -> String {
    let bytes = LOG.get().expect("the log was started").0.lock().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the number of lines that contain a text.
pub fn count(text: &str) -> usize {
    self::text().lines().filter(|line| line.contains(text)).count()
}
