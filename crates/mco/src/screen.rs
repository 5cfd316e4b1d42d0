//! Text on a terminal that is refreshed in place.
//!
//! Escape codes are written to a terminal only; pipes and files get plain lines.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use terminal_size::{Height, Width, terminal_size_of};

use crate::output;

/// A full screen on standard output, or appended text if it is not a terminal.
#[derive(Debug)]
pub struct Screen {
    is_terminal: bool,
    shown: String,
}

impl Screen {
    pub fn new() -> Self {
        Self {
            is_terminal: io::stdout().is_terminal(),
            shown: String::new(),
        }
    }

    pub fn show(&mut self, text: String) -> anyhow::Result<()> {
        if self.is_terminal {
            let body = body(&text, size(io::stdout()));
            return output::print(&format!("{HOME}{}{BELOW}", body.text));
        }
        if text == self.shown {
            return Ok(());
        }
        let separator = if self.shown.is_empty() { "" } else { "\n" };
        output::print(&format!("{separator}{text}"))?;
        self.shown = text;
        Ok(())
    }
}

/// A few refreshed lines on standard error. The last ones stay visible.
#[derive(Debug)]
pub struct Lines {
    is_terminal: bool,
    /// On a terminal, the number of lines to overwrite.
    height: usize,
    /// Without a terminal, the lines that were printed.
    said: Vec<String>,
}

impl Lines {
    pub fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        Self {
            is_terminal: io::stderr().is_terminal() && !is_dumb,
            height: 0,
            said: Vec::new(),
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows the current lines. Failures to write are ignored, because they could not be reported anywhere.
    pub fn show(&mut self, lines: &[String]) {
        let text = if self.is_terminal {
            let body = body(&lines.join("\n"), size(io::stderr()));
            let text = over(self.height, &body.text);
            self.height = body.height;
            text
        } else {
            news(&mut self.said, lines)
        };
        write(&text);
    }

    /// Ends the lines, which stay visible above later output.
    pub fn end(self) {
        if self.is_terminal {
            write("\n");
        }
    }
}

fn write(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const BELOW: &str = "\u{1b}[J";

fn size(of: impl std::os::fd::AsFd) -> (usize, usize) {
    match terminal_size_of(of) {
        Some((Width(width), Height(height))) => (usize::from(width), usize::from(height)),
        None => (80, 24),
    }
}

/// A text that overwrites an older one.
struct ScreenBody {
    text: String,
    height: usize,
}

/// Returns the text line by line, clearing the rest of each, so that nothing flickers; lines that do not fit are
/// counted.
fn body(text: &str, (width, height): (usize, usize)) -> ScreenBody {
    let lines: Vec<&str> = text.lines().collect();
    let room = height.saturating_sub(1).max(2);
    let fits = lines.len() <= room;
    let shown = if fits { lines.len() } else { room - 1 };
    let mut body = String::new();
    for line in lines.iter().take(shown) {
        let _ = writeln!(body, "{}{REST_OF_LINE}", cut(line, width));
    }
    if !fits {
        let _ = writeln!(body, "... and {} more lines{REST_OF_LINE}", lines.len() - shown);
    }
    ScreenBody {
        text: body,
        height: shown + usize::from(!fits),
    }
}

/// Returns the start of a line that fits the width. Colours have no width, and are kept so that they end, too.
fn cut(line: &str, width: usize) -> String {
    let mut text = String::new();
    let (mut column, mut in_colour) = (0, false);
    for c in line.chars() {
        if c == '\u{1b}' {
            in_colour = true;
        }
        if in_colour {
            text.push(c);
            in_colour = c != 'm';
        } else if column < width {
            text.push(c);
            column += 1;
        }
    }
    text
}

/// Overwrites the lines above.
fn over(height: usize, text: &str) -> String {
    match height {
        0 => text.to_owned(),
        height => format!("\u{1b}[{height}A{text}{BELOW}"),
    }
}

/// Returns the lines that have not been printed yet.
fn news(said: &mut Vec<String>, lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| !said.contains(line)) {
        let _ = writeln!(text, "{line}");
    }
    lines.clone_into(said);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_the_terminal_and_leaves_nothing_of_the_one_before() {
        let shown = |text: &str, size| {
            let body = body(text, size);
            assert_eq!(body.text.lines().count(), body.height);
            body.text
        };
        assert_eq!(shown("one\ntwo\n", (80, 24)), "one\u{1b}[K\ntwo\u{1b}[K\n");
        assert_eq!(
            shown("1\n2\n3\n4\n5\n", (80, 4)),
            "1\u{1b}[K\n2\u{1b}[K\n... and 3 more lines\u{1b}[K\n"
        );
        assert_eq!(shown("abcdef", (3, 24)), "abc\u{1b}[K\n");
        assert_eq!(
            shown("a\u{1b}[31mbcdef\u{1b}[0m", (3, 24)),
            "a\u{1b}[31mbc\u{1b}[0m\u{1b}[K\n"
        );
    }

    #[test]
    fn lines_are_written_over_the_ones_before() {
        assert_eq!(over(0, "a\n"), "a\n");
        assert_eq!(over(2, "a\n"), "\u{1b}[2Aa\n\u{1b}[J");
    }

    #[test]
    fn a_line_is_said_once_and_again_only_after_it_was_different() {
        let mut said = Vec::new();
        let mut say = |lines: &[&str]| {
            news(
                &mut said,
                &lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(say(&["a 0", "b 0"]), "a 0\nb 0\n");
        assert_eq!(say(&["a 0", "b 1"]), "b 1\n");
        assert_eq!(say(&["a 0", "b 1"]), "");
        assert_eq!(say(&["a 0", "b 0"]), "b 0\n");
    }
}
