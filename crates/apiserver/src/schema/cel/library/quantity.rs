//! Resource quantities, exact to a billionth.

use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, opaque, sign};

/// A quantity in billionths, which is the precision of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CelQuantity(i128);
opaque!(CelQuantity, "kubernetes.Quantity");

const ONE: i128 = 1_000_000_000;
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    cel::add_overload!(env, fn quantity: (CelString) -> Result<CelQuantity>)?;
    cel::add_member_overload!(env, fn quantity_sign: (CelQuantity) -> CelInt, name = "sign")?;
    cel::add_member_overload!(env, fn is_integer: (CelQuantity) -> CelBool)?;
    cel::add_member_overload!(env, fn as_integer: (CelQuantity) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn as_approximate_float: (CelQuantity) -> CelDouble)?;
    cel::add_member_overload!(env, fn is_greater_than: (CelQuantity, CelQuantity) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (CelQuantity, CelQuantity) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (CelQuantity, CelQuantity) -> CelInt)?;
    cel::add_member_overload!(env, fn add: (CelQuantity, CelQuantity) -> Result<CelQuantity>)?;
    cel::add_member_overload!(env, fn add_int: (CelQuantity, CelInt) -> Result<CelQuantity>, name = "add")?;
    cel::add_member_overload!(env, fn sub: (CelQuantity, CelQuantity) -> Result<CelQuantity>)?;
    cel::add_member_overload!(env, fn sub_int: (CelQuantity, CelInt) -> Result<CelQuantity>, name = "sub")?;
    Ok(())
}

fn parse(text: &str) -> Option<CelQuantity> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let (binary, exponent) = scale(suffix)?;
    let scaled = mantissa.checked_mul(ONE)?.checked_mul(binary)?;
    let units = shift(scaled, exponent.checked_sub(decimals)?)?;
    Some(CelQuantity(if negative { -units } else { units }))
}

/// A suffix as a factor and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Multiplies by a power of ten, rounding away from zero.
fn shift(value: i128, exponent: i32) -> Option<i128> {
    let factor = 10_i128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return value.checked_mul(factor?);
    }
    let Some(factor) = factor else {
        return Some(i128::from(value != 0));
    };
    Some(value / factor + i128::from(value % factor != 0))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text.inner()).is_some())
}

fn quantity(text: &CelString<'_>) -> Result<CelQuantity, ExecutionError> {
    parse(text.inner()).ok_or_else(|| failed("quantity", MALFORMED))
}

fn quantity_sign(this: &CelQuantity) -> CelInt {
    sign(this.0.cmp(&0))
}

fn integer(this: CelQuantity) -> Option<i64> {
    (this.0 % ONE == 0)
        .then(|| i64::try_from(this.0 / ONE).ok())
        .flatten()
}

fn is_integer(this: &CelQuantity) -> CelBool {
    CelBool::from(integer(*this).is_some())
}

fn as_integer(this: &CelQuantity) -> Result<CelInt, ExecutionError> {
    let converted = integer(*this).map(CelInt::from);
    converted.ok_or_else(|| failed("asInteger", "cannot convert value to integer"))
}

fn as_approximate_float(this: &CelQuantity) -> CelDouble {
    #[expect(clippy::cast_precision_loss, reason = "the name says it is approximate")]
    CelDouble::from(this.0 as f64 / ONE as f64)
}

fn is_greater_than(this: &CelQuantity, other: &CelQuantity) -> CelBool {
    CelBool::from(this > other)
}

fn is_less_than(this: &CelQuantity, other: &CelQuantity) -> CelBool {
    CelBool::from(this < other)
}

fn compare_to(this: &CelQuantity, other: &CelQuantity) -> CelInt {
    sign(this.cmp(other))
}

fn add(this: &CelQuantity, other: &CelQuantity) -> Result<CelQuantity, ExecutionError> {
    this.0
        .checked_add(other.0)
        .map(CelQuantity)
        .ok_or_else(|| failed("add", "integer overflow"))
}

fn add_int(this: &CelQuantity, other: &CelInt) -> Result<CelQuantity, ExecutionError> {
    add(this, &CelQuantity(i128::from(*other.inner()) * ONE))
}

fn sub(this: &CelQuantity, other: &CelQuantity) -> Result<CelQuantity, ExecutionError> {
    this.0
        .checked_sub(other.0)
        .map(CelQuantity)
        .ok_or_else(|| failed("sub", "integer overflow"))
}

fn sub_int(this: &CelQuantity, other: &CelInt) -> Result<CelQuantity, ExecutionError> {
    sub(this, &CelQuantity(i128::from(*other.inner()) * ONE))
}
