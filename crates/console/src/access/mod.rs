//! Access to the console: logins become clients of the user, and sessions hold them.
//!
//! Codes, tokens and session ids are stored as hashes.

mod login;
mod sessions;

pub use login::{ConsoleAccess, LoginError};
pub(crate) use sessions::{Session, Sessions};

pub(crate) use mco_http::tokens::{TokenHash, generate};
