//! `parity`: plays the transcripts against the server of a kubeconfig and compares or records the responses.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anstream::{eprintln, println};
use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use mco_parity::golden;
use mco_parity::play::Played;
use mco_parity::server::Server;
use mco_parity::suite::{Data, Report, needs_kubectl, play_all};
use mco_parity::transcript::Transcript;

#[derive(Debug, Parser)]
#[command(about, after_help = "Example: parity check --kubeconfig DIR/kubeconfig")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the server's responses with the golden ones; exit with 1 when any differs.
    Check(Options),
    /// Write the server's responses as the golden ones. Only a real kube-apiserver may be recorded.
    Record(Options),
    /// List the checks.
    List(Options),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// The server to play against, with a cluster administrator's credentials.
    #[arg(long, default_value = "kubeconfig")]
    kubeconfig: PathBuf,
    /// Directory of the transcripts and the golden responses.
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
    let data = Data::new(&options.data);
    let mut report = Report::default();
    for (transcript, played) in played(options).await? {
        data.judge(&transcript, &played, &mut report)?;
    }
    for failure in &report.failures {
        println!("FAILED {failure}");
    }
    println!("{} passed, {} failed", report.passed, report.failures.len());
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn record(options: &Options) -> Result<ExitCode> {
    let golden = Data::new(&options.data).golden();
    let mut recorded = 0;
    for (transcript, played) in played(options).await? {
        if let Some(failure) = played.failures.first() {
            bail!("{failure}");
        }
        let checks = transcript.steps.iter().filter(|step| step.check.is_some());
        for (step, recording) in checks.zip(&played.recordings) {
            if let Some(contradiction) = step.contradiction(&recording.answer) {
                bail!("{}: {}: {contradiction}", transcript.name, recording.check);
            }
        }
        golden::write(&golden, &transcript.name, &played.recordings)?;
        recorded += played.recordings.len();
        eprintln!("{}: {} answers", transcript.name, played.recordings.len());
    }
    println!("{recorded} answers recorded");
    Ok(ExitCode::SUCCESS)
}

fn list(options: &Options) -> Result<ExitCode> {
    let mut count = 0;
    for transcript in selected(options)? {
        for check in transcript.steps.iter().filter_map(|step| step.check.as_deref()) {
            println!("{}: {check}", transcript.name);
            count += 1;
        }
    }
    println!("{count} checks");
    Ok(ExitCode::SUCCESS)
}

async fn played(options: &Options) -> Result<Vec<(Transcript, Played)>> {
    let mut transcripts = selected(options)?;
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
    let server = Arc::new(Server::from_kubeconfig(&options.kubeconfig).await?);
    Ok(play_all(transcripts, &server, options.kubectl.as_deref()).await?)
}

fn selected(options: &Options) -> Result<Vec<Transcript>> {
    let mut transcripts = Data::new(&options.data).transcripts()?;
    transcripts.retain(|transcript| {
        (options.only.is_empty() || options.only.iter().any(|word| transcript.name.contains(word)))
            && !options.except.contains(&transcript.name)
    });
    Ok(transcripts)
}
