//! The way in.

use askama::Template;

use super::{Frame, Text};

#[derive(Debug, Template)]
#[template(path = "login.html")]
pub struct Login {
    pub frame: Frame,
    pub problem: Option<Text>,
    /// Whether there is a person who gets in with an address from their terminal.
    pub has_owner: bool,
}

/// Says that the login worked and leads on, by itself and by a link. A page of our own in between makes the browser send
/// the strict cookie however it came here.
#[derive(Debug, Template)]
#[template(path = "welcome.html")]
pub struct Welcome {
    pub frame: Frame,
}
