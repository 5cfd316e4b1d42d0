use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[test]
fn query_selectors_match_like_kubernetes() {
    let worker = labels(json!({"role": "worker", "zone": "a", "gen": "7", "empty": ""}));
    let cases: &[(&str, bool)] = &[
        ("", true),
        ("role=worker", true),
        ("role==worker", true),
        ("role=master", false),
        ("missing=", false),
        ("empty=", true),
        ("empty", true),
        ("role!=worker", false),
        ("role!=master", true),
        ("missing!=x", true),
        ("role in (worker,master)", true),
        ("role in (master)", false),
        ("role notin (master, infra)", true),
        ("role notin (worker)", false),
        ("missing notin (a)", true),
        ("missing in (a)", false),
        ("empty in ()", true),
        ("empty in (,a)", true),
        ("role", true),
        ("missing", false),
        ("!missing", true),
        ("!role", false),
        ("gen>6", true),
        ("gen>7", false),
        ("gen<8", true),
        ("role<8", false),
        ("missing>1", false),
        ("role=worker,zone=a", true),
        ("role=worker,zone=b", false),
        ("  role  in ( worker ) , zone = a ", true),
        ("role=in", false),
        ("in", false),
    ];
    for (text, expected) in cases {
        let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(Some(&worker)), *expected, "{text}");
    }
}

#[test]
fn an_object_without_labels_matches_only_what_asks_for_absence() {
    for (text, expected) in [
        ("", true),
        ("a", false),
        ("!a", true),
        ("a!=b", true),
        ("a=b", false),
    ] {
        assert_eq!(
            LabelSelector::parse(text).expect(text).matches(None),
            expected,
            "{text}"
        );
    }
    assert!(
        LabelSelector::parse("a=b")
            .expect("parses")
            .selects(&json!({"metadata": {"labels": {"a": "b"}}}))
    );
    assert!(
        !LabelSelector::parse("a=b")
            .expect("parses")
            .selects(&json!({"metadata": {}}))
    );
}

#[test]
fn bad_query_selectors_are_rejected_with_kubernetes_messages() {
    let key_rule = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let bad_key = format!("unable to parse requirement: <nil>: Invalid value: \"a!\u{e9}\": {key_rule}");
    let cases: &[(&str, &str)] = &[
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        (
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            "a in (b,=)",
            "unable to parse requirement: found '=', expected: ',', or identifier",
        ),
        (
            "a in (=)",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        ),
        (
            "a==(",
            "unable to parse requirement: found '(', expected: identifier",
        ),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "a=-",
            "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ];
    for (text, expected) in cases {
        let error = LabelSelector::parse(text).expect_err(text);
        assert_eq!(error.to_string(), *expected, "{text}");
    }
    let error = LabelSelector::parse("a\u{e9}")
        .expect_err("not ASCII")
        .to_string();
    assert_eq!(error, bad_key.replace("a!", "a"));
}

#[test]
fn selector_objects_match_like_kubernetes() {
    let worker = labels(json!({"role": "worker", "zone": "a"}));
    let cases = [
        (json!(null), false),
        (json!({}), true),
        (json!({"matchLabels": {"role": "worker"}}), true),
        (json!({"matchLabels": {"role": "worker", "zone": "b"}}), false),
        (
            json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}),
            false,
        ),
    ];
    for (object, expected) in cases {
        let selector = LabelSelector::from_object(Some(&object)).expect("valid");
        assert_eq!(selector.matches(Some(&worker)), expected, "{object}");
    }
    assert_eq!(LabelSelector::from_object(None), Ok(LabelSelector::Nothing));
}

#[test]
fn bad_selector_objects_are_rejected_with_kubernetes_messages() {
    let cases = [
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
            "\"Like\" is not a valid label selector operator",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist",
        ),
    ];
    for (object, expected) in cases {
        let error = LabelSelector::from_object(Some(&object)).expect_err("refused");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_selector_prints_in_key_order_with_sorted_values() {
    let selector = LabelSelector::parse("z in (b,a), !y,x=1,w,v!=2,u>3").expect("parses");
    assert_eq!(selector.to_string(), "u>3,v!=2,w,x=1,!y,z in (a,b)");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_without_harm(text in "\\PC{0,40}") {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn printing_and_parsing_again_returns_the_same_selector(
        keys in proptest::collection::btree_set("[a-z]{1,8}", 0..4),
        value in "[a-z0-9]{0,5}",
        shape in 0_u8..6,
    ) {
        let text: Vec<String> = keys.iter().map(|key| match shape {
            0 => format!("{key}={value}"),
            1 => format!("{key}!={value}"),
            2 => format!("{key} in ({value},b)"),
            3 => format!("{key} notin ({value})"),
            4 => format!("!{key}"),
            _ => key.clone(),
        }).collect();
        if let Ok(first) = LabelSelector::parse(&text.join(",")) {
            prop_assert_eq!(LabelSelector::parse(&first.to_string()), Ok(first));
        }
    }
}
