//! Tokens, which the scanner passes to the parser.

use super::input::YamlMark;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlToken {
    pub kind: TokenKind,
    pub at: YamlMark,
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
