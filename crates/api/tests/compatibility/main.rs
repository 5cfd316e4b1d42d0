//! Our CustomResourceDefinitions are compatible with the reference: the same objects are accepted, rejected, pruned and
//! defaulted, and `kubectl get` shows the same columns.
//!
//! The reference definitions are not part of this repository. Where they are absent, our own are used in their place,
//! so that the generator and the validators are still exercised.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "limits in schemas are small whole numbers"
)]

mod objects;
mod reference;
mod rules;
mod types;
mod verdict;

use std::collections::BTreeSet;

use reference::{Pair, pairs};
use serde_json::{Value, json};
use verdict::Judge;

/// Runs a check over every pair of definitions and reports everything it finds at once.
fn for_every_pair(check: impl Fn(&Pair) -> Vec<String>) {
    let findings: Vec<String> = pairs()
        .iter()
        .flat_map(|pair| {
            check(pair)
                .into_iter()
                .map(|finding| format!("{}: {finding}", pair.name))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        findings.is_empty(),
        "{} differences:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

#[test]
fn every_established_definition_has_one_of_ours() {
    let ours: BTreeSet<String> = mco_api::crds()
        .into_iter()
        .filter_map(|crd| crd.metadata.name)
        .collect();
    let established: BTreeSet<String> = reference::established()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        established.difference(&ours).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}

#[test]
fn names_scope_columns_and_subresources_are_equal() {
    for_every_pair(|pair| {
        let facts = |crd: &Value| {
            let mut crd = reference::without_words(crd);
            crd["spec"]["versions"][0]["schema"] = Value::Null;
            crd["metadata"] = json!({"name": crd["metadata"]["name"], "labels": crd["metadata"]["labels"]});
            crd
        };
        let mut established = facts(&pair.established);
        if let Some(columns) = established["spec"]["versions"][0]["additionalPrinterColumns"].as_array_mut()
            && pair.name == ADDED_COLUMN_OF
            && !columns.contains(&added_column())
        {
            columns.push(added_column());
        }
        reference::differences(&established, &facts(&pair.ours), "")
    });
}

/// Users expect this last column of `oc get co`, although the reference definition lacks it.
const ADDED_COLUMN_OF: &str = "clusteroperators.config.openshift.io";

fn added_column() -> Value {
    json!({
        "name": "Message",
        "type": "string",
        "jsonPath": r#".status.conditions[?(@.type=="Degraded")].message"#,
    })
}

#[test]
fn every_keyword_of_the_schemas_is_equal_but_for_the_descriptions() {
    for_every_pair(|pair| {
        let words_removed = |judge: &Judge| reference::without_words(&judge.schema);
        reference::differences(
            &words_removed(&pair.established_judge),
            &words_removed(&pair.our_judge),
            "",
        )
    });
}

#[test]
fn minimal_and_maximal_objects_are_accepted_and_defaulted_alike() {
    for_every_pair(|pair| {
        let schema = &pair.established_judge.schema;
        let mut findings = Vec::new();
        for (what, object) in [
            ("minimal", objects::minimal(schema)),
            ("maximal", objects::maximal(schema)),
        ] {
            for (whose, judge) in [("established", &pair.established_judge), ("our", &pair.our_judge)] {
                if !judge.accepts_structure(&object) {
                    findings.push(format!(
                        "{whose} schema rejects the {what} object: {:?}",
                        judge.complaints(&object)
                    ));
                }
            }
            if pair.established_judge.fill_in(&object) != pair.our_judge.fill_in(&object) {
                findings.push(format!("the {what} object gets other defaults"));
            }
        }
        findings
    });
}

#[test]
fn objects_with_one_thing_changed_are_accepted_and_rejected_alike() {
    for_every_pair(|pair| {
        let schema = &pair.established_judge.schema;
        let mut object = objects::maximal(schema);
        let mut findings = Vec::new();
        let mut rejected = 0;
        for change in objects::changes(schema) {
            rejected += usize::from(!change.valid);
            for (whose, judge) in [("established", &pair.established_judge), ("our", &pair.our_judge)] {
                if change.try_on(&mut object, |object| judge.accepts_structure(object)) != change.valid {
                    let expected = if change.valid { "accept" } else { "reject" };
                    findings.push(format!(
                        "{}: the {whose} schema should {expected} it",
                        change.what
                    ));
                }
            }
        }
        assert!(rejected > 10, "{} has something to reject", pair.name);
        findings
    });
}

#[test]
fn unknown_fields_are_dropped_alike() {
    for_every_pair(|pair| {
        let mut object = objects::maximal(&pair.established_judge.schema);
        let differs = |object: &Value| pair.established_judge.prune(object) != pair.our_judge.prune(object);
        objects::unknown_fields(&pair.established_judge.schema)
            .iter()
            .filter(|change| change.try_on(&mut object, differs))
            .map(|change| change.what.clone())
            .collect()
    });
}

#[test]
fn cel_rules_judge_alike_and_every_one_of_them_is_broken_once() {
    let pairs = pairs();
    let mut findings = Vec::new();
    let mut unbroken = BTreeSet::new();
    for pair in &pairs {
        let (differences, broken) = rules::texts(pair);
        findings.extend(
            differences
                .into_iter()
                .map(|finding| format!("{}: {finding}", pair.name)),
        );
        let all = rules::messages(&pair.established_judge.schema);
        unbroken.extend(
            all.difference(&broken)
                .map(|message| (pair.plural().to_owned(), message.clone())),
        );
    }
    for case in rules::cases() {
        let pair = pairs.iter().find(|pair| pair.plural() == case.plural).unwrap();
        for (whose, judge) in [("established", &pair.established_judge), ("our", &pair.our_judge)] {
            let broken = judge.broken_rules(&case.object, case.old.as_ref());
            if broken != case.broken {
                findings.push(format!(
                    "{}: {}: the {whose} rules say {broken:#?}",
                    case.plural, case.what
                ));
            }
        }
        for message in case.broken {
            unbroken.remove(&(case.plural.clone(), message));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(unbroken.is_empty(), "no object breaks these rules: {unbroken:#?}");
}

#[test]
fn a_constraint_that_is_dropped_or_changed_is_noticed() {
    for plural in [
        "machineosconfigs",
        "machineconfigpools",
        "kubeletconfigs",
        "machineconfignodes",
    ] {
        let pair = pairs()
            .into_iter()
            .find(|pair| pair.name.starts_with(&format!("{plural}.")))
            .unwrap();
        let schema = &pair.our_judge.schema;
        let changes = objects::changes(schema);
        let mut object = objects::maximal(schema);
        for (keyword, weakened) in weakenings(schema) {
            let judge = Judge::new(weakened);
            let noticed = changes.iter().any(|change| {
                change.try_on(&mut object, |object| judge.accepts_structure(object)) != change.valid
            });
            assert!(noticed, "{plural}: nothing notices that {keyword} is gone");
        }
    }
}

/// Returns the schema without one of its constraints, for every constraint that the mutants must detect.
fn weakenings(schema: &Value) -> Vec<(String, Value)> {
    const KEYWORDS: &[&str] = &[
        "type",
        "required",
        "enum",
        "pattern",
        "maxLength",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "nullable",
    ];
    let mut found = Vec::new();
    reference::schema_pointers(schema, "", &mut |pointer| {
        for keyword in KEYWORDS {
            let mut weakened = schema.clone();
            let at = weakened.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
            let redundant = *keyword == "minItems" && at.get("minItems").is_some_and(|least| least == 0)
                || *keyword == "maxLength" && at.contains_key("enum")
                || *keyword == "type" && (at.contains_key("enum") || at.contains_key("anyOf"));
            if !redundant && at.remove(*keyword).is_some() {
                found.push((format!("{pointer}/{keyword}"), weakened));
            }
        }
    });
    found
}
