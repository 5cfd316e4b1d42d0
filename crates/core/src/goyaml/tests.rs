//! Expected texts were produced by the real go-yaml v2 from the same JSON.

use serde_json::{Value, json};

use super::to_string;

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
