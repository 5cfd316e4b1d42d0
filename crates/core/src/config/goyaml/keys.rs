//! The order of mapping keys: letters by code point, other characters before letters, and runs of digits by their
//! numeric value. It is not transitive, so only [`super::sorting`] may sort by it.

use std::sync::LazyLock;

use regex::Regex;

/// Whether key `a` is written before key `b`.
pub(super) fn less(a: &str, b: &str) -> bool {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            continue;
        }
        return match (is_letter(a[i]), is_letter(b[i])) {
            (true, true) => a[i] < b[i],
            (false, false) => less_by_number(&a, &b, i),
            (_, b_is_letter) => b_is_letter,
        };
    }
    a.len() < b.len()
}

/// Compares the digit runs that start at `i`, if any, when neither differing character is a letter.
fn less_by_number(a: &[char], b: &[char], i: usize) -> bool {
    let (mut a_number, mut b_number) = (0i64, 0i64);
    if a[i] == '0' || b[i] == '0' {
        // A zero that continues a number is one of its digits; only leading zeros are skipped.
        let mut j = i;
        while j > 0 && is_digit(a[j - 1]) {
            if a[j - 1] != '0' {
                a_number = 1;
                b_number = 1;
                break;
            }
            j -= 1;
        }
    }
    let a_end = accumulate(a, i, &mut a_number);
    let b_end = accumulate(b, i, &mut b_number);
    if a_number != b_number {
        return a_number < b_number;
    }
    if a_end != b_end {
        return a_end < b_end;
    }
    a[i] < b[i]
}

fn accumulate(chars: &[char], from: usize, number: &mut i64) -> usize {
    let mut end = from;
    while end < chars.len() && is_digit(chars[end]) {
        // Go computes the value of a digit of another script by its distance from '0'.
        let digit = i64::from(u32::from(chars[end])) - i64::from(u32::from('0'));
        *number = number.wrapping_mul(10).wrapping_add(digit);
        end += 1;
    }
    end
}

/// Whether the character is of Unicode category L, a subset of Rust's alphabetic.
fn is_letter(c: char) -> bool {
    static LETTER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{L}$").ok());
    is_class(c, c.is_ascii_alphabetic(), LETTER.as_ref())
}

/// Whether the character is of Unicode category Nd.
fn is_digit(c: char) -> bool {
    static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{Nd}$").ok());
    is_class(c, c.is_ascii_digit(), DIGIT.as_ref())
}

fn is_class(c: char, in_ascii: bool, class: Option<&Regex>) -> bool {
    if c.is_ascii() {
        return in_ascii;
    }
    class.is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}
