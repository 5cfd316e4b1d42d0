//! Kubernetes quantities (`10G`, `512Mi`, `500m`): their value in whole units and their canonical text.
//!
//! Only what configuration files need: no arithmetic, and at most 128 bits of nano units.

use thiserror::Error;

/// A quantity with the semantics of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// In billionths, the smallest unit of Kubernetes.
    nanos: i128,
    format: QuantityFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuantityFormat {
    Binary,
    Decimal,
    Exponent,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a quantity; write a number with an optional suffix, as in 512Mi, 10G or 500m")]
pub struct QuantityError(String);

const NANO: i128 = 1_000_000_000;
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::read(text.trim()).ok_or_else(|| QuantityError(text.to_owned()))
    }

    fn read(text: &str) -> Option<Self> {
        let unsigned = text.trim_start_matches(['+', '-']);
        let sign = match text.len() - unsigned.len() {
            1 if text.starts_with('-') => -1,
            0 | 1 => 1,
            _ => return None,
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        let (multiplier, divisor, format) = scale(suffix)?;
        let numerator = digits.checked_mul(multiplier)?.checked_mul(NANO)?;
        let denominator = divisor.checked_mul(10_i128.checked_pow(places)?)?;
        // As in Kubernetes, finer fractions than a billionth are rounded up, away from zero.
        let nanos = numerator.checked_add(denominator - 1)? / denominator;
        Some(Self {
            nanos: sign * nanos,
            format,
        })
    }

    /// Returns the value in whole units, rounded up.
    pub fn value(self) -> i128 {
        self.nanos.div_euclid(NANO) + i128::from(self.nanos.rem_euclid(NANO) != 0)
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns the canonical text of the Kubernetes API: with the largest suffix that needs no fraction.
    pub fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.abs();
        let whole = nanos % NANO == 0;
        if self.format == QuantityFormat::Binary && whole && nanos / NANO >= 1024 {
            let value = nanos / NANO;
            let (suffix, value) = BINARY
                .iter()
                .rev()
                .find_map(|(suffix, power)| {
                    let unit = 1024_i128.pow(*power);
                    (value % unit == 0).then_some((*suffix, value / unit))
                })
                .unwrap_or(("", value));
            return format!("{sign}{value}{suffix}");
        }
        let largest = DECIMAL.iter().rev().find_map(|(suffix, power)| {
            let unit = 10_i128.pow(u32::try_from(power + 9).unwrap_or_default());
            (nanos % unit == 0).then_some((*suffix, *power, nanos / unit))
        });
        let (suffix, power, value) = largest.unwrap_or(("n", -9, nanos));
        if self.format == QuantityFormat::Exponent && power != 0 {
            return format!("{sign}{value}e{power}");
        }
        format!("{sign}{value}{suffix}")
    }
}

/// Returns the numerator and denominator of a suffix.
fn scale(suffix: &str) -> Option<(i128, i128, QuantityFormat)> {
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((1024_i128.pow(*power), 1, QuantityFormat::Binary));
    }
    let power = DECIMAL.iter().find(|(name, _)| *name == suffix).map(|(_, p)| *p);
    let (power, format) = match power {
        Some(power) => (power, QuantityFormat::Decimal),
        None => (exponent(suffix)?, QuantityFormat::Exponent),
    };
    let factor = 10_i128.checked_pow(power.unsigned_abs())?;
    Some(if power < 0 {
        (1, factor, format)
    } else {
        (factor, 1, format)
    })
}

fn exponent(suffix: &str) -> Option<i32> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    digits.strip_prefix('+').unwrap_or(digits).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_as_the_kubernetes_api_does() {
        for (text, value, canonical) in [
            ("0", 0, "0"),
            ("0k", 0, "0"),
            ("8192", 8192, "8192"),
            ("3k", 3000, "3k"),
            ("10G", 10_000_000_000, "10G"),
            ("8Gi", 8_589_934_592, "8Gi"),
            ("1024Mi", 1_073_741_824, "1Gi"),
            ("1.5Gi", 1_610_612_736, "1536Mi"),
            ("1000Ki", 1_024_000, "1000Ki"),
            ("500Mi", 524_288_000, "500Mi"),
            ("500m", 1, "500m"),
            ("0.5", 1, "500m"),
            ("1000m", 1, "1"),
            ("-10k", -10_000, "-10k"),
            ("1e3", 1000, "1e3"),
            ("12e6", 12_000_000, "12e6"),
            ("100n", 1, "100n"),
            ("0.1Ki", 103, "102400m"),
            ("512", 512, "512"),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(quantity.value(), value, "value of {text}");
            assert_eq!(quantity.canonical(), canonical, "canonical form of {text}");
        }
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in ["", "G", "1.2.3", "10 G", "0x10", "--1", "1Gib", "1e", "."] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
    }
}
