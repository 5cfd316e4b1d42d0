//! Notifies the service manager that started this process, in the protocol of `sd_notify(3)`.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The notification socket of the service manager. Messages are not acknowledged.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// Returns the manager behind `NOTIFY_SOCKET`; `None` if the variable is unset or invalid.
    pub fn new(notify_socket: Option<OsString>) -> Option<Self> {
        let name = notify_socket?;
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        Some(Self {
            socket: UnixDatagram::unbound().ok()?,
            address: address.ok()?,
        })
    }

    pub fn ready(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sets the status line shown by `systemctl status`.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// Sends a message. Failures are ignored, because notifications are optional.
    fn send(&self, message: &str) {
        let _ = self.socket.send_to_addr(message.as_bytes(), &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_listens_hears_one_line_per_message() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::new(Some(path.into_os_string())).unwrap();
        manager.ready();
        manager.status("two\nlines");
        let mut buffer = [0; 64];
        let mut heard = || {
            let length = listener.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        assert_eq!(heard(), "READY=1");
        assert_eq!(heard(), "STATUS=two lines");
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        assert!(ServiceManager::new(None).is_none());
    }
}
