//! Standard base64 as Ignition decodes it: padding is required, line breaks are skipped, trailing bits are ignored. An
//! error is the position at which Ignition stops as well.

/// Returns an error if the text cannot be decoded.
pub(super) fn check(text: &[u8]) -> Result<(), usize> {
    groups(text, |_| {})
}

pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut contents = Vec::with_capacity(text.len() / 4 * 3);
    groups(text, |bytes| contents.extend_from_slice(bytes))?;
    Ok(contents)
}

/// Passes the bytes of each group of four characters to `take`.
fn groups(text: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), usize> {
    let mut bits: u32 = 0;
    let mut digits = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if is_line_break(byte) {
            continue;
        }
        if byte == b'=' {
            return finish(text, at, bits, digits, take);
        }
        bits = bits << 6 | u32::from(value_of(byte).ok_or(at - 1)?);
        digits += 1;
        if digits == 4 {
            let [_, first, second, third] = bits.to_be_bytes();
            take(&[first, second, third]);
            (bits, digits) = (0, 0);
        }
    }
    if digits == 0 { Ok(()) } else { Err(at - digits) }
}

/// Completes a group whose first padding character ends at `at`.
fn finish(
    text: &[u8],
    mut at: usize,
    bits: u32,
    digits: usize,
    mut take: impl FnMut(&[u8]),
) -> Result<(), usize> {
    match digits {
        2 => {
            let before = at;
            at = skip_line_breaks(text, at);
            match text.get(at) {
                None => return Err(text.len()),
                Some(b'=') => at += 1,
                Some(_) => return Err(before.max(at) - 1),
            }
            let [_, _, first, _] = (bits << 4).to_be_bytes();
            take(&[first]);
        }
        3 => {
            let [_, first, second, _] = (bits << 6).to_be_bytes();
            take(&[first, second]);
        }
        _ => return Err(at - 1),
    }
    let end = skip_line_breaks(text, at);
    if end < text.len() { Err(end) } else { Ok(()) }
}

fn skip_line_breaks(text: &[u8], at: usize) -> usize {
    text[at..]
        .iter()
        .position(|byte| !is_line_break(*byte))
        .map_or(text.len(), |skipped| at + skipped)
}

fn is_line_break(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

fn value_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
