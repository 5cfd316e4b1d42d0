//! Scanner: from text to tokens.
//!
//! The grammar is the one of libyaml and its descendants, with YAML 1.1's line breaks and without the relaxations of
//! YAML 1.2. A key is only recognised once its `:` is found, so tokens wait in a queue while the first of them may
//! still turn out to be a key.

use std::collections::VecDeque;

use super::YamlError;
use super::input::{Input, YamlMark};
use super::token::{TokenKind, YamlToken};

/// Maximum length of a key without `?`, which must also end on its line.
const LONGEST_SIMPLE_KEY: usize = 1024;

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) input: Input<'a>,
    queue: VecDeque<YamlToken>,
    /// Number of tokens that the parser has consumed; the first in the queue has this number.
    taken: usize,
    /// The column of the innermost block collection, or -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    /// Candidates for a key, one per level of flow collections, outermost first.
    keys: Vec<SimpleKey>,
    pub(super) key_allowed: bool,
}

/// The start of a token that becomes a key if a `:` follows.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Whether only a key can start at this column.
    required: bool,
    token: usize,
    /// Whether the parser waits until this key is decided.
    awaited: bool,
    at: YamlMark,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, YamlError> {
        Ok(Self {
            input: Input::new(text)?,
            queue: VecDeque::new(),
            taken: 0,
            indent: -1,
            indents: Vec::new(),
            keys: vec![SimpleKey::default()],
            key_allowed: true,
        })
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&mut self) -> Result<&YamlToken, YamlError> {
        while self.queue.is_empty() || self.first_may_be_a_key()? {
            self.fetch()?;
        }
        self.queue
            .front()
            .ok_or_else(|| YamlMark::default().error("unexpected end"))
    }

    /// Consumes and returns the next token. The end of the stream is never consumed.
    pub(super) fn next(&mut self) -> Result<YamlToken, YamlError> {
        let first = self.peek()?;
        if first.kind == TokenKind::StreamEnd {
            return Ok(first.clone());
        }
        self.taken += 1;
        self.queue
            .pop_front()
            .ok_or_else(|| YamlMark::default().error("unexpected end"))
    }

    pub(super) fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    fn column(&self) -> isize {
        isize::try_from(self.input.mark.column).unwrap_or(isize::MAX)
    }

    fn first_may_be_a_key(&mut self) -> Result<bool, YamlError> {
        let from = self.keys.partition_point(|key| key.token < self.taken);
        let mut at = from;
        while at < self.keys.len() && self.keys[at].token == self.taken {
            if self.keys[at].awaited && self.is_still_a_key(at)? {
                return Ok(true);
            }
            at += 1;
        }
        Ok(false)
    }

    fn is_still_a_key(&mut self, level: usize) -> Result<bool, YamlError> {
        let now = self.input.mark;
        let key = &mut self.keys[level];
        if !key.possible {
            return Ok(false);
        }
        if key.at.line < now.line || key.at.index + LONGEST_SIMPLE_KEY < now.index {
            if key.required {
                return Err(key.at.error("could not find expected ':'"));
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn fetch(&mut self) -> Result<(), YamlError> {
        self.skip_to_token();
        self.close_blocks(self.column());
        if self.input.is_end() {
            return self.stream_end();
        }
        let next_is_free = self.input.is_space_or_end(1);
        match self.input.byte(0) {
            b'%' if self.input.mark.column == 0 => self.directive(),
            b'-' if self.input.starts_document(b'-') => self.document_indicator(TokenKind::DocumentStart),
            b'.' if self.input.starts_document(b'.') => self.document_indicator(TokenKind::DocumentEnd),
            b'[' => self.flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.flow_start(TokenKind::FlowMappingStart),
            b']' => self.flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.flow_end(TokenKind::FlowMappingEnd),
            b',' => self.flow_entry(),
            b'-' if next_is_free => self.block_entry(),
            b'?' if self.in_flow() || next_is_free => self.key(),
            b':' if self.in_flow() || next_is_free => self.value(),
            b'*' => self.reference(true),
            b'&' => self.reference(false),
            b'!' => self.tag(),
            b'|' if !self.in_flow() => self.block_scalar(true),
            b'>' if !self.in_flow() => self.block_scalar(false),
            b'\'' => self.quoted(true),
            b'"' => self.quoted(false),
            b'|' | b'>' | b'#' | b'%' | b'@' | b'`' | b'\t' => Err(self
                .input
                .mark
                .error("found a character that cannot start any token")),
            _ => self.plain(),
        }
    }

    fn skip_to_token(&mut self) {
        loop {
            let tabs = self.in_flow() || !self.key_allowed;
            while self.input.byte(0) == b' ' || (tabs && self.input.byte(0) == b'\t') {
                self.input.skip();
            }
            self.input.skip_comment();
            if !self.input.is_break(0) {
                return;
            }
            self.input.skip_line();
            if !self.in_flow() {
                self.key_allowed = true;
            }
        }
    }

    fn push(&mut self, kind: TokenKind, at: YamlMark) {
        self.queue.push_back(YamlToken { kind, at });
    }

    /// Queues the token of a one-character indicator and skips the character.
    fn push_indicator(&mut self, kind: TokenKind) {
        self.push(kind, self.input.mark);
        self.input.skip();
    }

    fn save_key(&mut self) -> Result<(), YamlError> {
        if !self.key_allowed {
            return Ok(());
        }
        self.drop_key()?;
        let key = SimpleKey {
            possible: true,
            required: !self.in_flow() && self.indent == self.column(),
            token: self.taken + self.queue.len(),
            awaited: true,
            at: self.input.mark,
        };
        if let Some(last) = self.keys.last_mut() {
            *last = key;
        }
        Ok(())
    }

    fn drop_key(&mut self) -> Result<(), YamlError> {
        if let Some(key) = self.keys.last_mut().filter(|key| key.possible) {
            if key.required {
                return Err(key.at.error("could not find expected ':'"));
            }
            key.possible = false;
        }
        Ok(())
    }

    /// Starts a block collection at `column` unless it has started; its token goes before the one at `position`.
    fn open_block(&mut self, column: isize, position: Option<usize>, kind: TokenKind, at: YamlMark) {
        if self.in_flow() || self.indent >= column {
            return;
        }
        self.indents.push(self.indent);
        self.indent = column;
        let position = position.unwrap_or(self.queue.len());
        self.queue.insert(position, YamlToken { kind, at });
    }

    fn close_blocks(&mut self, column: isize) {
        while !self.in_flow() && self.indent > column {
            self.push(TokenKind::BlockEnd, self.input.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn stream_end(&mut self) -> Result<(), YamlError> {
        self.input.finish_line();
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(TokenKind::StreamEnd, self.input.mark);
        Ok(())
    }

    fn directive(&mut self) -> Result<(), YamlError> {
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        let token = self.scan_directive()?;
        self.queue.push_back(token);
        Ok(())
    }

    fn document_indicator(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.close_blocks(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(kind, self.input.mark);
        for _ in 0..3 {
            self.input.skip();
        }
        Ok(())
    }

    fn flow_start(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.save_key()?;
        self.keys.push(SimpleKey {
            token: self.taken + self.queue.len(),
            ..SimpleKey::default()
        });
        self.key_allowed = true;
        self.push_indicator(kind);
        Ok(())
    }

    fn flow_end(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.drop_key()?;
        if self.in_flow()
            && let Some(inner) = self.keys.pop()
            && let Some(outer) = self.keys.last_mut()
            && outer.token == inner.token
        {
            // Compatibility: go-yaml loses track of a collection without any key of its own: `[]: a` is parsed as the
            // list, and the rest of the text is ignored.
            outer.awaited = false;
        }
        self.key_allowed = false;
        self.push_indicator(kind);
        Ok(())
    }

    fn flow_entry(&mut self) -> Result<(), YamlError> {
        self.drop_key()?;
        self.key_allowed = true;
        self.push_indicator(TokenKind::FlowEntry);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), YamlError> {
        let at = self.input.mark;
        if !self.in_flow() {
            if !self.key_allowed {
                return Err(at.error("a list entry is not allowed here"));
            }
            self.open_block(self.column(), None, TokenKind::BlockSequenceStart, at);
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.push_indicator(TokenKind::BlockEntry);
        Ok(())
    }

    fn key(&mut self) -> Result<(), YamlError> {
        let at = self.input.mark;
        if !self.in_flow() {
            if !self.key_allowed {
                return Err(at.error("a key is not allowed here"));
            }
            self.open_block(self.column(), None, TokenKind::BlockMappingStart, at);
        }
        self.drop_key()?;
        self.key_allowed = !self.in_flow();
        self.push_indicator(TokenKind::Key);
        Ok(())
    }

    fn value(&mut self) -> Result<(), YamlError> {
        let level = self.keys.len() - 1;
        let at = self.input.mark;
        if self.is_still_a_key(level)? {
            let key = self.keys[level];
            // A key that was not awaited may already be consumed; its token then comes too late and is misplaced.
            let position = key.token.checked_sub(self.taken);
            let token = YamlToken {
                kind: TokenKind::Key,
                at: key.at,
            };
            self.queue.insert(position.unwrap_or(self.queue.len()), token);
            let column = isize::try_from(key.at.column).unwrap_or(isize::MAX);
            self.open_block(column, position, TokenKind::BlockMappingStart, key.at);
            self.keys[level].possible = false;
            self.key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.key_allowed {
                    return Err(at.error("a mapping value is not allowed here"));
                }
                self.open_block(self.column(), None, TokenKind::BlockMappingStart, at);
            }
            self.key_allowed = !self.in_flow();
        }
        self.push_indicator(TokenKind::Value);
        Ok(())
    }

    fn reference(&mut self, alias: bool) -> Result<(), YamlError> {
        self.save_key()?;
        self.key_allowed = false;
        let token = self.scan_reference(alias)?;
        self.queue.push_back(token);
        Ok(())
    }

    fn tag(&mut self) -> Result<(), YamlError> {
        self.save_key()?;
        self.key_allowed = false;
        let token = self.scan_tag()?;
        self.queue.push_back(token);
        Ok(())
    }

    fn block_scalar(&mut self, literal: bool) -> Result<(), YamlError> {
        self.drop_key()?;
        self.key_allowed = true;
        let token = self.scan_block_scalar(literal)?;
        self.queue.push_back(token);
        Ok(())
    }

    fn quoted(&mut self, single: bool) -> Result<(), YamlError> {
        self.save_key()?;
        self.key_allowed = false;
        let token = self.scan_quoted(single)?;
        self.queue.push_back(token);
        Ok(())
    }

    fn plain(&mut self) -> Result<(), YamlError> {
        self.save_key()?;
        self.key_allowed = false;
        let token = self.scan_plain()?;
        self.queue.push_back(token);
        Ok(())
    }
}
