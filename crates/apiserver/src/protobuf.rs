//! Request bodies in Kubernetes' protobuf encoding, turned into JSON.
//!
//! Current kubectl writes built-in objects this way (`create`, `drain`, `auth can-i`) without a fallback. Only decoding
//! is needed, because every client accepts JSON responses. The field numbers come from [`crate::go_types`].

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::go_types::{GoShape, MESSAGES, is_zero, message_name};

/// The first bytes of every body in this encoding.
const MAGIC: &[u8] = b"k8s\0";
/// No built-in type nests deeper than a few dozen levels.
const DEEPEST: usize = 100;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtobufError {
    #[error("the body is not Kubernetes protobuf")]
    NotKubernetes,
    #[error("the body ends in the middle of a value")]
    Truncated,
    #[error("kind {kind:?} of {api_version:?} is not supported in protobuf")]
    UnknownKind { api_version: String, kind: String },
    #[error("field {number} of {message} has the wrong wire type")]
    WrongType { message: String, number: u32 },
    #[error("a string is not UTF-8")]
    NotText,
    #[error("the body is nested too deeply")]
    TooDeep,
}

/// Decodes a body: an envelope with the type, and the object in it.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NotKubernetes)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in WireFields(envelope) {
        match field? {
            (1, WireValue::Bytes(bytes)) => {
                for field in WireFields(bytes) {
                    match field? {
                        (1, WireValue::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, WireValue::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, WireValue::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = message_name(&api_version, &kind);
    let Some((name, _)) = MESSAGES.get_key_value(name.as_str()) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = message(raw, name, 0)?;
    object.insert("apiVersion".to_owned(), Value::from(api_version));
    object.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(object))
}

fn message(bytes: &[u8], name: &'static str, depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    let mut object = Map::new();
    let Some(description) = MESSAGES.get(name) else {
        return Ok(object);
    };
    for read in WireFields(bytes) {
        let (number, wire) = read?;
        // A field missing in the table comes from a newer client and is dropped, as protobuf prescribes.
        let Some(field) = description.fields.get(&number) else {
            continue;
        };
        let wrong = || ProtobufError::WrongType {
            message: name.to_owned(),
            number,
        };
        match field.shape {
            GoShape::Inline => {
                let WireValue::Bytes(bytes) = wire else {
                    return Err(wrong());
                };
                object.extend(message(bytes, field.of, depth + 1)?);
            }
            GoShape::One => {
                let value = value(wire, field.of, depth)?.ok_or_else(wrong)?;
                if !(value.is_null()
                    || field.presence == crate::go_types::FieldPresence::WhenNotZero && is_zero(&value))
                {
                    object.insert(field.name.to_owned(), value);
                }
            }
            GoShape::List => {
                let value = value(wire, field.of, depth)?.ok_or_else(wrong)?;
                let list = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = list {
                    items.push(value);
                }
            }
            GoShape::Map => {
                let WireValue::Bytes(entry) = wire else {
                    return Err(wrong());
                };
                let (key, value) = map_entry(entry, field.of, depth)?;
                let map = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn map_entry(bytes: &[u8], of: &'static str, depth: usize) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut found) = (String::new(), None);
    for field in WireFields(bytes) {
        match field? {
            (1, WireValue::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => found = value(wire, of, depth)?,
            _ => {}
        }
    }
    let absent = if of == "string" || of == "bytes" {
        Value::from("")
    } else {
        Value::Null
    };
    Ok((key, found.unwrap_or(absent)))
}

/// `None` when the wire type does not fit.
fn value(wire: WireValue<'_>, of: &'static str, depth: usize) -> Result<Option<Value>, ProtobufError> {
    Ok(match (of, wire) {
        ("string", WireValue::Bytes(bytes)) => Some(Value::from(text(bytes)?)),
        ("bytes", WireValue::Bytes(bytes)) => Some(Value::from(
            base64::engine::general_purpose::STANDARD.encode(bytes),
        )),
        ("bool", WireValue::Varint(number)) => Some(Value::from(number != 0)),
        // Negative numbers of either width are sign-extended to 64 bits on the wire.
        ("int32" | "int64", WireValue::Varint(number)) => Some(Value::from(number.cast_signed())),
        ("meta.v1.Time", WireValue::Bytes(bytes)) => Some(time(bytes, Precision::Seconds)?),
        ("meta.v1.MicroTime", WireValue::Bytes(bytes)) => Some(time(bytes, Precision::Micros)?),
        ("resource.Quantity", WireValue::Bytes(bytes)) => Some(first_text(bytes)?),
        ("intstr.IntOrString", WireValue::Bytes(bytes)) => Some(int_or_string(bytes)?),
        ("runtime.RawExtension" | "meta.v1.FieldsV1", WireValue::Bytes(bytes)) => Some(raw_json(bytes)?),
        (
            "authentication.v1.ExtraValue"
            | "authentication.v1.AttestationValue"
            | "authorization.v1.ExtraValue",
            WireValue::Bytes(bytes),
        ) => Some(texts(bytes)?),
        (_, WireValue::Bytes(bytes)) if MESSAGES.contains_key(of) => {
            Some(Value::Object(message(bytes, of, depth + 1)?))
        }
        _ => None,
    })
}

#[derive(Clone, Copy)]
enum Precision {
    Seconds,
    Micros,
}

/// An empty message is the zero time, which JSON writes as null.
fn time(bytes: &[u8], precision: Precision) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (None, 0);
    for field in WireFields(bytes) {
        match field? {
            (1, WireValue::Varint(number)) => seconds = Some(number.cast_signed()),
            (2, WireValue::Varint(number)) => nanos = i32::try_from(number.cast_signed()).unwrap_or(0),
            _ => {}
        }
    }
    let Some(time) = seconds.and_then(|seconds| Timestamp::new(seconds, nanos).ok()) else {
        return Ok(Value::Null);
    };
    let format = match precision {
        Precision::Seconds => "%Y-%m-%dT%H:%M:%SZ",
        Precision::Micros => "%Y-%m-%dT%H:%M:%S.%6fZ",
    };
    Ok(Value::from(time.strftime(format).to_string()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut string) = (false, 0, String::new());
    for field in WireFields(bytes) {
        match field? {
            (1, WireValue::Varint(kind)) => is_text = kind == 1,
            (2, WireValue::Varint(value)) => number = value.cast_signed(),
            (3, WireValue::Bytes(bytes)) => string = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text {
        Value::from(string)
    } else {
        Value::from(number)
    })
}

fn first_text(bytes: &[u8]) -> Result<Value, ProtobufError> {
    for field in WireFields(bytes) {
        if let (1, WireValue::Bytes(bytes)) = field? {
            return Ok(Value::from(text(bytes)?));
        }
    }
    Ok(Value::Null)
}

fn texts(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut found = Vec::new();
    for field in WireFields(bytes) {
        if let (1, WireValue::Bytes(bytes)) = field? {
            found.push(text(bytes)?);
        }
    }
    Ok(Value::from(found))
}

fn raw_json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    for field in WireFields(bytes) {
        if let (1, WireValue::Bytes(bytes)) = field? {
            return Ok(serde_json::from_slice(bytes).unwrap_or(Value::Null));
        }
    }
    Ok(Value::Null)
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::NotText)
}

/// A value on the wire.
#[derive(Clone, Copy, Debug)]
enum WireValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width numbers, which no served type uses.
    Fixed,
}

/// The fields of a message, in order.
struct WireFields<'a>(&'a [u8]);

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u32, WireValue<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(ProtobufError::Truncated))
    }
}

impl<'a> WireFields<'a> {
    fn read(&mut self) -> Option<(u32, WireValue<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                WireValue::Bytes(bytes)
            }
            5 => self.skip(4)?,
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, wire))
    }

    fn skip(&mut self, length: usize) -> Option<WireValue<'a>> {
        self.0 = self.0.split_at_checked(length)?.1;
        Some(WireValue::Fixed)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Writes one length-delimited field.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &types), field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_keeps_its_data_and_loses_its_zeros() {
        let metadata = [field(1, b"a"), field(2, b""), field(3, b"default"), field(8, &[])].concat();
        let raw = [
            field(1, &metadata),
            field(2, &[field(1, b"k"), field(2, b"v")].concat()),
        ]
        .concat();
        assert_eq!(
            decode(&envelope("v1", "ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                "metadata": {"name": "a", "namespace": "default"}})
        );
    }

    #[test]
    fn an_eviction_carries_its_delete_options() {
        let options = vec![1 << 3, 30];
        let raw = [field(1, &field(1, b"p")), field(2, &options)].concat();
        assert_eq!(
            decode(&envelope("policy/v1", "Eviction", &raw)).unwrap()["deleteOptions"],
            json!({"gracePeriodSeconds": 30})
        );
    }

    #[test]
    fn damaged_bodies_are_refused() {
        assert_eq!(decode(b"{}"), Err(ProtobufError::NotKubernetes));
        let whole = envelope("v1", "ConfigMap", &field(1, &field(1, b"a")));
        assert_eq!(decode(&whole[..whole.len() - 1]), Err(ProtobufError::Truncated));
        assert!(matches!(
            decode(&envelope("example.org/v1", "Thing", &[])),
            Err(ProtobufError::UnknownKind { .. })
        ));
    }

    #[test]
    fn every_type_in_the_table_is_described_or_understood() {
        let understood = [
            "string",
            "bytes",
            "bool",
            "int32",
            "int64",
            "meta.v1.Time",
            "meta.v1.MicroTime",
            "resource.Quantity",
            "intstr.IntOrString",
            "runtime.RawExtension",
            "meta.v1.FieldsV1",
            "authentication.v1.ExtraValue",
            "authentication.v1.AttestationValue",
            "authorization.v1.ExtraValue",
        ];
        // Definitions of custom resources are never written in protobuf; the table has them for their zero values.
        let written = |name: &str| !name.starts_with("apiextensions.");
        for (name, message) in MESSAGES.iter().filter(|(name, _)| written(name)) {
            for field in message.fields.values() {
                assert!(
                    MESSAGES.contains_key(field.of) || understood.contains(&field.of),
                    "{name}.{}: {}",
                    field.name,
                    field.of
                );
            }
        }
    }
}
