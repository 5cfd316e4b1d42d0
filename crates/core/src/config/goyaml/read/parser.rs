//! Parser: from tokens to values.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::input::YamlMark;
use super::scanner::Scanner;
use super::token::{TokenKind, YamlToken};
use super::{DEEPEST, Document, RepeatedKey, YamlError, aliases, scalar};

#[derive(Debug)]
pub(super) struct YamlParser<'a> {
    scanner: Scanner<'a>,
    started: bool,
    depth: usize,
    /// The prefix of each `%TAG` handle in this document.
    tags: HashMap<String, String>,
    anchors: HashMap<String, Anchor>,
    usage: aliases::Usage,
    repeated: Vec<RepeatedKey>,
}

/// An anchor of this document.
#[derive(Debug)]
struct Anchor {
    at: YamlMark,
    /// `None` while the anchored value is being parsed.
    value: Option<Value>,
}

/// A parsed value, with the properties that matter if it is a key or the value of a merge key.
#[derive(Debug)]
struct YamlNode {
    value: Value,
    at: YamlMark,
    kind: NodeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    Scalar,
    /// An unquoted `<<`.
    MergeKey,
    /// Infinity or not a number: valid as a key, but not as a JSON value.
    NotFinite(&'static str),
    Collection,
    Alias,
}

/// The `&anchor` and `!tag` before a value.
#[derive(Debug, Default)]
struct Properties {
    anchor: Option<String>,
    tag: String,
}

/// The context of a value: block collections cannot start inside flow collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserPlace {
    Flow,
    Block,
    /// A key or a value of a block mapping, whose list may stay at the column of the key.
    BlockMapping,
}

impl<'a> YamlParser<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, YamlError> {
        Ok(Self {
            scanner: Scanner::new(text)?,
            started: false,
            depth: 0,
            tags: HashMap::new(),
            anchors: HashMap::new(),
            usage: aliases::Usage::default(),
            repeated: Vec::new(),
        })
    }

    /// Parses the next document of the stream, up to its end.
    pub(super) fn document(&mut self) -> Result<Option<Document>, YamlError> {
        let explicit = self.document_start()?;
        let first = self.scanner.peek()?;
        let at = first.at;
        let value = match first.kind {
            TokenKind::StreamEnd if !explicit => return Ok(None),
            ref kind if explicit && (ends_document(kind) || is_directive(kind)) => Value::Null,
            _ => as_value(self.node(ParserPlace::Block)?)?,
        };
        if self.scanner.peek()?.kind == TokenKind::DocumentEnd {
            self.scanner.next()?;
        }
        Ok(Some(Document {
            line: at.line as u64 + 1,
            value,
            repeated: std::mem::take(&mut self.repeated),
        }))
    }

    /// Whether only the end of the stream follows.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(self.scanner.peek(), Ok(token) if token.kind == TokenKind::StreamEnd)
    }

    /// Parses directives and `---`; returns whether the document has an explicit start.
    fn document_start(&mut self) -> Result<bool, YamlError> {
        if self.started {
            while self.scanner.peek()?.kind == TokenKind::DocumentEnd {
                self.scanner.next()?;
            }
        }
        self.anchors.clear();
        self.usage = aliases::Usage::default();
        self.tags = HashMap::new();
        let directives = self.directives()?;
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            self.tags
                .entry(handle.to_owned())
                .or_insert_with(|| prefix.to_owned());
        }
        let implicit_allowed = !self.started && !directives;
        self.started = true;
        let token = self.scanner.peek()?;
        match token.kind {
            TokenKind::DocumentStart => {
                self.scanner.next()?;
                Ok(true)
            }
            TokenKind::StreamEnd if !directives => Ok(false),
            _ if implicit_allowed => Ok(false),
            _ => Err(token.at.error("expected the start of a document: '---'")),
        }
    }

    fn directives(&mut self) -> Result<bool, YamlError> {
        let mut version = false;
        let mut found = false;
        loop {
            let token = self.scanner.peek()?;
            let at = token.at;
            match &token.kind {
                TokenKind::Version { .. } if version => return Err(at.error("repeated %YAML directive")),
                TokenKind::Version { major: 1, minor: 1 } => version = true,
                TokenKind::Version { .. } => return Err(at.error("only YAML 1.1 can be read")),
                TokenKind::TagDirective { handle, prefix } => {
                    if self.tags.insert(handle.clone(), prefix.clone()).is_some() {
                        return Err(at.error("repeated %TAG directive"));
                    }
                }
                _ => return Ok(found),
            }
            found = true;
            self.scanner.next()?;
        }
    }

    fn node(&mut self, place: ParserPlace) -> Result<YamlNode, YamlError> {
        if self.depth >= DEEPEST {
            let at = self.scanner.peek()?.at;
            return Err(at.error(format!("nested deeper than {DEEPEST} levels")));
        }
        self.depth += 1;
        let node = self.node_within_limits(place);
        self.depth -= 1;
        node
    }

    fn node_within_limits(&mut self, place: ParserPlace) -> Result<YamlNode, YamlError> {
        self.usage.value();
        let at = self.scanner.peek()?.at;
        if let TokenKind::Alias(name) = &self.scanner.peek()?.kind {
            let name = name.clone();
            self.scanner.next()?;
            return self.alias(&name, at);
        }
        let properties = self.properties()?;
        if let Some(anchor) = &properties.anchor {
            self.anchors.insert(anchor.clone(), Anchor { at, value: None });
        }
        let node = self.content(place, &properties, at)?;
        if let Some(anchor) = properties.anchor {
            self.usage.copy(&node.value, at)?;
            // An anchor of the same name inside the value stays in force after it.
            if let Some(anchor) = self.anchors.get_mut(&anchor).filter(|anchor| anchor.at == at)
                && !matches!(node.kind, NodeKind::NotFinite(_))
            {
                anchor.value = Some(node.value.clone());
            }
        }
        Ok(node)
    }

    fn alias(&mut self, name: &str, at: YamlMark) -> Result<YamlNode, YamlError> {
        match self.anchors.get(name) {
            None => Err(at.error(format!("unknown anchor: {name}"))),
            Some(Anchor { value: None, .. }) => Err(at.error(format!("anchor {name} contains itself"))),
            Some(Anchor {
                value: Some(value), ..
            }) => {
                self.usage.expand(value, at)?;
                Ok(YamlNode {
                    value: value.clone(),
                    at,
                    kind: NodeKind::Alias,
                })
            }
        }
    }

    /// Parses an anchor and a tag, in either order.
    fn properties(&mut self) -> Result<Properties, YamlError> {
        let mut properties = Properties::default();
        let mut tagged = false;
        for _ in 0..2 {
            let token = self.scanner.peek()?;
            let at = token.at;
            match &token.kind {
                TokenKind::Anchor(name) if properties.anchor.is_none() => {
                    properties.anchor = Some(name.clone());
                }
                TokenKind::Tag { handle, suffix } if !tagged => {
                    tagged = true;
                    properties.tag = if handle.is_empty() {
                        suffix.clone()
                    } else {
                        let prefix = self.tags.get(handle);
                        let prefix =
                            prefix.ok_or_else(|| at.error(format!("unknown tag handle: {handle}")))?;
                        format!("{prefix}{suffix}")
                    };
                }
                _ => break,
            }
            self.scanner.next()?;
        }
        Ok(properties)
    }

    fn content(
        &mut self,
        place: ParserPlace,
        properties: &Properties,
        at: YamlMark,
    ) -> Result<YamlNode, YamlError> {
        let block = place != ParserPlace::Flow;
        let token = self.scanner.peek()?;
        let value = match &token.kind {
            TokenKind::BlockEntry if place == ParserPlace::BlockMapping => self.list_at_key()?,
            TokenKind::Scalar { .. } => {
                let YamlToken { kind, .. } = self.scanner.next()?;
                return match kind {
                    TokenKind::Scalar { text, plain } => scalar_node(&text, plain, &properties.tag, at),
                    _ => Err(at.error("expected a value")),
                };
            }
            TokenKind::FlowSequenceStart => self.flow_sequence()?,
            TokenKind::FlowMappingStart => self.flow_mapping()?,
            TokenKind::BlockSequenceStart if block => self.block_sequence()?,
            TokenKind::BlockMappingStart if block => self.block_mapping()?,
            _ if properties.anchor.is_some() || !properties.tag.is_empty() => {
                return scalar_node("", true, &properties.tag, at);
            }
            kind => {
                return Err(token
                    .at
                    .error(format!("expected a value but found {}", describe(kind))));
            }
        };
        Ok(YamlNode {
            value,
            at,
            kind: NodeKind::Collection,
        })
    }

    fn block_sequence(&mut self) -> Result<Value, YamlError> {
        self.scanner.next()?;
        let mut items = Vec::new();
        loop {
            let YamlToken { kind, at } = self.scanner.next()?;
            match kind {
                TokenKind::BlockEntry => {
                    items.push(self.value_unless(ParserPlace::Block, |next| {
                        matches!(next, TokenKind::BlockEntry | TokenKind::BlockEnd)
                    })?);
                }
                TokenKind::BlockEnd => return Ok(Value::Array(items)),
                other => return Err(at.error(format!("expected '- ' but found {}", describe(&other)))),
            }
        }
    }

    /// Parses a list whose dashes are at the column of its key. Its end has no token.
    fn list_at_key(&mut self) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        while self.scanner.peek()?.kind == TokenKind::BlockEntry {
            self.scanner.next()?;
            items.push(self.value_unless(ParserPlace::Block, |next| {
                matches!(
                    next,
                    TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd
                )
            })?);
        }
        Ok(Value::Array(items))
    }

    fn block_mapping(&mut self) -> Result<Value, YamlError> {
        let absent =
            |next: &TokenKind| matches!(next, TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd);
        self.scanner.next()?;
        let mut map = Map::new();
        loop {
            let YamlToken { kind, at } = self.scanner.next()?;
            match kind {
                TokenKind::Key => {
                    let key = self.node_unless(ParserPlace::BlockMapping, absent)?;
                    let value = if self.scanner.peek()?.kind == TokenKind::Value {
                        self.scanner.next()?;
                        self.node_unless(ParserPlace::BlockMapping, absent)?
                    } else {
                        empty(at)
                    };
                    self.insert(&mut map, &key, value)?;
                }
                TokenKind::BlockEnd => return Ok(Value::Object(map)),
                other => return Err(at.error(format!("expected a key but found {}", describe(&other)))),
            }
        }
    }

    fn flow_sequence(&mut self) -> Result<Value, YamlError> {
        let start = self.scanner.next()?.at;
        let mut items = Vec::new();
        loop {
            if self.flow_ends(&TokenKind::FlowSequenceEnd, items.is_empty(), start)? {
                return Ok(Value::Array(items));
            }
            let item = if self.scanner.peek()?.kind == TokenKind::Key {
                self.pair_in_sequence()?
            } else {
                as_value(self.node(ParserPlace::Flow)?)?
            };
            items.push(item);
        }
    }

    /// Parses a mapping of one pair without braces, as in `[a: 1]`.
    fn pair_in_sequence(&mut self) -> Result<Value, YamlError> {
        let at = self.scanner.next()?.at;
        let ends = |next: &TokenKind| matches!(next, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd);
        let next = &self.scanner.peek()?.kind;
        let key = if ends(next) || *next == TokenKind::Value {
            // go-yaml skips this token too, and so rejects what follows.
            self.scanner.next()?;
            empty(at)
        } else {
            self.node(ParserPlace::Flow)?
        };
        let value = if self.scanner.peek()?.kind == TokenKind::Value {
            self.scanner.next()?;
            self.node_unless(ParserPlace::Flow, ends)?
        } else {
            empty(at)
        };
        let mut map = Map::new();
        self.insert(&mut map, &key, value)?;
        Ok(Value::Object(map))
    }

    fn flow_mapping(&mut self) -> Result<Value, YamlError> {
        let start = self.scanner.next()?.at;
        let mut map = Map::new();
        let mut first = true;
        while !self.flow_ends(&TokenKind::FlowMappingEnd, first, start)? {
            first = false;
            let (key, value) = self.flow_pair()?;
            self.insert(&mut map, &key, value)?;
        }
        Ok(Value::Object(map))
    }

    fn flow_pair(&mut self) -> Result<(YamlNode, YamlNode), YamlError> {
        let at = self.scanner.peek()?.at;
        if self.scanner.peek()?.kind != TokenKind::Key {
            return Ok((self.node(ParserPlace::Flow)?, empty(at)));
        }
        self.scanner.next()?;
        let ends = |next: &TokenKind| matches!(next, TokenKind::FlowEntry | TokenKind::FlowMappingEnd);
        let key = self.node_unless(ParserPlace::Flow, |next| ends(next) || *next == TokenKind::Value)?;
        let value = if self.scanner.peek()?.kind == TokenKind::Value {
            self.scanner.next()?;
            self.node_unless(ParserPlace::Flow, ends)?
        } else {
            empty(at)
        };
        Ok((key, value))
    }

    /// Consumes the comma before the next entry, or the closing bracket; returns whether the collection ends.
    fn flow_ends(&mut self, end: &TokenKind, first: bool, start: YamlMark) -> Result<bool, YamlError> {
        let token = self.scanner.peek()?;
        if !first && token.kind == TokenKind::FlowEntry {
            self.scanner.next()?;
        } else if !first && token.kind != *end && !ends_document(&token.kind) {
            let (end, found) = (describe(end), describe(&token.kind));
            let message =
                format!("expected ',' or {end} but found {found}; is a bracket before it left open?");
            return Err(token.at.error(message));
        }
        let token = self.scanner.peek()?;
        if ends_document(&token.kind) {
            return Err(start.error(format!("unclosed bracket: expected {}", describe(end))));
        }
        let ends = token.kind == *end;
        if ends {
            self.scanner.next()?;
        }
        Ok(ends)
    }

    /// Parses the next value; returns an empty one if the next token cannot start a value.
    fn node_unless(
        &mut self,
        place: ParserPlace,
        absent: impl Fn(&TokenKind) -> bool,
    ) -> Result<YamlNode, YamlError> {
        let next = self.scanner.peek()?;
        if absent(&next.kind) {
            Ok(empty(next.at))
        } else {
            self.node(place)
        }
    }

    fn value_unless(
        &mut self,
        place: ParserPlace,
        absent: impl Fn(&TokenKind) -> bool,
    ) -> Result<Value, YamlError> {
        self.node_unless(place, absent).and_then(as_value)
    }

    fn insert(
        &mut self,
        map: &mut Map<String, Value>,
        key: &YamlNode,
        value: YamlNode,
    ) -> Result<(), YamlError> {
        if key.kind == NodeKind::MergeKey {
            return merge(map, value);
        }
        let at = key.at;
        let key = as_key(key)?;
        let value = as_value(value)?;
        if map.insert(key.clone(), value).is_some() {
            self.repeated.push(RepeatedKey {
                line: at.line as u64 + 1,
                key,
            });
        }
        Ok(())
    }
}

/// Adds the pairs of a merge key `<<`. They replace earlier pairs, and later pairs replace them.
fn merge(map: &mut Map<String, Value>, node: YamlNode) -> Result<(), YamlError> {
    let at = node.at;
    let wrong = || at.error("'<<' needs a mapping or a list of mappings");
    match node.value {
        Value::Object(pairs) => map.extend(pairs),
        Value::Array(items) if node.kind != NodeKind::Alias => {
            for item in items.into_iter().rev() {
                let Value::Object(pairs) = item else {
                    return Err(wrong());
                };
                map.extend(pairs);
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn empty(at: YamlMark) -> YamlNode {
    YamlNode {
        value: Value::Null,
        at,
        kind: NodeKind::Scalar,
    }
}

fn scalar_node(text: &str, plain: bool, tag: &str, at: YamlMark) -> Result<YamlNode, YamlError> {
    let implicit = (tag.is_empty() && plain) || tag == "!";
    if text == "<<" && (implicit || tag == "tag:yaml.org,2002:merge") {
        return Ok(YamlNode {
            value: Value::from("<<"),
            at,
            kind: NodeKind::MergeKey,
        });
    }
    let resolved = if tag.is_empty() && !implicit {
        Ok(scalar::Scalar::Value(Value::from(text)))
    } else {
        scalar::resolve(tag, text)
    };
    let (value, kind) = match resolved.map_err(|message| at.error(message))? {
        scalar::Scalar::Value(value) => (value, NodeKind::Scalar),
        scalar::Scalar::NotFinite(name) => (Value::Null, NodeKind::NotFinite(name)),
    };
    Ok(YamlNode { value, at, kind })
}

/// Converts the node to a value; a whole number that was written as a float becomes an integer.
fn as_value(node: YamlNode) -> Result<Value, YamlError> {
    match (node.value, node.kind) {
        (_, NodeKind::NotFinite(name)) => Err(node.at.error(format!("{name} is not a number in JSON"))),
        (Value::Number(number), _) => Ok(Value::Number(scalar::whole(number))),
        (value, _) => Ok(value),
    }
}

fn as_key(key: &YamlNode) -> Result<String, YamlError> {
    let unusable = |what: &str| Err(key.at.error(format!("{what} cannot be a key")));
    match (&key.value, key.kind) {
        (_, NodeKind::NotFinite(name)) => Ok(name.to_owned()),
        (Value::String(text), _) => Ok(text.clone()),
        (Value::Bool(flag), _) => Ok(flag.to_string()),
        (Value::Number(number), _) if number.is_u64() && !number.is_i64() => {
            unusable("an integer above 9223372036854775807")
        }
        (Value::Number(number), _) => Ok(crate::config::goyaml::number::short_text(number)),
        (Value::Null, _) => unusable("null"),
        (Value::Array(_), _) => unusable("a list"),
        (Value::Object(_), _) => unusable("a mapping"),
    }
}

fn is_directive(kind: &TokenKind) -> bool {
    matches!(kind, TokenKind::Version { .. } | TokenKind::TagDirective { .. })
}

fn ends_document(kind: &TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::StreamEnd | TokenKind::DocumentStart | TokenKind::DocumentEnd
    )
}

fn describe(kind: &TokenKind) -> &'static str {
    match kind {
        TokenKind::StreamEnd => "the end of the text",
        TokenKind::Version { .. } | TokenKind::TagDirective { .. } => "a directive",
        TokenKind::DocumentStart => "'---'",
        TokenKind::DocumentEnd => "'...'",
        TokenKind::BlockSequenceStart => "a list",
        TokenKind::BlockMappingStart => "a mapping",
        TokenKind::BlockEnd => "a line that is indented less",
        TokenKind::FlowSequenceStart => "'['",
        TokenKind::FlowSequenceEnd => "']'",
        TokenKind::FlowMappingStart => "'{'",
        TokenKind::FlowMappingEnd => "'}'",
        TokenKind::BlockEntry => "'-'",
        TokenKind::FlowEntry => "','",
        TokenKind::Key => "a key",
        TokenKind::Value => "':'",
        TokenKind::Alias(_) => "an alias",
        TokenKind::Anchor(_) => "an anchor",
        TokenKind::Tag { .. } => "a tag",
        TokenKind::Scalar { .. } => "a value",
    }
}
