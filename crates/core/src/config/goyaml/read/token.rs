//! Tokens, which the scanner passes to the parser.

use super::input::Mark;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub at: Mark,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    StreamEnd,
    Version { major: u8, minor: u8 },
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, plain: bool },
}
