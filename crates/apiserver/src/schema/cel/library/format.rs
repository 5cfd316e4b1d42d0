//! Named formats: `format.dns1123Label().validate(text)` returns none for a valid text, otherwise the errors.

use cel::common::types::{CelList, CelOptional, CelString};
use cel::{DeclarationError, Env};

use super::{opaque, texts};
use crate::names;
use crate::schema::formats;

/// A format, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CelFormat(&'static str);
opaque!(CelFormat, "kubernetes.NamedFormat");

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn dns1123_label: () -> CelFormat, name = "format.dns1123Label")?;
    cel::add_overload!(env, fn dns1123_subdomain: () -> CelFormat, name = "format.dns1123Subdomain")?;
    cel::add_overload!(env, fn dns1035_label: () -> CelFormat, name = "format.dns1035Label")?;
    cel::add_overload!(env, fn dns1123_label_prefix: () -> CelFormat, name = "format.dns1123LabelPrefix")?;
    cel::add_overload!(env, fn dns1123_subdomain_prefix: () -> CelFormat, name = "format.dns1123SubdomainPrefix")?;
    cel::add_overload!(env, fn dns1035_label_prefix: () -> CelFormat, name = "format.dns1035LabelPrefix")?;
    cel::add_overload!(env, fn qualified_name: () -> CelFormat, name = "format.qualifiedName")?;
    cel::add_overload!(env, fn label_value: () -> CelFormat, name = "format.labelValue")?;
    cel::add_overload!(env, fn uri: () -> CelFormat, name = "format.uri")?;
    cel::add_overload!(env, fn uuid: () -> CelFormat, name = "format.uuid")?;
    cel::add_overload!(env, fn byte: () -> CelFormat, name = "format.byte")?;
    cel::add_overload!(env, fn date: () -> CelFormat, name = "format.date")?;
    cel::add_overload!(env, fn datetime: () -> CelFormat, name = "format.datetime")?;
    cel::add_overload!(env, fn named: (CelString) -> CelOptional, name = "format.named")?;
    cel::add_member_overload!(env, fn validate: (CelFormat, CelString) -> CelOptional)?;
    Ok(())
}

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "qualifiedName",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

macro_rules! formats {
    ($($function:ident => $name:literal),* $(,)?) => {
        $(fn $function() -> CelFormat {
            CelFormat($name)
        })*
    };
}

formats! {
    dns1123_label => "dns1123Label",
    dns1123_subdomain => "dns1123Subdomain",
    dns1035_label => "dns1035Label",
    dns1123_label_prefix => "dns1123LabelPrefix",
    dns1123_subdomain_prefix => "dns1123SubdomainPrefix",
    dns1035_label_prefix => "dns1035LabelPrefix",
    qualified_name => "qualifiedName",
    label_value => "labelValue",
    uri => "uri",
    uuid => "uuid",
    byte => "byte",
    date => "date",
    datetime => "datetime",
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    let found = NAMES.into_iter().find(|known| *known == name.inner());
    found.map_or_else(CelOptional::none, |known| {
        CelOptional::of(Box::new(CelFormat(known)))
    })
}

fn validate(this: &CelFormat, text: &CelString<'_>) -> CelOptional<'static> {
    let text = text.inner();
    // A prefix may end in a dash, because a suffix follows.
    let completed = text
        .strip_suffix('-')
        .map_or_else(|| text.to_owned(), |stem| format!("{stem}a"));
    let problems = match this.0 {
        "dns1123Label" => names::dns1123_label(text),
        "dns1123Subdomain" => names::dns1123_subdomain(text),
        "dns1035Label" => names::dns1035_label(text),
        "dns1123LabelPrefix" => names::dns1123_label(&completed),
        "dns1123SubdomainPrefix" => names::dns1123_subdomain(&completed),
        "dns1035LabelPrefix" => names::dns1035_label(&completed),
        "qualifiedName" => names::label_key(text),
        "labelValue" => names::label_value(text),
        "uri" => problem("uri", text, "invalid URI for request"),
        "uuid" => problem("uuid", text, "does not match the UUID format"),
        "byte" => problem("byte", text, "invalid base64"),
        "date" => problem("date", text, "invalid date"),
        _ => problem("date-time", text, "invalid datetime"),
    };
    if problems.is_empty() {
        return CelOptional::none();
    }
    let problems: CelList<'static> = texts(problems);
    CelOptional::of(Box::new(problems))
}

fn problem(format: &str, text: &str, message: &str) -> Vec<String> {
    if formats::satisfies(format, text) {
        Vec::new()
    } else {
        vec![message.to_owned()]
    }
}
