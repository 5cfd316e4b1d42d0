//! Regular expressions in the syntax of Go.
//!
//! Schemas and rules are written for Go's engine. The `regex` crate has almost the same syntax; this module translates
//! the constructs that differ.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use regex::Regex;
use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson::{NFA, WhichCaptures};

use crate::cpu;

/// The states of a pattern times the bytes of a text up to which a match is not metered: at worst a third of a second.
const UNMETERED_STEPS: usize = 4_000_000;
/// The time of a metered match. Ordinary patterns take a nanosecond per byte.
const TIME_LIMIT: Duration = Duration::from_millis(300);
/// The states of the pattern times the bytes of the text between two readings of the clock in a metered match.
const STEPS_PER_READING: usize = 1 << 16;

/// A compiled pattern and the text it was compiled from.
#[derive(Clone, Debug)]
pub struct GoPattern {
    source: Box<str>,
    regex: Regex,
    /// The number of states of the automaton, to which the worst time per byte is proportional.
    states: usize,
    /// The automaton for metered matches, built for the first of them.
    metered: OnceLock<Option<Arc<DFA>>>,
}

/// A match was not completed, because the pattern is too complex for a text of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pattern is too complex for a text of {bytes} bytes; simplify the pattern, limit the length of the text, \
         or shorten the text"
)]
pub struct PatternTooExpensive {
    pub bytes: usize,
}

impl GoPattern {
    /// Compiles a pattern; the error is one line.
    pub fn compile(source: &str) -> Result<Self, String> {
        let regex = Regex::new(&translate(source)).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            format!(
                "error parsing regexp: {}: `{source}`",
                reason.trim_start_matches("error: ")
            )
        })?;
        let states = automaton(&regex).map_or(usize::MAX, |nfa| nfa.states().len());
        Ok(Self {
            source: source.into(),
            regex,
            states,
            metered: OnceLock::new(),
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the number of states of the pattern's automaton.
    pub fn states(&self) -> usize {
        self.states
    }

    /// Returns whether the text matches, in bounded time.
    pub fn is_match(&self, text: &str) -> Result<bool, PatternTooExpensive> {
        if self.is_cheap(text) {
            return Ok(self.regex.is_match(text));
        }
        let too_expensive = PatternTooExpensive { bytes: text.len() };
        let metered = self.metered.get_or_init(|| {
            let nfa = automaton(&self.regex)?;
            let config = DFA::config().skip_cache_capacity_check(true);
            DFA::builder()
                .configure(config)
                .build_from_nfa(nfa)
                .ok()
                .map(Arc::new)
        });
        let dfa = metered.as_deref().ok_or(too_expensive)?;
        metered_match(dfa, text, self.states).ok_or(too_expensive)
    }

    /// Returns the expression for searches in a text, if they take bounded time.
    pub fn regex_for(&self, text: &str) -> Result<&Regex, PatternTooExpensive> {
        if self.is_cheap(text) {
            Ok(&self.regex)
        } else {
            Err(PatternTooExpensive { bytes: text.len() })
        }
    }

    fn is_cheap(&self, text: &str) -> bool {
        self.states.saturating_mul(text.len()) <= UNMETERED_STEPS
    }
}

fn automaton(regex: &Regex) -> Option<NFA> {
    let config = NFA::config().which_captures(WhichCaptures::None);
    NFA::compiler().configure(config).build(regex.as_str()).ok()
}

/// Returns whether a text matches, or `None` if that takes too long or the automaton does not support the pattern.
fn metered_match(dfa: &DFA, text: &str, states: usize) -> Option<bool> {
    let deadline = Instant::now() + TIME_LIMIT;
    let interval = (STEPS_PER_READING / states.max(1)).max(1);
    let mut cache = dfa.create_cache();
    let mut state = dfa.start_state_forward(&mut cache, &Input::new(text)).ok()?;
    for (at, byte) in text.bytes().enumerate() {
        if at % interval == 0 && (Instant::now() >= deadline || cpu::is_out_of_time()) {
            return None;
        }
        state = dfa.next_state(&mut cache, state, byte).ok()?;
        if state.is_match() {
            return Some(true);
        }
        if state.is_dead() {
            return Some(false);
        }
        if state.is_quit() {
            return None;
        }
    }
    let end = dfa.next_eoi_state(&mut cache, state).ok()?;
    Some(end.is_match())
}

/// Rewrites what the two engines interpret differently: Perl classes are ASCII in Go, and Go has no nested classes and
/// no set operators.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    let mut in_class = false;
    let mut at_class_start = false;
    while let Some(c) = chars.next() {
        let starts_class = at_class_start;
        at_class_start = false;
        match (c, in_class) {
            ('\\', _) => match chars.next() {
                Some('Q') if !in_class => push_literal(&mut out, &mut chars),
                Some(escaped) => push_escape(&mut out, escaped, in_class),
                None => out.push('\\'),
            },
            ('[', false) => {
                in_class = true;
                at_class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.push('^');
                    chars.next();
                }
            }
            ('[', true) if chars.peek() == Some(&':') => {
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            (']', true) if starts_class => out.push_str("\\]"),
            (']', true) => {
                in_class = false;
                out.push(']');
            }
            ('[' | '&' | '~', true) => {
                out.push('\\');
                out.push(c);
            }
            ('-', true) if starts_class || chars.peek() == Some(&']') => out.push_str("\\-"),
            ('-', true) if chars.peek() == Some(&'-') => {
                // The end of a range that happens to be a dash.
                chars.next();
                out.push_str("-\\-");
            }
            (c, _) => out.push(c),
        }
    }
    out
}

fn push_escape(out: &mut String, escaped: char, in_class: bool) {
    let ascii = match escaped {
        'd' => Some(("0-9", false)),
        'D' => Some(("0-9", true)),
        'w' => Some(("0-9A-Za-z_", false)),
        'W' => Some(("0-9A-Za-z_", true)),
        's' => Some(("\\t\\n\\f\\r ", false)),
        'S' => Some(("\\t\\n\\f\\r ", true)),
        _ => None,
    };
    match (ascii, in_class) {
        (Some((set, false)), true) => out.push_str(set),
        (Some((set, negated)), _) => {
            out.push_str(if negated { "[^" } else { "[" });
            out.push_str(set);
            out.push(']');
        }
        (None, false) if escaped == 'b' || escaped == 'B' => {
            out.push_str("(?-u:\\");
            out.push(escaped);
            out.push(')');
        }
        (None, _) => {
            out.push('\\');
            out.push(escaped);
        }
    }
}

/// Escapes everything up to `\E`.
fn push_literal(out: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut literal = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            break;
        }
        literal.push(c);
    }
    out.push_str(&regex::escape(&literal));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn metered(pattern: &GoPattern, text: &str) -> Option<bool> {
        let dfa = DFA::builder().build_from_nfa(automaton(&pattern.regex)?).ok()?;
        metered_match(&dfa, text, pattern.states)
    }

    #[test]
    fn a_slow_pattern_of_a_definition_stopped_the_server() {
        let pattern = GoPattern::compile(r"(\w{1,1000}){1,20}x").unwrap();
        let start = Instant::now();
        let outcome = pattern.is_match(&"a".repeat(200_000));
        assert_eq!(outcome, Err(PatternTooExpensive { bytes: 200_000 }));
        // A minute before; in a debug build on a busy machine a few seconds.
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(pattern.regex_for(&"a".repeat(200_000)).is_err());
    }

    #[test]
    fn an_ordinary_pattern_matches_a_text_of_any_length() {
        let pattern = GoPattern::compile("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").unwrap();
        let text = "a-1".repeat(500_000);
        assert!(!pattern.is_cheap(&text));
        let automaton = DFA::builder()
            .build_from_nfa(automaton(&pattern.regex).unwrap())
            .unwrap();
        // Without the time limit of `is_match`, which a debug build may exceed.
        let mut cache = automaton.create_cache();
        let found = automaton.try_search_fwd(&mut cache, &Input::new(&text)).unwrap();
        assert_eq!(found.is_some(), pattern.regex.is_match(&text));
    }

    proptest! {
        #[test]
        fn a_metered_match_finds_what_the_expression_finds(source in "(\\^)?([ab.]|a\\*|(ab|b)\\+|\\\\b|a\\{2,3\\}){1,6}(\\$)?", text in "[abä\n ]{0,12}") {
            let pattern = GoPattern::compile(&source).unwrap();
            if let Some(metered) = metered(&pattern, &text) {
                prop_assert_eq!(metered, pattern.regex.is_match(&text));
            }
        }
    }

    #[test]
    fn patterns_match_what_go_matches() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("^[a-z]+$", &["abc"], &["ABC", "a1", ""]),
            (r"^\d+$", &["12"], &["١٢", "x"]),
            (r"^[\d.]+$", &["1.2"], &["a"]),
            (r"^\w+$", &["a_1"], &["grün"]),
            (r"^[^\W]+$", &["a_1"], &["a b"]),
            ("^[[]$", &["["], &["]"]),
            ("^[]a]$", &["]", "a"], &["["]),
            ("^[a&&b]+$", &["a&b"], &["c"]),
            ("^[a-]+$", &["a-"], &["b"]),
            ("^[+--]$", &["+", ",", "-"], &["."]),
            ("^[[:alpha:]~]+$", &["ab~"], &["1"]),
            (r"^a\bb$", &[], &["ab"]),
            (r"^\Qa.b\E$", &["a.b"], &["axb"]),
            (r"^.{2}$", &["äö"], &["a"]),
            (r"^sha256:[a-f0-9]{64}$", &[], &["sha256:x"]),
        ];
        for (source, matching, other) in cases {
            let pattern = GoPattern::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
            for text in *matching {
                assert_eq!(pattern.is_match(text), Ok(true), "{source} should match {text}");
                assert_eq!(
                    metered(&pattern, text),
                    Some(true),
                    "{source} should match {text}"
                );
            }
            for text in *other {
                assert_eq!(
                    pattern.is_match(text),
                    Ok(false),
                    "{source} should not match {text}"
                );
                assert_eq!(
                    metered(&pattern, text),
                    Some(false),
                    "{source} should not match {text}"
                );
            }
        }
    }

    #[test]
    fn a_broken_pattern_is_refused_with_a_reason_in_one_line() {
        let error = GoPattern::compile("[").expect_err("broken");
        assert!(
            error.starts_with("error parsing regexp: ") && !error.contains('\n'),
            "{error}"
        );
    }
}
