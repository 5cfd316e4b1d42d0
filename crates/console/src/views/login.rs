//! The login pages.

use askama::Template;

use super::{Frame, Text};

#[derive(Debug, Template)]
#[template(path = "login.html")]
pub struct Login {
    pub frame: Frame,
    pub problem: Option<Text>,
    /// Whether there is an owner, who logs in with an address from the terminal.
    pub has_owner: bool,
}

/// The page after a login, which redirects by itself and by a link. This same-site page makes the browser send the
/// strict cookie, independent of where the request came from.
#[derive(Debug, Template)]
#[template(path = "welcome.html")]
pub struct Welcome {
    pub frame: Frame,
}
