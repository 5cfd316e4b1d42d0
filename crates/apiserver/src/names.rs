//! The naming rules of Kubernetes: DNS labels and subdomains, label keys and values.
//!
//! Each check returns the messages of Kubernetes, and none if the text is valid.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const DNS_LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_FORMAT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A lower case RFC 1123 label: namespaces, ports.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, LABEL_MAX);
    if !is_dns_label(text) {
        problems.push(if is_dns_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            unmatched(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS_LABEL_FORMAT,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

/// A lower case RFC 1123 subdomain: the name of most objects.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut problems = too_long(text, SUBDOMAIN_MAX);
    if !is_dns_subdomain(text) {
        problems.push(unmatched(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS_SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    problems
}

/// An RFC 1035 label: services, which must start with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, LABEL_MAX);
    if !(is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        problems.push(unmatched(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS_1035_FORMAT,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// A name that is only a segment of a URL path: RBAC objects.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// The prefix of such a name, for `generateName`.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|illegal| text.contains(illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// The key of a label, annotation or finalizer: a name with an optional subdomain prefix.
pub fn label_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    dns1123_subdomain(prefix)
                        .iter()
                        .map(|text| format!("prefix part {text}")),
                );
            }
            name
        }
        _ => {
            let rule = unmatched(
                LABEL_KEY_RULE,
                LABEL_KEY_FORMAT,
                &["MyName", "my.name", "123-abc"],
            );
            problems.push(format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return problems;
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(
        too_long(name, LABEL_MAX)
            .iter()
            .map(|text| format!("name part {text}")),
    );
    if !is_label_name(name) {
        let rule = unmatched(
            LABEL_KEY_RULE,
            LABEL_KEY_FORMAT,
            &["MyName", "my.name", "123-abc"],
        );
        problems.push(format!("name part {rule}"));
    }
    problems
}

/// The value of a label: empty, or shaped like a label's name.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = too_long(text, LABEL_MAX);
    if !(text.is_empty() || is_label_name(text)) {
        problems.push(unmatched(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE_FORMAT,
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// Returns Kubernetes' message for a text that does not match a pattern.
pub fn unmatched(rule: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{pattern}')");
    }
    let quoted: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{pattern}')",
        quoted.join(" or ")
    )
}

fn too_long(text: &str, max: usize) -> Vec<String> {
    if text.len() > max {
        vec![format!("must be no more than {max} bytes")]
    } else {
        Vec::new()
    }
}

fn is_dns_label(text: &str) -> bool {
    enclosed(
        text,
        |b| b.is_ascii_lowercase() || b.is_ascii_digit(),
        |b| b == b'-',
    )
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_name(text: &str) -> bool {
    enclosed(
        text,
        |b| b.is_ascii_alphanumeric(),
        |b| matches!(b, b'-' | b'_' | b'.'),
    )
}

/// Returns whether the text starts and ends with an `outer` byte and has only `outer` and `inner` ones between.
fn enclosed(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            outer(first) && outer(last) && bytes.iter().all(|&b| outer(b) || inner(b))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn names_that_follow_the_rules_are_accepted() {
        let long = "a".repeat(63);
        for (check, text) in [
            (dns1123_label as Check, "a"),
            (dns1123_label, "0-a-9"),
            (dns1123_label, &long),
            (dns1123_subdomain, "a.b-c.0"),
            (dns1035_label, "a-1"),
            (label_key, "a"),
            (label_key, "node-role.kubernetes.io/worker"),
            (label_key, "A_b.c-9"),
            (label_value, ""),
            (label_value, "1.2_3-x"),
            (path_segment, "system:node"),
        ] {
            assert_eq!(check(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn names_that_break_a_rule_are_rejected_with_kubernetes_messages() {
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        let long = "a".repeat(64);
        let cases: &[(Check, &str, Vec<&str>)] = &[
            (dns1123_label, "a.b", vec!["must not contain dots"]),
            (dns1123_label, "A", vec![label]),
            (dns1123_label, "", vec![label]),
            (dns1123_label, "a-", vec![label]),
            (dns1123_label, &long, vec!["must be no more than 63 bytes"]),
            (label_key, "", vec!["name part must be non-empty", key]),
            (label_key, "/a", vec!["prefix part must be non-empty"]),
            (label_key, "a b", vec![key]),
            (path_segment, "..", vec!["may not be '..'"]),
            (
                path_segment,
                "a/b%",
                vec!["may not contain '/'", "may not contain '%'"],
            ),
        ];
        for (check, text, expected) in cases {
            assert_eq!(&check(text), expected, "{text}");
        }
        assert!(label_key("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(dns1123_subdomain("a..b")[0].contains("(e.g. 'example.com', regex used"));
        assert!(dns1035_label("1a")[0].starts_with("a DNS-1035 label must"));
    }
}
