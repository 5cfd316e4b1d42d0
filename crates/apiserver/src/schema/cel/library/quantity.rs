//! Resource quantities, exact to a billionth.

use super::{failed, opaque, sign};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

/// A quantity in billionths, which is the precision of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);
opaque!(Quantity, "kubernetes.Quantity");

const ONE: i128 = 1_000_000_000;
const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    cel::add_overload!(env, fn quantity: (CelString) -> Result<Quantity>)?;
    cel::add_member_overload!(env, fn quantity_sign: (Quantity) -> CelInt, name = "sign")?;
    cel::add_member_overload!(env, fn is_integer: (Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn as_integer: (Quantity) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn as_approximate_float: (Quantity) -> CelDouble)?;
    cel::add_member_overload!(env, fn is_greater_than: (Quantity, Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (Quantity, Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (Quantity, Quantity) -> CelInt)?;
    cel::add_member_overload!(env, fn add: (Quantity, Quantity) -> Result<Quantity>)?;
    cel::add_member_overload!(env, fn add_int: (Quantity, CelInt) -> Result<Quantity>, name = "add")?;
    cel::add_member_overload!(env, fn sub: (Quantity, Quantity) -> Result<Quantity>)?;
    cel::add_member_overload!(env, fn sub_int: (Quantity, CelInt) -> Result<Quantity>, name = "sub")?;
    Ok(())
}

fn parse(text: &str) -> Option<Quantity> {
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
    Some(Quantity(if negative { -units } else { units }))
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

fn quantity(text: &CelString<'_>) -> Result<Quantity, ExecutionError> {
    parse(text.inner()).ok_or_else(|| failed("quantity", MALFORMED))
}

fn quantity_sign(this: &Quantity) -> CelInt {
    sign(this.0.cmp(&0))
}

fn integer(this: Quantity) -> Option<i64> {
    (this.0 % ONE == 0)
        .then(|| i64::try_from(this.0 / ONE).ok())
        .flatten()
}

fn is_integer(this: &Quantity) -> CelBool {
    CelBool::from(integer(*this).is_some())
}

fn as_integer(this: &Quantity) -> Result<CelInt, ExecutionError> {
    let converted = integer(*this).map(CelInt::from);
    converted.ok_or_else(|| failed("asInteger", "cannot convert value to integer"))
}

fn as_approximate_float(this: &Quantity) -> CelDouble {
    #[expect(clippy::cast_precision_loss, reason = "the name says it is approximate")]
    CelDouble::from(this.0 as f64 / ONE as f64)
}

fn is_greater_than(this: &Quantity, other: &Quantity) -> CelBool {
    CelBool::from(this > other)
}

fn is_less_than(this: &Quantity, other: &Quantity) -> CelBool {
    CelBool::from(this < other)
}

fn compare_to(this: &Quantity, other: &Quantity) -> CelInt {
    sign(this.cmp(other))
}

fn add(this: &Quantity, other: &Quantity) -> Result<Quantity, ExecutionError> {
    this.0
        .checked_add(other.0)
        .map(Quantity)
        .ok_or_else(|| failed("add", "integer overflow"))
}

fn add_int(this: &Quantity, other: &CelInt) -> Result<Quantity, ExecutionError> {
    add(this, &Quantity(i128::from(*other.inner()) * ONE))
}

fn sub(this: &Quantity, other: &Quantity) -> Result<Quantity, ExecutionError> {
    this.0
        .checked_sub(other.0)
        .map(Quantity)
        .ok_or_else(|| failed("sub", "integer overflow"))
}

fn sub_int(this: &Quantity, other: &CelInt) -> Result<Quantity, ExecutionError> {
    sub(this, &Quantity(i128::from(*other.inner()) * ONE))
}
