//! The order in which mapping keys are written: letters by code point, other characters before letters, and
//! runs of digits by their numeric value.

use std::cmp::Ordering;

pub(super) fn compare(a: &str, b: &str) -> Ordering {
    if a == b {
        Ordering::Equal
    } else if less(a, b) {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

fn less(a: &str, b: &str) -> bool {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            continue;
        }
        return match (a[i].is_alphabetic(), b[i].is_alphabetic()) {
            (true, true) => a[i] < b[i],
            (false, false) => less_by_number(&a, &b, i),
            (_, b_is_letter) => b_is_letter,
        };
    }
    a.len() < b.len()
}

/// Neither differing character at `i` is a letter: compare the digit runs that start there, if any.
fn less_by_number(a: &[char], b: &[char], i: usize) -> bool {
    let (mut a_number, mut b_number) = (0i64, 0i64);
    if a[i] == '0' || b[i] == '0' {
        // A zero that continues a number is a digit of it; only leading zeros are skipped.
        let mut j = i;
        while j > 0 && a[j - 1].is_ascii_digit() {
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
    while end < chars.len() && chars[end].is_ascii_digit() {
        let digit = i64::from(chars[end].to_digit(10).unwrap_or(0));
        *number = number.wrapping_mul(10).wrapping_add(digit);
        end += 1;
    }
    end
}
