//! The whole suite against one server: the transcripts, their concurrency, and the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

use crate::compare::compare;
use crate::golden::{self, GoldenError};
use crate::play::{Played, play};
use crate::server::Server;
use crate::transcript::{Action, Transcript, TranscriptError};

/// Enough to overlap the waits of transcripts without overloading a two-core machine.
const AT_ONCE: usize = 4;

/// Directories of the transcripts and their golden responses.
#[derive(Debug, Clone)]
pub struct Data {
    directory: PathBuf,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub passed: usize,
    /// One text per failure.
    pub failures: Vec<String>,
}

impl Data {
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    pub fn transcripts(&self) -> Result<Vec<Transcript>, TranscriptError> {
        Transcript::load_all(&self.directory.join("transcripts"))
    }

    pub fn golden(&self) -> PathBuf {
        self.directory.join("golden")
    }

    /// Adds the result of one played transcript to a report.
    pub fn judge(
        &self,
        transcript: &Transcript,
        played: &Played,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let expected = golden::read(&self.golden(), &transcript.name)?;
        for verdict in compare(&expected, &played.recordings) {
            match verdict.difference {
                None => report.passed += 1,
                Some(difference) => report.failures.push(format!(
                    "{}: {}\n       {}\n{difference}",
                    transcript.name, verdict.check, verdict.request
                )),
            }
        }
        report
            .failures
            .extend(played.failures.iter().map(|failure| format!("{failure}\n")));
        Ok(())
    }
}

/// Plays transcripts concurrently and returns them in their own order.
pub async fn play_all(
    transcripts: Vec<Transcript>,
    server: &Arc<Server>,
    kubectl: Option<&Path>,
) -> Result<Vec<(Transcript, Played)>, tokio::task::JoinError> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let run = run_word(SystemTime::now());
    let mut playing = Vec::new();
    for transcript in transcripts {
        let (server, places, run) = (Arc::clone(server), Arc::clone(&places), run.clone());
        let kubectl = kubectl.map(Path::to_owned);
        playing.push(tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            let played = play(&transcript, &server, &run, kubectl.as_deref()).await;
            (transcript, played)
        }));
    }
    let mut all = Vec::new();
    for one in playing {
        all.push(one.await?);
    }
    Ok(all)
}

pub fn needs_kubectl(transcript: &Transcript) -> bool {
    transcript
        .steps
        .iter()
        .any(|step| matches!(step.action, Action::Shell { .. }))
}

/// Returns a word of fixed length that no other run on the same server uses, so that runs need no cleanup before they
/// start.
fn run_word(now: SystemTime) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let nanos = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut number = nanos ^ (u128::from(std::process::id()) << 20);
    let mut word = String::from("r");
    for _ in 0..7 {
        word.push(char::from(
            DIGITS[usize::try_from(number % 36).unwrap_or_default()],
        ));
        number /= 36;
    }
    word
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_word_of_a_run_is_a_fixed_number_of_characters_that_names_may_have() {
        let now = UNIX_EPOCH + Duration::from_nanos(1_800_000_000_123_456_789);
        let word = run_word(now);
        assert_eq!(word.len(), 8);
        assert!(
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
            "{word}"
        );
        assert_ne!(word, run_word(now + Duration::from_nanos(1)));
    }
}
