//! Every transcript has a golden file, and vice versa.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use mco_parity::golden;
use mco_parity::transcript::Transcript;

fn data(directory: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)
}

fn transcripts() -> Vec<Transcript> {
    Transcript::load_all(&data("transcripts")).unwrap()
}

fn checks(transcript: &Transcript) -> Vec<&str> {
    transcript
        .steps
        .iter()
        .filter_map(|step| step.check.as_deref())
        .collect()
}

#[test]
fn every_check_has_exactly_one_golden_answer_in_its_place() {
    for transcript in transcripts() {
        let recorded = golden::read(&data("golden"), &transcript.name).unwrap();
        let recorded: Vec<&str> = recorded
            .iter()
            .map(|recording| recording.check.as_str())
            .collect();
        assert_eq!(
            checks(&transcript),
            recorded,
            "{}: record it again",
            transcript.name
        );
    }
}

#[test]
fn no_golden_file_outlives_its_transcript() {
    let known: BTreeSet<String> = transcripts()
        .iter()
        .map(|one| format!("{}.yaml", one.name))
        .collect();
    for entry in std::fs::read_dir(data("golden")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "golden/{name} has no transcript");
    }
}

#[test]
fn a_sentence_names_one_check_of_a_transcript() {
    for transcript in transcripts() {
        let all = checks(&transcript);
        let distinct: BTreeSet<&&str> = all.iter().collect();
        assert_eq!(
            distinct.len(),
            all.len(),
            "{} repeats a sentence",
            transcript.name
        );
    }
}

#[test]
fn golden_answers_are_of_the_kind_that_their_transcripts_announce() {
    for transcript in transcripts() {
        let recorded = golden::read(&data("golden"), &transcript.name).unwrap();
        let steps = transcript.steps.iter().filter(|step| step.check.is_some());
        for (step, recording) in steps.zip(&recorded) {
            assert_eq!(
                step.contradiction(&recording.answer),
                None,
                "{}: {}",
                transcript.name,
                recording.check
            );
        }
    }
}

#[test]
fn the_suite_is_as_large_as_promised() {
    let all: usize = transcripts().iter().map(Transcript::checks).sum();
    assert!(all >= 120, "{all} checks");
}
