//! Semantic versions.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, opaque, sign};

/// A version, without its build metadata, which does not order versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Semver {
    numbers: [u64; 3],
    /// The parts of a pre-release; a release has none.
    pre_release: Vec<String>,
}
opaque!(Semver, "kubernetes.Semver");

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    cel::add_overload!(env, fn is_semver_lenient: (CelString, CelBool) -> CelBool, name = "isSemver")?;
    cel::add_overload!(env, fn semver: (CelString) -> Result<Semver>)?;
    cel::add_overload!(env, fn semver_lenient: (CelString, CelBool) -> Result<Semver>, name = "semver")?;
    cel::add_member_overload!(env, fn major: (Semver) -> CelInt)?;
    cel::add_member_overload!(env, fn minor: (Semver) -> CelInt)?;
    cel::add_member_overload!(env, fn patch: (Semver) -> CelInt)?;
    cel::add_member_overload!(env, fn is_greater_than: (Semver, Semver) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (Semver, Semver) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (Semver, Semver) -> CelInt)?;
    Ok(())
}

fn parse(text: &str) -> Result<Semver, String> {
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    if let Some(build) = build
        && !build.split('.').all(is_identifier)
    {
        return Err(format!("Invalid character(s) found in build meta data {build:?}"));
    }
    let (core, pre_release) = rest
        .split_once('-')
        .map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let parts: Vec<&str> = core.split('.').collect();
    let [major, minor, patch] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let numbers = [
        number(major, "major")?,
        number(minor, "minor")?,
        number(patch, "patch")?,
    ];
    let pre_release: Vec<String> = pre_release
        .map(|pre| pre.split('.').map(str::to_owned).collect())
        .unwrap_or_default();
    let badly_numbered = |part: &str| part.len() > 1 && part.starts_with('0') && is_number(part);
    if pre_release
        .iter()
        .any(|part| !is_identifier(part) || badly_numbered(part))
    {
        return Err("Invalid character(s) found in prerelease".to_owned());
    }
    Ok(Semver { numbers, pre_release })
}

/// Accepts a leading `v`, missing parts and leading zeros.
fn parse_lenient(text: &str) -> Result<Semver, String> {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(end);
    let mut parts: Vec<String> = core
        .split('.')
        .map(|part| {
            let trimmed = part.trim_start_matches('0');
            if trimmed.is_empty() && !part.is_empty() {
                "0".to_owned()
            } else {
                trimmed.to_owned()
            }
        })
        .collect();
    while parts.len() < 3 {
        parts.push("0".to_owned());
    }
    parse(&format!("{}{rest}", parts.join(".")))
}

fn number(text: &str, name: &str) -> Result<u64, String> {
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    text.parse()
        .map_err(|_| format!("{name} number {text:?} is too large"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl Semver {
    fn compare(&self, other: &Self) -> Ordering {
        let by_release = || match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_parts(&self.pre_release, &other.pre_release),
        };
        self.numbers.cmp(&other.numbers).then_with(by_release)
    }
}

fn compare_parts(left: &[String], right: &[String]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        let ordering = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => left.cmp(right),
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    left.len().cmp(&right.len())
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text.inner()).is_ok())
}

fn is_semver_lenient(text: &CelString<'_>, lenient: &CelBool) -> CelBool {
    CelBool::from(semver_lenient(text, lenient).is_ok())
}

fn semver(text: &CelString<'_>) -> Result<Semver, ExecutionError> {
    parse(text.inner()).map_err(|error| failed("semver", error))
}

fn semver_lenient(text: &CelString<'_>, lenient: &CelBool) -> Result<Semver, ExecutionError> {
    let parsed = if *lenient.inner() {
        parse_lenient(text.inner())
    } else {
        parse(text.inner())
    };
    parsed.map_err(|error| failed("semver", error))
}

fn part(this: &Semver, at: usize) -> CelInt {
    CelInt::from(i64::try_from(this.numbers[at]).unwrap_or(i64::MAX))
}

fn major(this: &Semver) -> CelInt {
    part(this, 0)
}

fn minor(this: &Semver) -> CelInt {
    part(this, 1)
}

fn patch(this: &Semver) -> CelInt {
    part(this, 2)
}

fn is_greater_than(this: &Semver, other: &Semver) -> CelBool {
    CelBool::from(this.compare(other) == Ordering::Greater)
}

fn is_less_than(this: &Semver, other: &Semver) -> CelBool {
    CelBool::from(this.compare(other) == Ordering::Less)
}

fn compare_to(this: &Semver, other: &Semver) -> CelInt {
    sign(this.compare(other))
}
