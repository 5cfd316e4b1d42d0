//! Expected values were produced by the real go-yaml v2 and its conversion to JSON.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DEEPEST, Document, first_document};

fn read(text: &str) -> Result<Value, String> {
    let (document, _) = first_document(text).map_err(|error| error.to_string())?;
    Ok(document.map_or(Value::Null, |document: Document| document.value))
}

#[test]
fn reads_what_go_yaml_reads() {
    for (name, text, expected) in [
        (
            "a block that ends with the text",
            "a: |\n  x\n  y",
            json!({"a": "x\ny"}),
        ),
        (
            "a folded block that ends with the text",
            "a: >\r\n  x\r\n  y",
            json!({"a": "x y"}),
        ),
        (
            "a kept block that ends with the text",
            "a: |+\n  x",
            json!({"a": "x"}),
        ),
        ("a repeated key", "a: 1\nb: 2\na: 3\n", json!({"a": 3, "b": 2})),
        (
            "keys that are equal once read",
            "yes: 1\ntrue: 2\n",
            json!({"true": 2}),
        ),
        (
            "a merge after the key",
            "a: &x {p: 1}\nb: {p: 9, <<: *x}\n",
            json!({"a": {"p": 1}, "b": {"p": 1}}),
        ),
        (
            "an inner anchor of the same name",
            "a: &x {p: &x 1}\nb: *x\n",
            json!({"a": {"p": 1}, "b": 1}),
        ),
        ("a float as a key", "1e6: a\n", json!({"1e+06": "a"})),
        ("infinity as a key", ".inf: a\n", json!({".inf": "a"})),
        (
            "a float that is whole",
            "a: 1e18\n",
            json!({"a": 1_000_000_000_000_000_000_u64}),
        ),
        (
            "an integer of 64 bits",
            "a: 18446744073709551615\n",
            json!({"a": u64::MAX}),
        ),
        ("underscores in a fraction", "a: .5_1\n", json!({"a": 0.51})),
        ("a sign after the base", "a: 0b-1\n", json!({"a": -1})),
        ("an octal number that is none", "a: 089\n", json!({"a": 89})),
        ("an empty list as a key", "[]: a\n", json!([])),
        ("text after the document", "[a] b\n", json!(["a"])),
        (
            "a line separator as a line break",
            "a: x\u{2028}b: 2\n",
            json!({"a": "x", "b": 2}),
        ),
        (
            "bytes that are not UTF-8",
            "a: !!binary /w==\n",
            json!({"a": "\u{fffd}"}),
        ),
        (
            "a tag of the document's own",
            "%TAG !e! tag:yaml.org,2002:\n---\na: !e!str 1\n",
            json!({"a": "1"}),
        ),
    ] {
        assert_eq!(read(text), Ok(expected), "{name}");
    }
}

#[test]
fn rejects_what_go_yaml_rejects() {
    for (name, text, expected) in [
        (
            "a tab as indentation",
            "a:\n\tb: 1\n",
            "cannot start any token at line 2, column 1",
        ),
        (
            "a tab after a dash",
            "- a\n-\tb: 1\n",
            "cannot start any token at line 2, column 2",
        ),
        (
            "a list as a key",
            "[a]: b\n",
            "a list cannot be a key at line 1, column 1",
        ),
        (
            "null as a key",
            "~: b\n",
            "null cannot be a key at line 1, column 1",
        ),
        (
            "a value that JSON has not",
            "a: .nan\n",
            ".nan is not a number in JSON at line 1, column 4",
        ),
        (
            "an alias to nothing",
            "a: *b\n",
            "unknown anchor: b at line 1, column 4",
        ),
        (
            "an anchor inside of itself",
            "a: &b [*b]\n",
            "anchor b contains itself at line 1, column 8",
        ),
        (
            "an open bracket",
            "a: [1,\n",
            "unclosed bracket: expected ']' at line 1, column 4",
        ),
        (
            "a control character",
            "a: 1\nb: \u{7}\n",
            "control characters are not allowed at line 2, column 4",
        ),
        (
            "half of a surrogate pair",
            "a: \"\\ud83d\"\n",
            "not a Unicode character at line 1, column 4",
        ),
        (
            "a merge of a text",
            "<<: a\n",
            "'<<' needs a mapping or a list of mappings at line 1, column 5",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.ends_with(expected), "{name}: {error}");
    }
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&nested(DEEPEST)).is_ok());
    assert!(read(&nested(DEEPEST + 1)).is_err());
    assert!(read(&"- ".repeat(100_000)).is_err());
    assert!(read(&"{a: ".repeat(100_000)).is_err());
}

#[test]
fn aliases_cannot_exhaust_memory() {
    let mut lists = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let mut merges = "a0: &a0 {x: 1}\n".to_owned();
    for level in 1..12 {
        let references = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(lists, "a{level}: &a{level} [{references}]");
        let before = level - 1;
        let _ = writeln!(
            merges,
            "a{level}: &a{level} {{p: *a{before}, q: *a{before}, r: [{references}]}}"
        );
    }
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(1000));
    let nested = format!("{}{}{}", "&a [".repeat(100), "x".repeat(1 << 20), "]".repeat(100));
    for (name, text) in [
        ("lists", lists),
        ("merges", merges),
        ("a long text", long),
        ("anchors in anchors", nested),
    ] {
        assert!(read(&text).is_err(), "{name}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ab:?,&*!|>'\"%@#{}\\[\\]<~\\-\\.0-9yno_\\\\ \t\r\n\u{85}\u{2028}\u{feff}é]{0,60}") {
        let _ = read(&text);
    }

    #[test]
    fn no_lines_make_it_panic(lines in proptest::collection::vec("( {0,4})(- |\\? |: |a: |\"a\": |<<: |&a |\\*a|!!str |! )?(\\||>|\\[|\\{|x|\\]|\\}|'y'|1e3|---|\\.\\.\\.|)", 0..12)) {
        let _ = read(&lines.join("\n"));
    }

    #[test]
    fn json_is_read_as_what_it_is(value in json_value()) {
        let text = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(read(&text), Ok(value));
    }
}

/// Values whose JSON is YAML too: no escapes above U+FFFF, which JSON writes as two.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~\n\té]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,5}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
