//! A JSON decoder that tracks the path of each value.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::DecodedBody;
use crate::go_text;
use crate::schema::{MemberSchema, Schema, SchemaNode};

/// Further errors are not collected, to bound memory; Kubernetes stops at the same number.
const MAX_OBJECTIONS: usize = 100;

pub(super) fn decode(body: &[u8], schema: Option<&Schema>) -> Result<DecodedBody, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut reader = StrictReader {
        schema,
        path: String::new(),
        strict_errors: Vec::new(),
    };
    let place = schema.map_or(NextSchema::Unchecked, |schema| NextSchema::Node(schema.root()));
    let value = ValueSeed {
        reader: &mut reader,
        place,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(DecodedBody {
        value,
        strict_errors: reader.strict_errors,
    })
}

struct StrictReader<'s> {
    schema: Option<&'s Schema>,
    path: String,
    strict_errors: Vec<String>,
}

/// The schema of the value that comes next.
#[derive(Clone, Copy)]
enum NextSchema<'s> {
    Node(&'s SchemaNode),
    Unchecked,
}

impl<'s> StrictReader<'s> {
    fn object(&mut self, problem: &str, key: &str) {
        if self.strict_errors.len() >= MAX_OBJECTIONS {
            return;
        }
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        let text = format!("{problem} {}", go_text::quote(&path));
        if !self.strict_errors.contains(&text) {
            self.strict_errors.push(text);
        }
    }

    fn member(&mut self, place: NextSchema<'s>, key: &str) -> NextSchema<'s> {
        let (NextSchema::Node(node), Some(schema)) = (place, self.schema) else {
            return NextSchema::Unchecked;
        };
        if node.preserve_unknown && node.property(key).is_none() {
            return NextSchema::Unchecked;
        }
        match schema.member(node, key) {
            MemberSchema::Known(node) => NextSchema::Node(node),
            MemberSchema::Schemaless => NextSchema::Unchecked,
            MemberSchema::Unknown => {
                self.object("unknown field", key);
                NextSchema::Unchecked
            }
        }
    }

    fn items(&self, place: NextSchema<'s>) -> NextSchema<'s> {
        let (NextSchema::Node(node), Some(schema)) = (place, self.schema) else {
            return NextSchema::Unchecked;
        };
        schema.items(node).map_or(NextSchema::Unchecked, NextSchema::Node)
    }
}

struct ValueSeed<'r, 's> {
    reader: &'r mut StrictReader<'s>,
    place: NextSchema<'s>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(go_integer(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        go_float(value).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { reader, place } = self;
        let items = reader.items(place);
        let length = reader.path.len();
        let mut values = Vec::new();
        loop {
            // Writing to a String cannot fail.
            let _ = write!(reader.path, "[{}]", values.len());
            let next = access.next_element_seed(ValueSeed {
                reader: &mut *reader,
                place: items,
            });
            reader.path.truncate(length);
            match next? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { reader, place } = self;
        let length = reader.path.len();
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let member = reader.member(place, &key);
            if fields.contains_key(&key) {
                reader.object("duplicate field", &key);
            }
            if length > 0 {
                reader.path.push('.');
            }
            reader.path.push_str(&key);
            let value = access.next_value_seed(ValueSeed {
                reader: &mut *reader,
                place: member,
            });
            reader.path.truncate(length);
            fields.insert(key, value?);
        }
        Ok(Value::Object(fields))
    }
}

/// Integers past 63 bits become floats, as they do in Kubernetes.
fn go_integer(value: u64) -> Value {
    #[expect(
        clippy::cast_precision_loss,
        reason = "that is what Kubernetes does with them"
    )]
    i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from)
}

/// Floats without a fraction are written without one, and read back as integers.
fn go_float(value: f64) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "the value is a small integer")]
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}
