//! One rendered template as a part of an Ignition config.

use mco_ignition::{Config, Item};
use serde_json::{Value, json};

use crate::manifest;

/// What a template describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Unit,
}

/// A file or unit, ready to be merged with others.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub config: Config,
    pub item: Item,
    /// The contents of a file, before they were encoded.
    pub inline: Option<String>,
}

/// Reads the YAML of a rendered template.
pub(super) fn read(kind: Kind, text: &str) -> Result<Piece, String> {
    let value = manifest::value(text)?;
    match kind {
        Kind::File => file(&value),
        Kind::Unit => unit(&value),
    }
}

fn file(given: &Value) -> Result<Piece, String> {
    let path = given
        .get("path")
        .and_then(Value::as_str)
        .ok_or("path is missing: a file template needs mode, path and contents.inline")?;
    let contents = given.get("contents");
    let (encoded, inline) = resource(contents)?;
    let mut file = json!({"path": path, "overwrite": true});
    if let Some(contents) = encoded {
        file["contents"] = contents;
    }
    for key in ["mode", "user", "group"] {
        if let Some(value) = given.get(key).filter(|value| !value.is_null()) {
            file[key] = value.clone();
        }
    }
    if let Some(append) = given.get("append").and_then(Value::as_array) {
        let parts = append
            .iter()
            .map(|part| resource(Some(part)).map(|(encoded, _)| encoded));
        file["append"] = json!(parts.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(Piece {
        config: config(&json!({"storage": {"files": [file]}}))?,
        item: Item::File(path.to_owned()),
        inline,
    })
}

/// Contents given as plain text become a data URL; contents given by a source stay as they are.
fn resource(given: Option<&Value>) -> Result<(Option<Value>, Option<String>), String> {
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Ok((None, None));
    };
    match given.get("inline") {
        Some(Value::String(inline)) => {
            let source = mco_ignition::resource::encode(inline.as_bytes());
            Ok((Some(json!({ "source": source })), Some(inline.clone())))
        }
        Some(Value::Null) | None => Ok((Some(given.clone()), None)),
        Some(_) => Err("contents.inline must be a text".to_owned()),
    }
}

fn unit(given: &Value) -> Result<Piece, String> {
    let name = given
        .get("name")
        .and_then(Value::as_str)
        .ok_or("name is missing: a unit template needs a name")?;
    let mut unit = json!({ "name": name });
    for key in ["enabled", "mask", "contents", "dropins"] {
        if let Some(value) = given.get(key).filter(|value| !value.is_null()) {
            unit[key] = value.clone();
        }
    }
    Ok(Piece {
        config: config(&json!({"systemd": {"units": [unit]}}))?,
        item: Item::Unit(name.to_owned()),
        inline: None,
    })
}

fn config(sections: &Value) -> Result<Config, String> {
    let mut whole = sections.clone();
    whole["ignition"] = json!({"version": "3.5.0"});
    mco_ignition::parse(&whole)
        .map(|parsed| parsed.config)
        .map_err(|error| error.to_string())
}
