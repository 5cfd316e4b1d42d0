//! The help of `mco` itself: its commands in groups, as kubectl shows its own.

use std::fmt::Write as _;

use clap::builder::Styles;
use clap::{Command, CommandFactory as _};

use super::Cli;

/// The longest line of any help, so that it fits a terminal of 80 columns.
pub const WIDTH: usize = 79;
/// The name under which kubectl runs this program as its plugin.
pub const PLUGIN: &str = "kubectl mco";

/// The groups and their commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Change nodes",
        &["plan", "apply", "wait", "rollout", "adopt", "release"],
    ),
    (
        "See what happens",
        &["status", "node", "drift", "console", "gather"],
    ),
    (
        "MachineConfigs without a cluster",
        &["validate", "render", "diff", "why", "get"],
    ),
    ("A cluster in one process", &["up", "token"]),
    (
        "Install and components",
        &[
            "install",
            "uninstall",
            "switch",
            "crds",
            "operator",
            "controller",
            "builder",
            "server",
            "pointer",
            "daemon",
            "apiserver-watcher",
        ],
    ),
    ("Other", &["version", "completions", "man"]),
];

/// Returns the command line, with the help in groups.
pub fn command() -> Command {
    let command = Cli::command().max_term_width(WIDTH);
    let template = template(&command);
    command.help_template(template)
}

/// Returns the command line of the kubectl plugin, whose examples can be pasted.
pub fn plugin_command() -> Command {
    as_plugin(command().bin_name(PLUGIN))
}

fn as_plugin(command: Command) -> Command {
    let examples = command.get_after_help().map(|help| {
        let lines = help.to_string();
        let lines = lines.lines().map(|line| match line.strip_prefix("  mco ") {
            Some(rest) => format!("  {PLUGIN} {rest}"),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(as_plugin)
}

fn template(command: &Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut groups = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(groups, "{header}{title}:{header:#}");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map(ToString::to_string)
                .unwrap_or_default();
            let indent = COLUMN + 2;
            for (index, line) in wrapped(&about, WIDTH - indent).into_iter().enumerate() {
                if index == 0 {
                    let _ = writeln!(groups, "  {literal}{name:<COLUMN$}{literal:#}{line}");
                } else {
                    let _ = writeln!(groups, "{:indent$}{line}", "");
                }
            }
        }
        groups.push('\n');
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    )
}

/// The width of the column of names.
const COLUMN: usize = 19;

/// Breaks a text into lines between its words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn visible(command: &Command) -> impl Iterator<Item = &Command> {
        command
            .get_subcommands()
            .filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
    }

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let unique: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), unique.len(), "a command is in two groups");
        let command = Cli::command();
        let existing: BTreeSet<&str> = visible(&command).map(Command::get_name).collect();
        assert_eq!(unique, existing);
    }

    /// Calls `check` with every command that a user sees, and its name.
    fn walk(command: &mut Command, name: &str, check: &mut impl FnMut(&mut Command, &str)) {
        check(command, name);
        let names: Vec<String> = visible(command).map(|one| one.get_name().to_owned()).collect();
        for one in names {
            if let Some(subcommand) = command.find_subcommand_mut(&one) {
                walk(subcommand, &format!("{name} {one}"), check);
            }
        }
    }

    #[test]
    fn every_help_fits_80_columns_and_has_an_example_of_its_command() {
        let mut wrong = Vec::new();
        let mut number = 0;
        for (mut root, program) in [(command(), "mco"), (plugin_command(), PLUGIN)] {
            root.build();
            walk(&mut root, program, &mut |command, name| {
                number += 1;
                // What a test prints depends on the terminal; a fixed width does not. No terminal gets a wider one.
                let mut fixed = command.clone().term_width(WIDTH);
                let help = fixed.render_long_help().to_string();
                for line in help.lines().filter(|line| line.chars().count() >= 80) {
                    wrong.push(format!("{name}: {} columns: {line}", line.chars().count()));
                }
                let example = help.lines().any(|line| {
                    line.starts_with("  ") && line.contains(&format!("{name} ")) || line.trim() == name
                });
                if !example {
                    wrong.push(format!("{name}: no example"));
                }
            });
        }
        assert!(number > 100, "only {number} commands were found");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_plugin_shows_its_own_name() {
        let mut root = plugin_command();
        root.build();
        let help = root
            .find_subcommand_mut("wait")
            .unwrap()
            .render_long_help()
            .to_string();
        assert!(help.contains("Usage: kubectl mco wait"), "{help}");
        assert!(help.contains("\n  kubectl mco wait worker\n"), "{help}");
        assert!(!help.contains("\n  mco "), "{help}");
    }
}
