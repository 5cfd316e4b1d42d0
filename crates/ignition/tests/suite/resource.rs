//! Contents inside a config.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use mco_ignition::resource::{DecodeError, decode, encode};

const LIMIT: usize = 1 << 16;

#[test]
fn data_urls_decode_in_all_their_forms() {
    let cases: [(&str, &[u8]); 21] = [
        ("data:,", b""),
        ("data:,hello", b"hello"),
        ("data:,Hello%2C%20world!", b"Hello, world!"),
        ("data:,%00%ff%C3%a9", b"\x00\xff\xc3\xa9"),
        ("data:,a,b;c?d=e+f", b"a,b;c?d=e+f"),
        ("data:;base64,", b""),
        ("data:;base64,eA==", b"x"),
        ("data:;base64,eHg=", b"xx"),
        ("data:;base64,eHh4", b"xxx"),
        ("data:;base64,eHh4\neA==\n", b"xxxx"),
        ("data:;base64,eB==", b"x"),
        ("data:text/plain,x", b"x"),
        ("data:text/,x", b"x"),
        ("data:text/plain;charset=utf-8,x", b"x"),
        ("data:text/plain;charset=utf-8;base64,eA==", b"x"),
        ("data:;charset=%75tf-8,x", b"x"),
        ("data:;charset=\"a,b;c\\\"\\x41\\101\\u00e9\\U0001F600\",x", b"x"),
        ("data:;base64=x,y", b"y"),
        ("data:x-custom/type,x", b"x"),
        ("data:application/vnd.x+json;version=1,x", b"x"),
        ("data:texts/plain,x", b"x"),
    ];
    for (url, expected) in cases {
        assert_eq!(decode(Some(url), None, LIMIT).unwrap(), expected, "{url}");
        assert_eq!(decode(Some(url), Some(""), LIMIT).unwrap(), expected, "{url}");
    }
}

#[test]
fn what_ignition_cannot_decode_is_refused_for_its_reason() {
    let cases = [
        ("", "missing data prefix"),
        ("http://x", "missing data prefix"),
        ("DATA:,x", "missing data prefix"),
        ("data:", "missing comma before data"),
        ("data: ,x", "invalid character after data prefix"),
        ("data:t", "missing media type slash"),
        ("data:text,x", "invalid character for media type"),
        ("data:font/woff,x", "invalid media type"),
        ("data:xy/z,x", "invalid media type"),
        ("data:x/z,x", "invalid character for media type"),
        ("data:text/plain", "incomplete media type"),
        ("data:text/a/b,x", "invalid character for media subtype"),
        ("data:;base64", "unterminated parameter sequence"),
        ("data:;,x", "unterminated parameter sequence"),
        ("data:;base64;a=b,x", "invalid character for parameter attribute"),
        ("data:;charset,x", "expected base64 as the last parameter"),
        ("data:;BASE64,eA==", "expected base64 as the last parameter"),
        ("data:;a=,x", "invalid character for parameter value"),
        ("data:;a=b", "missing comma before data"),
        ("data:;a=\"b", "unclosed quoted string"),
        ("data:;a=\"\\q\",x", "invalid syntax"),
        ("data:;a=\"\u{e9}\",x", "invalid character for parameter value"),
        ("data:;a=\"b\"c,x", "expected semicolon or comma"),
        ("data:;a=%4,x", "rfc2396: unexpected end of unescape sequence"),
        ("data:,a b", "invalid data character"),
        ("data:,\u{e9}", "invalid data character"),
        ("data:,%4", "rfc2396: unexpected end of unescape sequence"),
        ("data:,%zz", "rfc2396: invalid char 0x25 in unescape sequence"),
        ("data:;base64,-_", "invalid data character"),
        ("data:;base64,eA", "illegal base64 data at input byte 0"),
        ("data:;base64,eA=", "illegal base64 data at input byte 3"),
        ("data:;base64,eA==x", "illegal base64 data at input byte 4"),
        ("data:;base64,e===", "illegal base64 data at input byte 1"),
    ];
    for (url, expected) in cases {
        let error = decode(Some(url), None, LIMIT).unwrap_err();
        assert!(matches!(error, DecodeError::Source(_)), "{url}: {error:?}");
        assert_eq!(error.to_string(), expected, "{url}");
    }
}

#[test]
fn without_a_source_the_contents_are_empty() {
    assert_eq!(decode(None, None, LIMIT).unwrap(), b"");
    assert_eq!(decode(None, Some("gzip"), 0).unwrap(), b"");
}

#[test]
fn gzip_is_expanded_and_other_compressions_are_refused() {
    let source = encode(&gzip(b"contents"));
    assert_eq!(decode(Some(&source), Some("gzip"), LIMIT).unwrap(), b"contents");
    let error = decode(Some("data:,x"), Some("xz"), LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "unsupported compression type \"xz\"");
    assert!(matches!(
        decode(Some("data:,x"), Some("gzip"), LIMIT),
        Err(DecodeError::Gzip(_))
    ));
    let two_members = encode(&[gzip(b"one "), gzip(b"two")].concat());
    assert_eq!(
        decode(Some(&two_members), Some("gzip"), LIMIT).unwrap(),
        b"one two"
    );
}

#[test]
fn contents_beyond_the_limit_are_refused_plain_and_compressed() {
    assert_eq!(decode(Some("data:,abc"), None, 3).unwrap(), b"abc");
    assert!(matches!(
        decode(Some("data:,abcd"), None, 3),
        Err(DecodeError::TooLarge { limit: 3 })
    ));
    let bomb = encode(&gzip(&vec![0; 10 * LIMIT]));
    assert!(matches!(
        decode(Some(&bomb), Some("gzip"), LIMIT),
        Err(DecodeError::TooLarge { .. })
    ));
    let fitting = encode(&gzip(&vec![0; LIMIT]));
    assert_eq!(decode(Some(&fitting), Some("gzip"), LIMIT).unwrap().len(), LIMIT);
}

#[test]
fn encoding_leaves_only_unreserved_characters_literal() {
    assert_eq!(encode(b""), "data:,");
    assert_eq!(encode(b"Hello, world!\n"), "data:,Hello%2C%20world!%0A");
    assert_eq!(encode(b"AZaz09-_.!~*'()"), "data:,AZaz09-_.!~*'()");
    assert_eq!(encode(b"/%+&\xff"), "data:,%2F%25%2B%26%FF");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
