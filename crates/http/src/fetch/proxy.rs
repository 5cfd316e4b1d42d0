//! The proxy of a request: which one, if any, and the tunnel through it.

use std::fmt::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::address::Network;

/// The longest head of a proxy's response.
const MAX_HEAD: usize = 8192;

/// The proxy for https requests.
#[derive(Clone, Default)]
pub struct ProxySettings {
    /// The URL, with scheme http; empty for none.
    pub https_proxy: String,
    /// Names, domains and networks that are reached without it, separated by commas.
    pub no_proxy: String,
}

impl std::fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may have a password.
        f.debug_struct("ProxySettings")
            .field("no_proxy", &self.no_proxy)
            .finish_non_exhaustive()
    }
}

impl ProxySettings {
    /// Returns the settings of the process environment.
    pub fn from_environment() -> Self {
        let variable = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            https_proxy: variable(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: variable(["NO_PROXY", "no_proxy"]),
        }
    }

    /// Connects to a host directly, or through a tunnel of the proxy. Errors do not contain the proxy's URL, which may
    /// have a password.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let Some(proxy) = self.for_host(host) else {
            let address = (host.trim_matches(['[', ']']), port);
            let stream = TcpStream::connect(address).await;
            return stream.map_err(|error| error.to_string());
        };
        tunnel(proxy, host, port).await
    }

    /// Returns the URL of the proxy for a host.
    pub(super) fn for_host(&self, host: &str) -> Option<&str> {
        let proxy = self.https_proxy.trim();
        (!proxy.is_empty() && !self.is_direct(host)).then_some(proxy)
    }

    fn is_direct(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        // The proxy's loopback interface is another one; Go's clients do the same.
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return true;
        }
        self.no_proxy.split(',').map(str::trim).any(|entry| {
            let entry = entry.to_ascii_lowercase();
            let domain = entry.trim_start_matches('.');
            let network = || entry.parse::<Network>().ok();
            let is_within =
                || address.is_some_and(|address| network().is_some_and(|all| all.contains(address)));
            entry == "*"
                || (!domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}"))))
                || is_within()
        })
    }
}

/// Opens a tunnel to a host through a proxy. Errors do not contain the proxy's URL, which may have a password.
pub(super) async fn tunnel(proxy: &str, host: &str, port: u16) -> Result<TcpStream, String> {
    let uri: Uri = proxy
        .parse()
        .map_err(|_| "the URL of the proxy is not valid".to_owned())?;
    if uri.scheme_str() != Some("http") {
        return Err("the URL of the proxy does not begin with http://".to_owned());
    }
    let authority = uri.authority().ok_or("the URL of the proxy has no host")?;
    let address = (
        authority.host().trim_matches(['[', ']']).to_owned(),
        authority.port_u16().unwrap_or(80),
    );
    let name = format!("{}:{}", address.0, address.1);
    let failed = |error: std::io::Error| format!("the proxy {name} cannot be reached: {error}");
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some((user, _)) = authority.as_str().rsplit_once('@') {
        let credentials = STANDARD.encode(percent_decode(user));
        let _ = write!(request, "Proxy-Authorization: Basic {credentials}\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(format!("the proxy {name} sent no valid response"));
        }
        head.push(stream.read_u8().await.map_err(failed)?);
    }
    let head = String::from_utf8_lossy(&head);
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(stream),
        Some(status) => Err(format!("the proxy {name} answered {status}")),
        None => Err(format!("the proxy {name} sent no valid response")),
    }
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_in_no_proxy_are_reached_directly() {
        let settings = ProxySettings {
            https_proxy: "http://proxy:3128".to_owned(),
            no_proxy: ".cluster.local, example.com,10.0.0.0/8,192.0.2.7".to_owned(),
        };
        for (host, direct) in [
            ("a.cluster.local", true),
            ("EXAMPLE.com", true),
            ("files.example.com", true),
            ("badexample.com", false),
            ("10.1.2.3", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("127.0.0.1", true),
            ("localhost", true),
            ("[::1]", true),
            ("[fd00::1]", false),
        ] {
            assert_eq!(settings.for_host(host).is_none(), direct, "{host}");
        }
        assert!(ProxySettings::default().for_host("a").is_none());
        let all = ProxySettings {
            no_proxy: "*".to_owned(),
            ..settings
        };
        assert!(all.for_host("files.test").is_none());
    }

    #[test]
    fn credentials_are_decoded() {
        assert_eq!(percent_decode("a%40b:c%"), b"a@b:c%");
    }
}
