//! `parity`: plays the transcripts against the server of a kubeconfig and compares or records the answers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anstream::{eprintln, println};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use mco_parity::compare::{Verdict, compare};
use mco_parity::golden;
use mco_parity::play::{Played, play};
use mco_parity::server::Server;
use mco_parity::transcript::{Action, Transcript};
use tokio::sync::Semaphore;

/// Enough to hide the waits of transcripts behind each other without drowning a two-core machine.
const AT_ONCE: usize = 4;

#[derive(Debug, Parser)]
#[command(about, after_help = "Example: parity check --kubeconfig DIR/kubeconfig")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the server's answers with the golden ones; exit with 1 when any differs.
    Check(Options),
    /// Write the server's answers as the golden ones. Only a real kube-apiserver may be recorded.
    Record(Options),
    /// List the checks.
    List(Options),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// The server to play against, with a cluster administrator's credentials.
    #[arg(long, default_value = "kubeconfig")]
    kubeconfig: PathBuf,
    /// Where the transcripts and the golden answers are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR")))]
    data: PathBuf,
    /// Directory of the `kubectl` that transcripts with shell lines use; without it they are left out.
    #[arg(long)]
    kubectl: Option<PathBuf>,
    /// Leave out the transcript of this name.
    #[arg(long, value_name = "NAME")]
    except: Vec<String>,
    /// Play only transcripts whose name contains one of these words.
    only: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match &arguments.command {
            Command::Check(options) => check(options).await,
            Command::Record(options) => record(options).await,
            Command::List(options) => list(options),
        }
    })
}

async fn check(options: &Options) -> Result<ExitCode> {
    let transcripts = selected(options)?;
    let (mut passed, mut failed) = (0, 0);
    for (transcript, played) in play_all(transcripts, options).await? {
        let expected = golden::read(&golden_directory(options), &transcript.name)?;
        for verdict in compare(&expected, &played.recordings) {
            match &verdict.difference {
                None => passed += 1,
                Some(_) => failed += 1,
            }
            print_verdict(&transcript.name, &verdict);
        }
        for failure in played.failures {
            println!("FAILED {failure}\n");
            failed += 1;
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn record(options: &Options) -> Result<ExitCode> {
    let transcripts = selected(options)?;
    let mut recorded = 0;
    for (transcript, played) in play_all(transcripts, options).await? {
        if let Some(failure) = played.failures.first() {
            bail!("{failure}");
        }
        let checks = transcript.steps.iter().filter(|step| step.check.is_some());
        for (step, recording) in checks.zip(&played.recordings) {
            if let Some(contradiction) = step.contradiction(&recording.answer) {
                bail!("{}: {}: {contradiction}", transcript.name, recording.check);
            }
        }
        golden::write(&golden_directory(options), &transcript.name, &played.recordings)?;
        recorded += played.recordings.len();
        eprintln!("{}: {} answers", transcript.name, played.recordings.len());
    }
    println!("{recorded} answers recorded");
    Ok(ExitCode::SUCCESS)
}

fn list(options: &Options) -> Result<ExitCode> {
    let mut count = 0;
    for transcript in selected(options)? {
        for step in &transcript.steps {
            if let Some(check) = &step.check {
                println!("{}: {check}", transcript.name);
                count += 1;
            }
        }
    }
    println!("{count} checks");
    Ok(ExitCode::SUCCESS)
}

fn selected(options: &Options) -> Result<Vec<Transcript>> {
    let mut transcripts = Transcript::load_all(&options.data.join("transcripts"))?;
    if !options.only.is_empty() {
        transcripts.retain(|transcript| options.only.iter().any(|word| transcript.name.contains(word)));
    }
    transcripts.retain(|transcript| !options.except.contains(&transcript.name));
    if options.kubectl.is_none() {
        let before = transcripts.len();
        transcripts.retain(|transcript| !needs_kubectl(transcript));
        if before > transcripts.len() {
            eprintln!("note: transcripts that need --kubectl are left out");
        }
    }
    if transcripts.is_empty() {
        bail!("no transcript selected");
    }
    Ok(transcripts)
}

fn needs_kubectl(transcript: &Transcript) -> bool {
    transcript
        .steps
        .iter()
        .any(|step| matches!(step.action, Action::Shell { .. }))
}

async fn play_all(transcripts: Vec<Transcript>, options: &Options) -> Result<Vec<(Transcript, Played)>> {
    let server = Arc::new(Server::from_kubeconfig(&options.kubeconfig).await?);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let run = run_word()?;
    let mut playing = Vec::new();
    for transcript in transcripts {
        let (server, places, run) = (Arc::clone(&server), Arc::clone(&places), run.clone());
        let kubectl = options.kubectl.clone();
        playing.push(tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            let played = play(&transcript, &server, &run, kubectl.as_deref()).await;
            (transcript, played)
        }));
    }
    let mut all = Vec::new();
    for one in playing {
        all.push(one.await.context("a transcript was interrupted")?);
    }
    Ok(all)
}

/// A word of fixed length that no other run on the same server uses, so that runs need not clean up before they start.
fn run_word() -> Result<String> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let mut number = nanos ^ u128::from(std::process::id()) << 20;
    let mut word = String::from("r");
    for _ in 0..7 {
        let digit = u32::try_from(number % 36)?;
        word.push(char::from_digit(digit, 36).context("a digit")?);
        number /= 36;
    }
    Ok(word)
}

fn golden_directory(options: &Options) -> PathBuf {
    Path::new(&options.data).join("golden")
}

fn print_verdict(transcript: &str, verdict: &Verdict) {
    if let Some(difference) = &verdict.difference {
        println!(
            "FAILED {transcript}: {}\n       {}\n{difference}",
            verdict.check, verdict.request
        );
    }
}
