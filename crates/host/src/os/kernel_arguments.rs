//! Kernel arguments in the kernel's syntax: words, with double quotes around spaces and no escapes.

/// Splits a line, or an entry that contains several arguments. Quotes stay part of the argument.
pub fn split(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for character in text.chars() {
        if character == '"' {
            quoted = !quoted;
        }
        if character.is_ascii_whitespace() && !quoted {
            if !current.is_empty() {
                arguments.push(std::mem::take(&mut current));
            }
        } else {
            current.push(character);
        }
    }
    if !current.is_empty() {
        arguments.push(current);
    }
    arguments
}

/// Returns the wanted arguments that the machine does not have. An argument wanted twice must be present twice.
pub fn missing(wanted: &[String], present: &[String]) -> Vec<String> {
    let mut left: Vec<&String> = present.iter().collect();
    let mut missing = Vec::new();
    for argument in wanted.iter().flat_map(|entry| split(entry)) {
        match left.iter().position(|candidate| **candidate == argument) {
            Some(at) => {
                left.remove(at);
            }
            None => missing.push(argument),
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arguments_are_split_outside_quotes() {
        for (text, expected) in [
            ("bar=1 hello=world", vec!["bar=1", "hello=world"]),
            (
                " baz=test bar=\"hello world\"",
                vec!["baz=test", "bar=\"hello world\""],
            ),
            ("\t\n ", vec![]),
            ("a=\"unclosed b", vec!["a=\"unclosed b"]),
        ] {
            assert_eq!(split(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_quoted_argument_with_a_space_is_found_again() {
        let wanted = ["a=\"b c\"".to_owned(), "x".to_owned()];
        assert_eq!(missing(&wanted, &split("ro a=\"b c\" quiet")), ["x"]);
    }

    proptest! {
        #[test]
        fn splitting_what_was_joined_gives_the_same(words in prop::collection::vec("[a-z0-9=.,-]{1,8}", 0..6)) {
            prop_assert_eq!(split(&words.join("  ")), words);
        }
    }
}
