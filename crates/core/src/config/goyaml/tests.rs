//! Expected texts were produced by the real go-yaml v2 from the same JSON.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{keys, sorting, to_string};

#[test]
fn writes_what_go_yaml_writes() {
    let long = "word ".repeat(20);
    let cases: Vec<(&str, Value, &str)> = vec![
        ("an empty string is double quoted", json!({"a": ""}), "a: \"\"\n"),
        (
            "empty collections stay on the line",
            json!({"a": [], "b": {}}),
            "a: []\nb: {}\n",
        ),
        (
            "a list under a key is not indented",
            json!({"a": [{"b": 1, "c": [2]}]}),
            "a:\n- b: 1\n  c:\n  - 2\n",
        ),
        (
            "a list in a list is indented",
            json!([["x", ["y"]]]),
            "- - x\n  - - \"y\"\n",
        ),
        (
            "a YAML 1.1 boolean is quoted",
            json!(["yes", "on", "Off", "n"]),
            "- \"yes\"\n- \"on\"\n- \"Off\"\n- \"n\"\n",
        ),
        (
            "an octal number is quoted",
            json!(["0755", "089", "0o17"]),
            "- \"0755\"\n- \"089\"\n- \"0o17\"\n",
        ),
        (
            "a date is quoted, an impossible one is not",
            json!(["2020-01-02", "2020-02-30"]),
            "- \"2020-01-02\"\n- 2020-02-30\n",
        ),
        (
            "a base 60 number is quoted",
            json!(["12:30", "12:61"]),
            "- \"12:30\"\n- 12:61\n",
        ),
        (
            "an indicator needs single quotes",
            json!(["# c", "a: b", "- a", "@x"]),
            "- '# c'\n- 'a: b'\n- '- a'\n- '@x'\n",
        ),
        ("a single quote is doubled", json!("'a"), "'''a'\n"),
        ("a tab forces double quotes", json!("a\tb"), "\"a\\tb\"\n"),
        ("emoji are escaped", json!("\u{1F600}"), "\"\\U0001F600\"\n"),
        ("letters beyond ASCII are plain", json!("ünï"), "ünï\n"),
        (
            "several lines become a literal block",
            json!({"a": "x\ny\n"}),
            "a: |\n  x\n  y\n",
        ),
        (
            "a missing last newline is stripped",
            json!({"a": "x\ny"}),
            "a: |-\n  x\n  y\n",
        ),
        (
            "extra last newlines are kept",
            json!({"a": "x\n\n"}),
            "a: |+\n  x\n\n",
        ),
        (
            "a leading space needs an indentation hint",
            json!({"a": " x\n"}),
            "a: |2\n   x\n",
        ),
        (
            "a trailing space on a line forbids the block",
            json!({"a": "x \ny\n"}),
            "a: \"x \\ny\\n\"\n",
        ),
        (
            "digits in keys sort by value",
            json!({"a10": 1, "a9": 2, "a-b": 3}),
            "a-b: 3\na9: 2\na10: 1\n",
        ),
        (
            "a whole float is an integer",
            json!([1.0, 0.1, 1e21, 123_456_789.125]),
            "- 1\n- 0.1\n- 1e+21\n- 1.23456789125e+08\n",
        ),
        (
            "a long line is folded after the eightieth column",
            json!({"a": long.trim_end()}),
            "a: word word word word word word word word word word word word word word word word\n  word word word word\n",
        ),
    ];
    for (name, value, expected) in cases {
        assert_eq!(to_string(&value), expected, "{name}");
    }
}

/// Lists sorted by Go's `sort.Sort`, mostly under orders that no sort can satisfy.
const SORTED_BY_GO: &str = include_str!("../../../tests/data/go_sort.jsonl");
/// Key sets sorted by Go's `sort.Sort` under the order of keys.
const KEYS_SORTED_BY_GO: &str = include_str!("../../../tests/data/key_order.jsonl");

fn recorded(lines: &str) -> Vec<Value> {
    let cases: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty());
    cases
}

fn numbers(list: &Value) -> Vec<i64> {
    serde_json::from_value(list.clone()).unwrap()
}

#[test]
fn every_order_sorts_as_in_go() {
    for case in recorded(SORTED_BY_GO) {
        let less: fn(&i64, &i64) -> bool = match case["order"].as_str().unwrap() {
            "less" => |a, b| a < b,
            "greater" => |a, b| a > b,
            "always" => |_, _| true,
            "never" => |_, _| false,
            "cyclic" => |a, b| (b - a + 999) % 3 == 1,
            "hashed" => |a, b| (a * 31 + b * 17) % 7 < 3,
            "coarse" => |a, b| a / 8 < b / 8,
            other => panic!("unknown order {other}"),
        };
        let mut items = numbers(&case["items"]);
        sorting::sort(&mut items, less);
        assert_eq!(items, numbers(&case["sorted"]), "{case}");
    }
}

#[test]
fn keys_sort_as_in_go() {
    for case in recorded(KEYS_SORTED_BY_GO) {
        let mut sorted: Vec<String> = serde_json::from_value(case["keys"].clone()).unwrap();
        sorting::sort(&mut sorted, |a, b| keys::less(a, b));
        assert_eq!(json!(sorted), case["sorted"], "{case}");
    }
}

/// Rust's own sort panics on such keys from some length on.
#[test]
fn keys_whose_order_is_a_cycle_are_written() {
    assert!(keys::less("a01", "a0a") && keys::less("a0a", "a1") && keys::less("a1", "a01"));
    let keys = (0..400).map(|i| format!("a{:02}{}{i}", i % 13, ["", "a", "-"][i % 3]));
    let map: Map<String, Value> = keys.map(|key| (key, Value::Null)).collect();
    assert_eq!(to_string(&Value::Object(map)).lines().count(), 400);
}

proptest! {
    #[test]
    fn sorting_is_a_permutation_for_every_order(
        items in proptest::collection::vec(0..200u64, 0..300),
        (a, b, modulus, limit) in (1..50u64, 1..50u64, 2..30u64, 0..30u64),
    ) {
        let mut sorted = items.clone();
        sorting::sort(&mut sorted, |x, y| (x * a + y * b) % modulus < limit);
        let (mut before, mut after) = (items, sorted);
        before.sort_unstable();
        after.sort_unstable();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn a_consistent_order_is_established(items in proptest::collection::vec(0..200u64, 0..300)) {
        let (mut ours, mut theirs) = (items.clone(), items);
        sorting::sort(&mut ours, |a, b| a < b);
        theirs.sort_unstable();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn no_keys_make_the_emitter_panic(keys in proptest::collection::btree_set("[ab019._-]{0,5}", 0..200)) {
        let map: Map<String, Value> = keys.iter().map(|key| (key.clone(), json!(1))).collect();
        prop_assert_eq!(to_string(&Value::Object(map)).is_empty(), false);
    }
}
