//! Pages: pure functions from what is known to HTML.
//!
//! Whatever comes from outside is a [`Text`] here, which cannot hurt a page, and templates escape it once more. Nothing
//! here reads, waits or decides.

pub mod changes;
pub mod config;
pub mod configs;
pub mod link;
pub mod login;
pub mod node;
pub mod overview;
pub mod plan;
pub mod pool;
pub mod search;
mod secrecy;
mod text;
mod tone;

use askama::Template;

pub use text::Text;
pub use tone::Tone;

/// Which part of the console a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Section {
    Pools,
    Configs,
    Plan,
    Search,
    #[default]
    None,
}

/// What every page has around its contents.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub title: Text,
    pub section: Section,
    /// Nobody before the login.
    pub viewer: Option<Viewer>,
    /// Whether the page changes while somebody looks.
    pub live: Live,
    /// What could not be read.
    pub trouble: Vec<Text>,
    pub version: String,
}

#[derive(Debug, Clone, Default)]
pub struct Viewer {
    pub name: Text,
    pub csrf: String,
    /// Whether this person may pause and resume pools.
    pub may_steer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Live {
    Yes,
    #[default]
    No,
}

impl Frame {
    fn is(&self, section: &str) -> bool {
        let own = match self.section {
            Section::Pools => "pools",
            Section::Configs => "configs",
            Section::Plan => "plan",
            Section::Search => "search",
            Section::None => "",
        };
        own == section
    }

    fn is_live(&self) -> bool {
        self.live == Live::Yes
    }
}

/// Whether file contents were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    Summaries,
    Contents,
}

/// Something that can only be said: not found, not possible, try again.
#[derive(Debug, Template)]
#[template(path = "message.html")]
pub struct Message {
    pub frame: Frame,
    pub headline: Text,
    pub text: Text,
}

/// Renders a page. Writing to a string cannot fail, and templates have no other errors.
pub fn html(page: &impl Template) -> String {
    page.render().unwrap_or_default()
}
