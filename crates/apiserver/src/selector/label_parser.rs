//! The grammar of label selectors in query strings.
//!
//! Error messages are those of Kubernetes, including where they are odd, because users search for them.

use super::label::{LabelSelectorError, Operator, Requirement};
use crate::field_error::FieldError;
use crate::names;
use serde_json::Value;
use std::collections::BTreeSet;

/// Parses a whole selector; an empty text has no requirement.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, LabelSelectorError> {
    let mut parser = Parser {
        tokens: scan(text),
        position: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Identifier(_) | Token::Keyword(_) | Token::Symbol("!") => {
                let requirement = parser.requirement().map_err(|error| {
                    LabelSelectorError::Syntax(format!("unable to parse requirement: {error}"))
                })?;
                requirements.push(requirement);
            }
            Token::End => return Ok(requirements),
            other @ Token::Symbol(_) => {
                return Err(syntax(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.literal()
                )));
            }
        }
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match parser.peek() {
                Token::Identifier(_) | Token::Keyword(_) | Token::Symbol("!") => {}
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
enum Token {
    Identifier(String),
    /// `in` and `notin`: operators after a key, plain text elsewhere.
    Keyword(&'static str),
    Symbol(&'static str),
    End,
}

impl Token {
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

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, LabelSelectorError> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
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
        let ends = matches!(self.peek(), Token::End | Token::Symbol(","));
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if ends {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        Requirement::new(key, operator, values.into_iter().collect())
    }

    fn operator(&mut self) -> Result<Operator, LabelSelectorError> {
        let token = self.next();
        Ok(match token {
            Token::Keyword("in") => Operator::In,
            Token::Keyword("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                return Err(syntax(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.literal()
                )));
            }
        })
    }

    fn exact_value(&mut self) -> Result<String, LabelSelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
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
        if open != Token::Symbol("(") {
            return Err(syntax(format!("found '{}' expected: '('", open.literal())));
        }
        let first = self.peek();
        if first == Token::Symbol(")") {
            self.next();
            return Ok(BTreeSet::from([String::new()]));
        }
        if first.word().is_none() && first != Token::Symbol(",") {
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
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Ok(values),
                    other => {
                        return Err(syntax(format!(
                            "found '{}', expected: ',' or ')'",
                            other.literal()
                        )));
                    }
                }
            } else if token == Token::Symbol(",") {
                // An empty text between, before or after commas is the empty value.
                if values.is_empty() || matches!(self.peek(), Token::Symbol("," | ")")) {
                    values.insert(String::new());
                }
                if self.peek() == Token::Symbol(")") {
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

fn scan(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        let taken = if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            symbol.len()
        } else {
            let end = rest.find(|c| is_symbol(c) || is_blank(c)).unwrap_or(rest.len());
            tokens.push(match &rest[..end] {
                "in" => Token::Keyword("in"),
                "notin" => Token::Keyword("notin"),
                word => Token::Identifier(word.to_owned()),
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
