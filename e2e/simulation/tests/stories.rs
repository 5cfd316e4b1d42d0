//! The simulation is deterministic, and finds what it is made to find.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

/// Plays stories, and returns the output and whether they succeeded.
fn simulation(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_simulation"))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {errors}");
    (String::from_utf8(output.stdout).unwrap(), code == Some(0))
}

/// Plays one story in its process.
fn story(seed: &str, more: &[&str]) -> (String, bool) {
    simulation(&[&["--only", "--log", "--workers", "4", "--seed", seed], more].concat())
}

#[test]
fn the_same_seed_is_the_same_story() {
    let (first, _) = story("3", &[]);
    let (second, _) = story("3", &[]);
    assert_eq!(first, second);
    assert!(first.contains("digest"), "{first}");
    let (other, _) = story("4", &[]);
    let digest = |text: &str| text.lines().last().unwrap().split(" digest ").nth(1).unwrap()[..16].to_owned();
    assert_ne!(digest(&first), digest(&other));
}

#[test]
fn violations_of_each_kind_are_found() {
    for (plant, violation) in [
        (
            "foreign-uncordon",
            "was uncordoned, which the administrator had cordoned",
        ),
        ("over-budget", "are away at once; pool worker allows"),
        ("never-done", "no convergence"),
    ] {
        let (text, succeeds) = story("5", &["--plant", plant]);
        assert!(!succeeds, "{plant}: {text}");
        assert!(text.contains(violation), "{plant}: {text}");
    }
}

#[test]
fn a_story_that_fails_is_shortened_and_can_be_repeated() {
    // Most is left out already, so that the search is short.
    let numbers: Vec<String> = (3..40).map(|number| number.to_string()).collect();
    let numbers = numbers.join(",");
    let faults = "late-response,lost-response,too-many,server-error,duplicate,gone,watch-ends,stale-watch,\
                  duplicate-event";
    let plant = ["--plant", "foreign-uncordon"];
    let less = ["--without", &numbers, "--without-faults", faults];
    let (text, succeeds) = simulation(&[&["--workers", "4", "--seed", "5"], &plant[..], &less[..]].concat());
    assert!(!succeeds, "{text}");
    let again = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("again: simulation "));
    let again: Vec<&str> = again.unwrap_or_else(|| panic!("{text}")).split(' ').collect();
    // The planted violation needs no failure, and no incident.
    assert!(!text.contains(" incident "), "{text}");
    let (text, succeeds) = simulation(&[&["--only"], &again[..], &plant[..]].concat());
    assert!(!succeeds && text.contains("was uncordoned"), "{text}");
}
