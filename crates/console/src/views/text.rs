//! External text, sanitized for a page.

use std::fmt;

use mco_client::text::escape_control_chars;

/// A text of limited length with visible control characters. All external input is converted to this type before it
/// reaches a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Text(String);

/// The longest names are 253 characters and the longest paths 4,096; longer messages are cut.
const LONGEST: usize = 4096;

impl Text {
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::at_most(text.as_ref(), LONGEST)
    }

    /// Cuts the text after so many characters and adds the number of missing bytes.
    pub fn at_most(text: &str, longest: usize) -> Self {
        let Some((end, _)) = text.char_indices().nth(longest) else {
            return Self(escape_control_chars(text));
        };
        let (shown, rest) = text.split_at(end);
        Self(format!(
            "{}… ({} more bytes)",
            escape_control_chars(shown),
            rest.len()
        ))
    }

    /// Returns the name of a config with a shortened hash.
    pub fn config(name: &str) -> Self {
        let hash = name.rsplit_once('-').filter(|(_, hash)| {
            name.starts_with("rendered-")
                && hash.len() == 32
                && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        match hash.and_then(|(rest, hash)| Some((rest, hash.get(..10)?))) {
            Some((rest, beginning)) => Self::new(format!("{rest}-{beginning}…")),
            None => Self::new(name),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters_and_say_so() {
        assert_eq!(Text::at_most("größer", 3).as_str(), "grö… (4 more bytes)");
        assert_eq!(Text::at_most("größer", 6).as_str(), "größer");
        assert_eq!(
            Text::config("rendered-worker-6b9312028fe61cb27f212b0f76120306").as_str(),
            "rendered-worker-6b9312028f…"
        );
        assert_eq!(Text::config("50-rendered").as_str(), "50-rendered");
        assert!(Text::new("x".repeat(10 << 20)).as_str().len() < 5000);
    }
}
