//! Validates a user's Containerfile before a build is started for it, so that a mistake costs no build.
//!
//! Accepts what the reference implementation accepts, except heredocs without an end, with which every build fails.

use std::fmt;

/// The first mistake of a Containerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxProblem {
    /// Counted from 1.
    pub line: usize,
    pub problem: String,
    pub hint: &'static str,
}

impl fmt::Display for SyntaxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n  hint: {}", self.line, self.problem, self.hint)
    }
}

const NEED_ARGUMENT: &[&str] = &[
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "LABEL",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];
const NEED_NOTHING: &[&str] = &["HEALTHCHECK", "MAINTAINER"];
const WITH_HEREDOCS: &[&str] = &["ADD", "COPY", "RUN"];
const WITH_PAIRS: &[&str] = &["ENV", "LABEL"];

/// Validates the text. Blank lines and comments alone are valid.
pub fn check(text: &str) -> Result<(), SyntaxProblem> {
    let instructions = parse(text)?;
    let mut pairs_are_loose = false;
    for instruction in &instructions {
        instruction.check()?;
        pairs_are_loose |= instruction.has_loose_pairs();
    }
    if pairs_are_loose {
        check_pair_lines(text)?;
    }
    Ok(())
}

/// Unquoted values with spaces are tolerated as long as every ENV and LABEL line has a pair at all.
fn check_pair_lines(text: &str) -> Result<(), SyntaxProblem> {
    for (index, line) in text.split('\n').enumerate() {
        let keyword = line
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        if WITH_PAIRS.contains(&keyword.as_str()) && !line.contains('=') {
            return Err(SyntaxProblem {
                line: index + 1,
                problem: format!("{keyword} instruction must use key=value form"),
                hint: "write the value after an equals sign, in quotes if it contains spaces: KEY=\"some value\"",
            });
        }
    }
    Ok(())
}

struct Instruction {
    line: usize,
    keyword: String,
    arguments: String,
    escape: char,
}

impl Instruction {
    fn check(&self) -> Result<(), SyntaxProblem> {
        let keyword = self.keyword.as_str();
        if !NEED_ARGUMENT.contains(&keyword) && !NEED_NOTHING.contains(&keyword) {
            return Err(SyntaxProblem {
                line: self.line,
                problem: format!("unknown instruction {:?}", shortened(keyword)),
                hint: "begin the line with an instruction such as FROM, RUN, COPY or LABEL, and end the line before it \
                       with a backslash if it continues there",
            });
        }
        if NEED_ARGUMENT.contains(&keyword) && self.arguments.is_empty() {
            return Err(SyntaxProblem {
                line: self.line,
                problem: format!("{keyword} requires at least one argument"),
                hint: "add its argument, or remove the line",
            });
        }
        Ok(())
    }

    /// Whether the pairs of an ENV or LABEL are not all of the form key=value.
    fn has_loose_pairs(&self) -> bool {
        if !WITH_PAIRS.contains(&self.keyword.as_str()) {
            return false;
        }
        let words = words(&self.arguments, self.escape);
        match words.first() {
            Some(first) if first.contains('=') => words.iter().any(|word| !word.contains('=')),
            // One key and one value, without an equals sign.
            Some(_) => words.len() < 2,
            None => false,
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn parse(text: &str) -> Result<Vec<Instruction>, SyntaxProblem> {
    let lines: Vec<&str> = text.split('\n').collect();
    let escape = escape_directive(&lines);
    let mut instructions = Vec::new();
    let mut next = 0;
    while next < lines.len() {
        let line = lines[next].trim();
        if line.is_empty() || line.starts_with('#') {
            next += 1;
            continue;
        }
        let first = next + 1;
        let (logical, after) = logical_line(&lines, next, escape);
        let instruction = split(&logical, first, escape);
        next = after;
        if WITH_HEREDOCS.contains(&instruction.keyword.as_str()) {
            for heredoc in heredocs(&instruction.arguments, escape) {
                next = heredoc.end(&lines, next, first)?;
            }
        }
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// Returns the character that continues lines, which a directive in the first lines may change.
fn escape_directive(lines: &[&str]) -> char {
    for line in lines {
        let Some(directive) = line.trim().strip_prefix('#') else {
            break;
        };
        let Some((key, value)) = directive.split_once('=') else {
            break;
        };
        if key.trim().eq_ignore_ascii_case("escape") {
            return if value.trim() == "`" { '`' } else { '\\' };
        }
    }
    '\\'
}

/// Joins continued lines. Comments and blank lines in between are skipped. Returns the index of the line after it.
fn logical_line(lines: &[&str], first: usize, escape: char) -> (String, usize) {
    let mut logical = String::new();
    let mut next = first;
    while next < lines.len() {
        let line = lines[next].trim_end();
        next += 1;
        let trimmed = line.trim_start();
        if next > first + 1 && (trimmed.is_empty() || trimmed.starts_with('#')) {
            continue;
        }
        if let Some(continued) = line.strip_suffix(escape) {
            logical.push_str(continued);
        } else {
            logical.push_str(line);
            break;
        }
    }
    (logical, next)
}

fn split(logical: &str, line: usize, escape: char) -> Instruction {
    let logical = logical.trim();
    let (keyword, arguments) = logical.split_once(char::is_whitespace).unwrap_or((logical, ""));
    Instruction {
        line,
        keyword: keyword.to_ascii_uppercase(),
        arguments: arguments.trim().to_owned(),
        escape,
    }
}

/// Splits at whitespace outside of quotes. Quotes stay.
fn words(text: &str, escape: char) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if quote.is_none() && c.is_whitespace() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(c);
        match quote {
            None if c == '"' || c == '\'' => quote = Some(c),
            Some(open) if c == open => quote = None,
            // Single quotes have no escapes.
            Some('\'') => {}
            _ if c == escape => word.extend(characters.next()),
            _ => {}
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Heredoc {
    delimiter: String,
    /// Leading tabs of its lines are ignored.
    chomps_tabs: bool,
}

impl Heredoc {
    /// Returns the index of the line after its end.
    fn end(&self, lines: &[&str], begin: usize, instruction: usize) -> Result<usize, SyntaxProblem> {
        let is_end = |line: &&str| {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let line = if self.chomps_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            line == self.delimiter
        };
        let body = lines.get(begin..).unwrap_or_default();
        let end = body.iter().position(is_end).ok_or_else(|| SyntaxProblem {
            line: instruction,
            problem: format!("the heredoc has no end {:?}", shortened(&self.delimiter)),
            hint: "add a line that consists of the word after << and nothing else",
        })?;
        Ok(begin + end + 1)
    }
}

fn heredocs(arguments: &str, escape: char) -> Vec<Heredoc> {
    let words = words(arguments, escape);
    let found = words.iter().filter_map(|word| {
        let (descriptor, rest) = word.split_once("<<")?;
        let (chomps_tabs, delimiter) = match rest.strip_prefix('-') {
            Some(delimiter) => (true, delimiter),
            None => (false, rest),
        };
        let delimiter: String = delimiter.chars().filter(|c| *c != '"' && *c != '\'').collect();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
        let is_heredoc = descriptor.chars().all(|c| c.is_ascii_digit())
            && delimiter.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && delimiter.chars().all(is_word);
        is_heredoc.then_some(Heredoc {
            delimiter,
            chomps_tabs,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_containerfiles_are_accepted() {
        for text in [
            "",
            "   \n\t\n",
            "# only a comment\n",
            "FROM configs AS final\nRUN dnf install -y vim && ostree container commit\n",
            "from configs as final\nrun echo lower\n",
            "FROM configs AS final\r\nRUN echo crlf\r\n",
            "FROM configs AS final\nLABEL description=some words without quotes\n",
            "FROM configs AS final\nENV KEY value of the old form\n",
            "FROM configs AS final\nLABEL a=\"b c\" d='e f' g=h\\ i\n",
            "FROM configs AS final\nRUN a && \\\n    # a comment\n\n    b && \\\n    c\n",
            "FROM configs AS final\nHEALTHCHECK NONE\nCMD [\"/bin/sh\"]\nMAINTAINER\n",
            "FROM configs AS final\nRUN <<EOF\nnot an instruction\nEOF\nUSER root\n",
            "FROM configs AS final\nCOPY <<-\"END\" <<OTHER /etc/\n\tone\n\tEND\ntwo\nOTHER\nUSER root\n",
            "FROM configs AS final\nRUN echo '<<EOF' && cat <<<text && echo $((1<<2))\n",
            "# escape=`\nFROM configs AS final\nRUN a `\n  b\n",
            "RUN echo a\u{2028}b \u{a0} \u{feff} x\n",
        ] {
            assert_eq!(check(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        for (text, line, problem) in [
            (
                "FROM configs AS final\nENV BROKEN\n",
                2,
                "ENV instruction must use key=value form",
            ),
            (
                "LABEL a=b c\n\nENV OLD form\n",
                3,
                "ENV instruction must use key=value form",
            ),
            (
                "FROM configs AS final\n\nRUN\n",
                3,
                "RUN requires at least one argument",
            ),
            ("# comment\nFROM\n", 2, "FROM requires at least one argument"),
            ("- a: b", 1, "unknown instruction \"-\""),
            (
                "FROM a\nRUN x && \\\n y\nWORKDIRR /\n",
                4,
                "unknown instruction \"WORKDIRR\"",
            ),
            ("FROM a\nRUN x\n  --flag\n", 3, "unknown instruction \"--FLAG\""),
            ("FROM a\nRUN <<EOF\necho\n", 2, "the heredoc has no end \"EOF\""),
        ] {
            let found = check(text).unwrap_err();
            assert_eq!((found.line, found.problem.as_str()), (line, problem), "{text:?}");
        }
    }
}
