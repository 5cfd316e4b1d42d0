//! The grammar of label selectors in query strings.
//!
//! Error messages are those of Kubernetes, including where they are odd, because users search for them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::label::{LabelOperator, LabelRequirement, LabelSelectorError};
use crate::field_error::FieldError;
use crate::names;

/// Parses a whole selector; an empty text has no requirement.
pub(super) fn parse(text: &str) -> Result<Vec<LabelRequirement>, LabelSelectorError> {
    let mut parser = SelectorParser {
        tokens: scan(text),
        position: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            SelectorToken::Identifier(_) | SelectorToken::Keyword(_) | SelectorToken::Symbol("!") => {
                let requirement = parser.requirement().map_err(|error| {
                    LabelSelectorError::Syntax(format!("unable to parse requirement: {error}"))
                })?;
                requirements.push(requirement);
            }
            SelectorToken::End => return Ok(requirements),
            other @ SelectorToken::Symbol(_) => {
                return Err(syntax(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.literal()
                )));
            }
        }
        match parser.next() {
            SelectorToken::End => return Ok(requirements),
            SelectorToken::Symbol(",") => match parser.peek() {
                SelectorToken::Identifier(_) | SelectorToken::Keyword(_) | SelectorToken::Symbol("!") => {}
                other => {
                    return Err(syntax(format!(
                        "found '{}', expected: identifier after ','",
                        other.literal()
                    )));
                }
            },
            other => {
                return Err(syntax(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    other.literal()
                )));
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SelectorToken {
    Identifier(String),
    /// `in` and `notin`: operators after a key, plain text elsewhere.
    Keyword(&'static str),
    Symbol(&'static str),
    End,
}

impl SelectorToken {
    fn literal(&self) -> &str {
        match self {
            Self::Identifier(text) => text,
            Self::Keyword(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }

    /// Returns the text of a key or value, where `in` and `notin` are ordinary words.
    fn word(&self) -> Option<&str> {
        match self {
            Self::Identifier(text) => Some(text),
            Self::Keyword(text) => Some(text),
            Self::Symbol(_) | Self::End => None,
        }
    }
}

struct SelectorParser {
    tokens: Vec<SelectorToken>,
    position: usize,
}

impl SelectorParser {
    fn peek(&self) -> SelectorToken {
        self.tokens
            .get(self.position)
            .cloned()
            .unwrap_or(SelectorToken::End)
    }

    fn next(&mut self) -> SelectorToken {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, LabelSelectorError> {
        let mut token = self.next();
        let negated = token == SelectorToken::Symbol("!");
        if negated {
            token = self.next();
        }
        let Some(key) = token.word().map(str::to_owned) else {
            return Err(syntax(format!(
                "found '{}', expected: identifier",
                token.literal()
            )));
        };
        let problems = names::label_key(&key);
        if !problems.is_empty() {
            let error = FieldError::invalid("<nil>", &Value::from(key), &problems.join("; "));
            return Err(LabelSelectorError::Requirement(vec![error]));
        }
        let ends = matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(","));
        if negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if ends {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        LabelRequirement::new(key, operator, values.into_iter().collect())
    }

    fn operator(&mut self) -> Result<LabelOperator, LabelSelectorError> {
        let token = self.next();
        Ok(match token {
            SelectorToken::Keyword("in") => LabelOperator::In,
            SelectorToken::Keyword("notin") => LabelOperator::NotIn,
            SelectorToken::Symbol("=") => LabelOperator::Equals,
            SelectorToken::Symbol("==") => LabelOperator::DoubleEquals,
            SelectorToken::Symbol("!=") => LabelOperator::NotEquals,
            SelectorToken::Symbol(">") => LabelOperator::GreaterThan,
            SelectorToken::Symbol("<") => LabelOperator::LessThan,
            other => {
                return Err(syntax(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.literal()
                )));
            }
        })
    }

    fn exact_value(&mut self) -> Result<String, LabelSelectorError> {
        if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            return Ok(String::new());
        }
        let token = self.next();
        match token.word() {
            Some(text) => Ok(text.to_owned()),
            None => Err(syntax(format!(
                "found '{}', expected: identifier",
                token.literal()
            ))),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        let open = self.next();
        if open != SelectorToken::Symbol("(") {
            return Err(syntax(format!("found '{}' expected: '('", open.literal())));
        }
        let first = self.peek();
        if first == SelectorToken::Symbol(")") {
            self.next();
            return Ok(BTreeSet::from([String::new()]));
        }
        if first.word().is_none() && first != SelectorToken::Symbol(",") {
            return Err(syntax(format!(
                "found '{}', expected: ',', ')' or identifier",
                first.literal()
            )));
        }
        let values = self.value_list()?;
        // The list ends only in front of a closing parenthesis.
        self.next();
        Ok(values)
    }

    fn value_list(&mut self) -> Result<BTreeSet<String>, LabelSelectorError> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.next();
            if let Some(text) = token.word() {
                values.insert(text.to_owned());
                match self.peek() {
                    SelectorToken::Symbol(",") => {}
                    SelectorToken::Symbol(")") => return Ok(values),
                    other => {
                        return Err(syntax(format!(
                            "found '{}', expected: ',' or ')'",
                            other.literal()
                        )));
                    }
                }
            } else if token == SelectorToken::Symbol(",") {
                // An empty text between, before or after commas is the empty value.
                if values.is_empty() || matches!(self.peek(), SelectorToken::Symbol("," | ")")) {
                    values.insert(String::new());
                }
                if self.peek() == SelectorToken::Symbol(")") {
                    return Ok(values);
                }
            } else {
                return Err(syntax(format!(
                    "found '{}', expected: ',', or identifier",
                    token.literal()
                )));
            }
        }
    }
}

/// Longer symbols first, so that the first match is the right one.
const SYMBOLS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn scan(text: &str) -> Vec<SelectorToken> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        let taken = if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(SelectorToken::Symbol(symbol));
            symbol.len()
        } else {
            let end = rest.find(|c| is_symbol(c) || is_blank(c)).unwrap_or(rest.len());
            tokens.push(match &rest[..end] {
                "in" => SelectorToken::Keyword("in"),
                "notin" => SelectorToken::Keyword("notin"),
                word => SelectorToken::Identifier(word.to_owned()),
            });
            end
        };
        rest = rest[taken..].trim_start_matches(is_blank);
    }
    tokens
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn syntax(message: String) -> LabelSelectorError {
    LabelSelectorError::Syntax(message)
}
