//! The styles that a string allows: plain, quoted or literal block.

use super::resolve;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// The position of a scalar: a key written on one line allows fewer styles than a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarPosition {
    Key,
    Value,
}

pub(super) fn style(text: &str, place: ScalarPosition) -> Style {
    let allowed = Allowed::of(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if resolve::is_plain_string(text) {
        Style::Plain
    } else {
        Style::DoubleQuoted
    };
    match wanted {
        Style::Literal if !allowed.block || place == ScalarPosition::Key => Style::DoubleQuoted,
        Style::Plain if allowed.multiline && place == ScalarPosition::Key => Style::DoubleQuoted,
        Style::Plain if !allowed.plain && allowed.single_quoted => Style::SingleQuoted,
        Style::Plain if !allowed.plain => Style::DoubleQuoted,
        style => style,
    }
}

pub(super) fn is_multiline(text: &str) -> bool {
    text.chars().any(is_break)
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether go-yaml writes the character without an escape. It escapes tabs and everything beyond the basic plane.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent answers about one text"
)]
struct Allowed {
    multiline: bool,
    plain: bool,
    single_quoted: bool,
    block: bool,
}

impl Allowed {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let mut special = false;
        let mut multiline = false;
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut after_blank = true;
        let mut chars = text.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if first =>
                {
                    true
                }
                '?' | '-' if first => before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            special |= !is_printable(c);
            break_space |= c == ' ' && previous_break;
            space_break |= is_break(c) && previous_space;
            previous_space = c == ' ';
            previous_break = is_break(c);
            multiline |= previous_break;
            after_blank = matches!(c, ' ' | '\t') || previous_break;
            first = false;
        }
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let edges = edge(text.chars().next()) || edge(text.chars().next_back());
        let awkward = space_break || special;
        Self {
            multiline,
            plain: !(edges || break_space || awkward || multiline || indicators),
            single_quoted: !(break_space || awkward),
            block: !(text.is_empty() || text.ends_with(' ') || awkward),
        }
    }
}
