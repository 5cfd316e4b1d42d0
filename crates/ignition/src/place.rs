//! The path of a position in a config, such as `storage.files[2].contents.source`.

use std::fmt::Write as _;

/// The current position while walking a config.
#[derive(Debug, Default)]
pub(crate) struct Place {
    text: String,
}

/// The position to return to when the walk leaves a field or an element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

impl Place {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn enter_field(&mut self, name: &str) -> Mark {
        let mark = Mark(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(name);
        mark
    }

    pub(crate) fn enter_element(&mut self, index: usize) -> Mark {
        let mark = Mark(self.text.len());
        // Writing to a string is infallible.
        let _ = write!(self.text, "[{index}]");
        mark
    }

    pub(crate) fn leave(&mut self, mark: Mark) {
        self.text.truncate(mark.0);
    }
}
