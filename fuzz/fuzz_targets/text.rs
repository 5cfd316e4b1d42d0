//! Fuzzes the small parsers of text in requests and objects. The first byte selects one; each states what holds for a
//! text that it accepts.

#![no_main]

use std::collections::BTreeMap;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use mco_apiserver::kinds::{self, KindScope};
use mco_apiserver::schema::GoPattern;
use mco_apiserver::selector::{FieldSelector, LabelSelector, SelectableFields};
use mco_apiserver::table::{JsonPath, human_duration};
use mco_apiserver::{decode, go_text, names, protobuf};
use mco_console::fuzzing as console;
use mco_core::generators::quantity::Quantity;
use mco_daemon::member::{CaFingerprint, Invitation};
use mco_fuzz::values;
use mco_server::negotiate;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Some((selected, rest)) = bytes.split_first() else {
        return;
    };
    let text = std::str::from_utf8(rest).unwrap_or_default();
    match selected % 11 {
        0 => label_selector(text),
        1 => field_selector(text),
        2 => json_path(text),
        3 => pattern(text),
        4 => protobuf_body(rest),
        5 => json_body(rest),
        6 => ignition_accept(text),
        7 => quantity(text),
        8 => object_names(text),
        9 => tokens(text, rest),
        _ => console_request(text, rest),
    }
});

fn label_selector(text: &str) {
    let Ok(selector) = LabelSelector::parse(text) else {
        return;
    };
    assert_eq!(
        LabelSelector::parse(&selector.to_string()).as_ref(),
        Ok(&selector),
        "{selector}"
    );
    for labels in [json!({}), json!({"a": "b"}), json!({"a": 1, "x": "10"})] {
        let _ = selector.matches(labels.as_object());
    }
}

fn field_selector(text: &str) {
    let paths = [".spec.a".to_owned(), ".spec.b.c".to_owned()];
    let custom = SelectableFields::Custom {
        scope: KindScope::Namespaced,
        json_paths: &paths,
    };
    let built_in = kinds::BUILT_IN.iter().map(SelectableFields::BuiltIn);
    for fields in built_in.chain([custom]) {
        let Ok(selector) = FieldSelector::parse(text, fields) else {
            continue;
        };
        let again = FieldSelector::parse(&selector.to_string(), fields);
        assert_eq!(again.as_ref(), Ok(&selector), "{selector}");
        // Authorization of a list relies on the name that a selector requires.
        if let Some(name) = selector.exact("metadata.name") {
            let other = json!({"metadata": {"name": format!("{name}-other"), "namespace": "n"}});
            assert!(!selector.selects(&other), "{selector} also selects another name");
        }
    }
}

fn json_path(text: &str) {
    let object = json!({"metadata": {"name": "a"}, "status": {"conditions": [
        {"type": "Ready", "status": "True"}, {"type": "X", "n": 1.5}, null, [1, 2]]}, "a.b": {"c": [1, 2, 3]}});
    if let Ok(path) = JsonPath::parse(text) {
        let found = path.find(&object).unwrap_or_default();
        // Recursive descents multiply: the bound is the number of values per level, not a constant.
        assert!(found.len() <= 1 << 20, "{} values", found.len());
        assert_eq!(path.first(&object), found.first().copied());
    }
}

fn pattern(text: &str) {
    let (source, subject) = text.split_once('\n').unwrap_or((text, "aaaaaaaaaaaaaaaa"));
    if let Ok(pattern) = GoPattern::compile(source) {
        let _ = pattern.is_match(subject);
    }
}

/// Wraps the bytes in the envelope of a kind, because a fuzzer does not find the magic number by itself.
fn protobuf_body(bytes: &[u8]) {
    let _ = protobuf::decode(bytes);
    let Some((kind, raw)) = bytes.split_first() else {
        return;
    };
    let kind = &kinds::BUILT_IN[usize::from(*kind) % kinds::BUILT_IN.len()];
    let mut types = Vec::new();
    push_bytes(&mut types, 1, kind.api_version().as_bytes());
    push_bytes(&mut types, 2, kind.kind.as_bytes());
    let mut body = b"k8s\0".to_vec();
    push_bytes(&mut body, 1, &types);
    push_bytes(&mut body, 2, raw);
    if let Ok(object) = protobuf::decode(&body) {
        assert!(values::depth(&object) <= 128, "nested too deeply");
        let text = object.to_string();
        assert_eq!(
            serde_json::from_str::<Value>(&text).expect("our own JSON"),
            object
        );
    }
}

fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
}

/// The decoder reads what serde_json reads; of floats without a fraction it makes integers, as Go does.
fn json_body(bytes: &[u8]) {
    let decoded = decode::decode(bytes, None);
    let expected = serde_json::from_slice::<Value>(bytes);
    if let Ok(decoded) = &decoded {
        assert!(values::depth(&decoded.value) <= 128, "nested too deeply");
        let text = decoded.value.to_string();
        assert_eq!(
            serde_json::from_str::<Value>(&text).expect("our own JSON"),
            decoded.value
        );
        let _ = (
            go_text::json(&decoded.value),
            go_text::plain(&decoded.value),
            go_text::syntax(&decoded.value),
        );
    }
    if let (Ok(decoded), Ok(expected)) = (decoded, expected)
        && decoded.strict_errors.is_empty()
        && !values::has_float(&expected)
    {
        assert_eq!(decoded.value, expected);
    }
}

fn ignition_accept(text: &str) {
    if let Ok(version) = negotiate::version(Some(text)) {
        assert!(negotiate::SERVED.contains(&version), "{version:?} is not served");
    }
}

fn quantity(text: &str) {
    if let Ok(quantity) = Quantity::parse(text) {
        let canonical = quantity.canonical();
        let again = Quantity::parse(&canonical).expect("a canonical quantity");
        assert_eq!((again.value(), again.canonical()), (quantity.value(), canonical));
    }
    if let Ok(seconds) = text.parse() {
        let _ = human_duration(seconds);
    }
}

fn object_names(text: &str) {
    if names::dns1123_label(text).is_empty() {
        assert!(
            names::dns1123_subdomain(text).is_empty(),
            "{text:?} is a label and no subdomain"
        );
    }
    for check in [
        names::dns1035_label,
        names::path_segment,
        names::label_key,
        names::label_value,
    ] {
        let _ = check(text);
    }
    if names::path_segment(text).is_empty() {
        assert!(
            !text.contains(['/', '%']) && text != "." && text != "..",
            "{text:?} is no segment"
        );
    }
    let _ = go_text::quote(text);
}

fn tokens(text: &str, bytes: &[u8]) {
    if let Ok(fingerprint) = text.parse::<CaFingerprint>() {
        let again = fingerprint.to_string().parse::<CaFingerprint>();
        assert_eq!(again, Ok(fingerprint));
    }
    if let Ok(invitation) = text.parse::<Invitation>() {
        assert!(
            text.starts_with(&invitation.token),
            "the secret is part of the token"
        );
    }
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        if let Some(token) = mco_http::bearer_token(&headers) {
            assert!(!token.is_empty() && token.trim() == token);
        }
    }
}

fn console_request(text: &str, bytes: &[u8]) {
    if let Some(segments) = console::segments(text) {
        assert!(segments.iter().all(|segment| !segment.is_empty()));
    }
    let form = console::FormFields::parse(bytes);
    let fields: BTreeMap<&str, &str> = ["csrf", "token", "manifests"]
        .map(|name| (name, form.get(name)))
        .into();
    assert!(fields.values().all(|value| value.len() <= 3 * bytes.len()));
    if let Ok(value) = HeaderValue::from_str(text) {
        let headers = HeaderMap::from_iter([(COOKIE, value.clone()), (http::header::ORIGIN, value)]);
        let _ = console::cookie(&headers, "mco-console-7480");
        assert!(
            !console::is_same_origin(&headers),
            "an origin without a host is foreign"
        );
    }
}
