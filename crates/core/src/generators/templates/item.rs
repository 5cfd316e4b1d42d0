//! One rendered template as a part of an Ignition config.

use mco_ignition::SpecVersion;
use mco_ignition::{Config, MergedItem};
use serde_json::{Value, json};

use crate::config::goyaml;
use crate::config::manifest;

/// Paths of string fields in a file template; `*` matches every item of a list.
const FILE_TEXTS: &[&[&str]] = &[
    &["path"],
    &["contents", "inline"],
    &["contents", "source"],
    &["contents", "compression"],
    &["contents", "verification", "hash"],
    &["append", "*", "inline"],
    &["append", "*", "source"],
    &["append", "*", "compression"],
    &["append", "*", "verification", "hash"],
    &["user", "name"],
    &["group", "name"],
];

/// Paths of string fields in a unit template.
const UNIT_TEXTS: &[&[&str]] = &[
    &["name"],
    &["contents"],
    &["dropins", "*", "name"],
    &["dropins", "*", "contents"],
];

/// The type of entry that a template describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateItemKind {
    File,
    Unit,
}

/// A file or unit, ready to be merged with others.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub config: Config,
    pub item: MergedItem,
    /// The plain contents of a file, before encoding.
    pub inline: Option<String>,
}

/// Parses the YAML of a rendered template.
pub(super) fn read(kind: TemplateItemKind, text: &str) -> Result<Piece, String> {
    let mut value = manifest::value(text)?;
    let texts = match kind {
        TemplateItemKind::File => FILE_TEXTS,
        TemplateItemKind::Unit => UNIT_TEXTS,
    };
    for place in texts {
        make_text(&mut value, place);
    }
    match kind {
        TemplateItemKind::File => file(&value),
        TemplateItemKind::Unit => unit(&value),
    }
}

/// Converts a boolean or number at this path to a string; see [`goyaml::text_of`].
fn make_text(value: &mut Value, place: &[&str]) {
    match (place, value) {
        ([], value) => {
            if let Some(text) = goyaml::text_of(value) {
                *value = Value::String(text);
            }
        }
        (["*", rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| make_text(item, rest)),
        ([key, rest @ ..], Value::Object(map)) => {
            if let Some(inner) = map.get_mut(*key) {
                make_text(inner, rest);
            }
        }
        _ => {}
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
        item: MergedItem::File(path.to_owned()),
        inline,
    })
}

/// Encodes plain-text contents as a data URL; contents with a source are kept.
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
        item: MergedItem::Unit(name.to_owned()),
        inline: None,
    })
}

fn config(sections: &Value) -> Result<Config, String> {
    let mut whole = sections.clone();
    whole["ignition"] = json!({"version": SpecVersion::NEWEST.as_str()});
    mco_ignition::parse(&whole)
        .map(|parsed| parsed.config)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(text: &str) -> Option<String> {
        read(TemplateItemKind::File, text).unwrap().inline
    }

    #[test]
    fn a_repeated_key_in_a_template_does_not_stop_the_render() {
        let piece = read(
            TemplateItemKind::File,
            "mode: 0644\npath: /etc/x\nmode: 0755\ncontents: {inline: a}\n",
        )
        .unwrap();
        let config = serde_json::to_value(&piece.config).unwrap();
        assert_eq!(config["storage"]["files"][0]["mode"], json!(493), "{config}");
    }

    #[test]
    fn a_block_that_ends_with_the_template_gets_no_line_feed() {
        let text = "path: /etc/x\nmode: 0644\ncontents:\n  inline: |\n    a\n    b";
        assert_eq!(inline(text).as_deref(), Some("a\nb"));
        assert_eq!(inline(&format!("{text}\n")).as_deref(), Some("a\nb\n"));
    }

    #[test]
    fn a_boolean_or_a_number_in_place_of_a_text_becomes_that_text() {
        for (written, expected) in [
            ("yes", "true"),
            ("0644", "420"),
            ("1.5", "1.5"),
            ("'0644'", "0644"),
        ] {
            let text = format!("path: /etc/x\nmode: 0644\ncontents: {{inline: {written}}}\n");
            assert_eq!(inline(&text).as_deref(), Some(expected));
        }
        let unit = read(
            TemplateItemKind::Unit,
            "name: a.service\nenabled: true\ncontents: 1\n",
        )
        .unwrap();
        let config = serde_json::to_value(&unit.config).unwrap();
        assert_eq!(config["systemd"]["units"][0]["contents"], json!("1"), "{config}");
    }
}
