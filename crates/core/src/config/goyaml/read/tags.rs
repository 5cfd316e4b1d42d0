//! Scanner for directives, anchors, aliases and tags.

use super::YamlError;
use super::input::YamlMark;
use super::scanner::Scanner;
use super::token::{TokenKind, YamlToken};

impl Scanner<'_> {
    /// Scans `%YAML 1.1` or `%TAG ! prefix`, up to and including its line break.
    pub(super) fn scan_directive(&mut self) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        self.input.skip();
        let name = self.input.take_word();
        if name.is_empty() || !self.input.is_space_or_end(0) {
            return Err(at.error("expected the name of a directive after '%'"));
        }
        self.input.skip_blanks();
        let kind = match name.as_str() {
            "YAML" => {
                let major = self.version_number(at)?;
                if self.input.byte(0) != b'.' {
                    return Err(at.error("expected a version such as 1.1"));
                }
                self.input.skip();
                let minor = self.version_number(at)?;
                TokenKind::Version { major, minor }
            }
            "TAG" => self.tag_directive(at)?,
            _ => return Err(at.error("unknown directive")),
        };
        self.input.skip_blanks();
        self.input.skip_comment();
        if !self.input.is_break_or_end(0) {
            return Err(at.error("expected a comment or a line break after the directive"));
        }
        self.input.skip_line();
        Ok(YamlToken { kind, at })
    }

    fn version_number(&mut self, at: YamlMark) -> Result<u8, YamlError> {
        let mut digits = String::new();
        while self.input.byte(0).is_ascii_digit() && digits.len() < 3 {
            self.input.take(&mut digits);
        }
        // Two digits always fit a byte.
        if digits.len() > 2 {
            return Err(at.error("the version number is too long"));
        }
        digits
            .parse()
            .map_err(|_| at.error("expected a version such as 1.1"))
    }

    fn tag_directive(&mut self, at: YamlMark) -> Result<TokenKind, YamlError> {
        let handle = self.tag_handle(at)?;
        if handle != "!" && !is_named_handle(&handle) {
            return Err(at.error("expected '!' at the end of the tag handle"));
        }
        if !self.input.is_blank(0) {
            return Err(at.error("expected white space after the tag handle"));
        }
        self.input.skip_blanks();
        let prefix = self.tag_uri("", at)?;
        if !self.input.is_space_or_end(0) {
            return Err(at.error("expected white space or a line break after the tag prefix"));
        }
        Ok(TokenKind::TagDirective { handle, prefix })
    }

    /// Scans `*name` or `&name`.
    pub(super) fn scan_reference(&mut self, alias: bool) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        self.input.skip();
        let name = self.input.take_word();
        let ends = self.input.is_space_or_end(0)
            || matches!(
                self.input.byte(0),
                b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'
            );
        if name.is_empty() || !ends {
            let what = if alias {
                "an alias after '*'"
            } else {
                "an anchor after '&'"
            };
            return Err(at.error(format!(
                "expected the name of {what}: letters, digits, '_' and '-'"
            )));
        }
        let kind = if alias {
            TokenKind::Alias(name)
        } else {
            TokenKind::Anchor(name)
        };
        Ok(YamlToken { kind, at })
    }

    /// Scans `!<uri>`, `!local`, `!!short`, `!handle!suffix` or a lone `!`.
    pub(super) fn scan_tag(&mut self) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        let (handle, suffix) = if self.input.byte(1) == b'<' {
            self.input.skip();
            self.input.skip();
            let uri = self.tag_uri("", at)?;
            if self.input.byte(0) != b'>' {
                return Err(at.error("expected '>' at the end of the tag"));
            }
            self.input.skip();
            (String::new(), uri)
        } else {
            let handle = self.tag_handle(at)?;
            if is_named_handle(&handle) {
                let suffix = self.tag_uri("", at)?;
                (handle, suffix)
            } else {
                let suffix = self.tag_uri(&handle, at)?;
                if suffix.is_empty() {
                    (String::new(), "!".to_owned())
                } else {
                    ("!".to_owned(), suffix)
                }
            }
        };
        if !self.input.is_space_or_end(0) {
            return Err(at.error("expected white space or a line break after the tag"));
        }
        Ok(YamlToken {
            kind: TokenKind::Tag { handle, suffix },
            at,
        })
    }

    /// Scans `!`, `!!` or `!name!`; or `!name`, which is then the start of a local tag.
    fn tag_handle(&mut self, at: YamlMark) -> Result<String, YamlError> {
        if self.input.byte(0) != b'!' {
            return Err(at.error("expected '!' at the start of the tag"));
        }
        self.input.skip();
        let mut handle = format!("!{}", self.input.take_word());
        if self.input.byte(0) == b'!' {
            self.input.take(&mut handle);
        }
        Ok(handle)
    }

    /// Scans the rest of a tag; `head` is the handle that turned out to be its start.
    fn tag_uri(&mut self, head: &str, at: YamlMark) -> Result<String, YamlError> {
        let mut uri: Vec<u8> = head.bytes().skip(1).collect();
        let mut found = !head.is_empty();
        loop {
            let byte = self.input.byte(0);
            if byte == b'%' {
                self.uri_escape(&mut uri, at)?;
            } else if self.input.is_word() || b";/?:@&=+$,.!~*'()[]".contains(&byte) {
                uri.push(byte);
                self.input.skip();
            } else {
                break;
            }
            found = true;
        }
        if !found {
            return Err(at.error("the tag is empty"));
        }
        String::from_utf8(uri).map_err(|_| at.error("the tag is not UTF-8"))
    }

    fn uri_escape(&mut self, uri: &mut Vec<u8>, at: YamlMark) -> Result<(), YamlError> {
        let digit = |ahead| char::from(self.input.byte(ahead)).to_digit(16);
        let octet = match (digit(1), digit(2)) {
            (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or(0),
            _ => return Err(at.error("expected two hexadecimal digits after '%'")),
        };
        uri.push(octet);
        for _ in 0..3 {
            self.input.skip();
        }
        Ok(())
    }
}

fn is_named_handle(handle: &str) -> bool {
    handle.len() > 1 && handle.ends_with('!')
}
