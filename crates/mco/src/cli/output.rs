//! The formats of `-o`.

use std::str::FromStr;
use std::sync::Arc;

use clap::Args;

use crate::jsonpath::JsonPathTemplate;

/// A format for programs.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputFormat {
    /// One JSON document.
    Json,
    /// YAML.
    Yaml,
    /// A template as `kubectl get -o jsonpath` takes it.
    JsonPath(Arc<JsonPathTemplate>),
}

/// The formats as the help shows them.
pub const FORMATS: &str = "json|yaml|jsonpath=TEMPLATE";
const LIST_FORMATS: &str = "wide|name|json|yaml|jsonpath=TEMPLATE";

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            _ => match text.strip_prefix("jsonpath=") {
                Some(template) => Ok(Self::JsonPath(Arc::new(JsonPathTemplate::parse(template)?))),
                None => Err(format!("expected {FORMATS}")),
            },
        }
    }
}

/// A format of a command that prints a list of objects.
#[derive(Debug, Clone, PartialEq)]
pub enum ListFormat {
    /// Text with more columns.
    Wide,
    /// One `resource/name` per line.
    Name,
    Program(OutputFormat),
}

impl FromStr for ListFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wide" => Ok(Self::Wide),
            "name" => Ok(Self::Name),
            text => OutputFormat::from_str(text)
                .map(Self::Program)
                .map_err(|error| error.replace(FORMATS, LIST_FORMATS)),
        }
    }
}

/// The output option of every command that prints text by default.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArguments {
    /// Print this format instead of text.
    #[arg(id = "output", short = 'o', long = "output", value_name = FORMATS)]
    pub format: Option<OutputFormat>,
}

/// The output option of commands that print a list of objects.
#[derive(Debug, Clone, Default, Args)]
pub struct ListOutputArguments {
    /// Print more columns, names only, or a format for programs.
    #[arg(id = "output", short = 'o', long = "output", value_name = LIST_FORMATS)]
    pub format: Option<ListFormat>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_one_that_kubectl_has() {
        assert_eq!("json".parse(), Ok(OutputFormat::Json));
        assert_eq!("wide".parse(), Ok(ListFormat::Wide));
        assert_eq!("yaml".parse(), Ok(ListFormat::Program(OutputFormat::Yaml)));
        assert!(matches!("jsonpath={.a}".parse(), Ok(OutputFormat::JsonPath(_))));
        assert_eq!(
            "table".parse::<ListFormat>(),
            Err("expected wide|name|json|yaml|jsonpath=TEMPLATE".to_owned())
        );
        assert!("jsonpath={.a".parse::<OutputFormat>().unwrap_err().contains('}'));
    }
}
