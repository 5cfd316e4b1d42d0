//! Pages: pure functions from view values to HTML.
//!
//! All external input is a [`Text`] here, which is safe on a page, and templates escape it once more. Nothing here
//! reads, waits or decides.

pub mod adoption;
pub mod builds;
pub mod changes;
pub mod config;
pub mod configs;
pub mod link;
pub mod login;
pub mod node;
pub mod overview;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod search;
mod secrecy;
mod text;
mod tone;

use askama::Template;

pub use text::Text;
pub use tone::Tone;

/// The section of the console that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageSection {
    Pools,
    Policies,
    Configs,
    Plan,
    Search,
    #[default]
    None,
}

/// The layout around every page.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub title: Text,
    pub section: PageSection,
    /// The logged-in user, or `None` before the login.
    pub viewer: Option<Viewer>,
    /// Whether the page is updated live.
    pub live: LiveRegion,
    /// Read errors.
    pub trouble: Vec<Text>,
    pub version: String,
}

#[derive(Debug, Clone, Default)]
pub struct Viewer {
    pub name: Text,
    pub csrf: String,
    /// Whether this user may pause and resume pools.
    pub may_steer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LiveRegion {
    Yes,
    #[default]
    No,
}

impl Frame {
    fn is(&self, section: &str) -> bool {
        let own = match self.section {
            PageSection::Pools => "pools",
            PageSection::Policies => "policies",
            PageSection::Configs => "configs",
            PageSection::Plan => "plan",
            PageSection::Search => "search",
            PageSection::None => "",
        };
        own == section
    }

    fn is_live(&self) -> bool {
        self.live == LiveRegion::Yes
    }
}

/// Whether file contents were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    Summaries,
    Contents,
}

/// A page with only a message, such as an error.
#[derive(Debug, Template)]
#[template(path = "message.html")]
pub struct Notice {
    pub frame: Frame,
    pub headline: Text,
    pub text: Text,
}

/// Renders a page. Writing to a string cannot fail, and templates have no other errors.
pub fn html(page: &impl Template) -> String {
    page.render().unwrap_or_default()
}
