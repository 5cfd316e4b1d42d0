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

/// A story of which most is left out, so that a search for a shorter one takes seconds.
const SHORT: [&str; 8] = [
    "--nodes",
    "7",
    "--seed",
    "5",
    "--without",
    "3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
    "--without-faults",
    "late-response,lost-response,too-many,server-error,duplicate,gone,watch-ends,stale-watch,duplicate-event",
];

/// Plays one story in its process.
fn story(seed: &str, more: &[&str]) -> (String, bool) {
    simulation(&[&["--only", "--log", "--nodes", "7", "--seed", seed], more].concat())
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
        ("two-leaders", "controller-0 and controller-1 lead at once"),
        (
            "stuck-render",
            "no convergence: pool worker: its target is not rendered from the MachineConfigs that exist; \
             different: 50-worker-1000",
        ),
    ] {
        let (text, succeeds) = story("5", &["--plant", plant]);
        assert!(!succeeds, "{plant}: {text}");
        assert!(text.contains(violation), "{plant}: {text}");
    }
}

#[test]
fn a_story_that_fails_is_shortened_and_can_be_repeated() {
    let (text, succeeds) = simulation(&[&SHORT[..], &["--plant", "foreign-uncordon"]].concat());
    assert!(!succeeds, "{text}");
    let again = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("again: cargo run -p mco-simulation -- "));
    let again: Vec<&str> = again.unwrap_or_else(|| panic!("{text}")).split(' ').collect();
    // The planted violation needs no failure, and no incident.
    assert!(!text.contains(" incident "), "{text}");
    let (text, succeeds) = simulation(&[&["--only"], &again[..]].concat());
    assert!(!succeeds && text.contains("was uncordoned"), "{text}");
}

/// Also leaves out the rest, so that there is nothing to search.
const NOTHING: [&str; 4] = ["--without", "0,1,2", "--without-faults", "delay,conflict"];

#[test]
fn a_story_that_panics_fails_and_the_others_are_reported() {
    let (text, succeeds) =
        simulation(&[&SHORT[..], &NOTHING, &["--count", "2", "--plant", "panic"]].concat());
    assert!(!succeeds, "{text}");
    assert!(
        text.contains("seed 5 fails: panicked at ") && text.contains(" planted"),
        "{text}"
    );
    assert!(text.contains("2 stories, 2 failed [5, 6]"), "{text}");
}

#[test]
fn a_story_that_hangs_fails_and_is_not_shortened() {
    let (text, succeeds) =
        simulation(&[&SHORT[..], &NOTHING, &["--timeout", "1", "--plant", "hang"]].concat());
    assert!(!succeeds, "{text}");
    assert!(text.contains("seed 5 fails: it has not ended after 1s"), "{text}");
    assert!(
        text.contains("again: cargo run -p mco-simulation -- --seed 5 --nodes 7 --plant hang"),
        "{text}"
    );
    assert!(text.contains("1 stories, 1 failed [5]"), "{text}");
}
