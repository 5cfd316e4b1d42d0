//! The kinds of fields of a record: how each is parsed and when it counts as absent.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::parse::ConfigReader;

/// A value of a record's field. `Default` is its absence.
pub(crate) trait RecordField: Default {
    /// Returns whether the value is omitted from JSON.
    fn is_absent(&self) -> bool;

    /// Parses the value at the reader's current path; a value of the wrong type is reported there and treated as
    /// absent.
    fn read(value: &Value, reader: &mut ConfigReader) -> Self;
}

/// A field that is itself an object of fields.
pub(crate) trait RecordObject: RecordField {}

/// An object whose presence is meaningful even when it is empty.
impl<T: RecordObject> RecordField for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        if value.is_null() {
            None
        } else {
            Some(T::read(value, reader))
        }
    }
}

impl RecordField for bool {
    fn is_absent(&self) -> bool {
        !self
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        Option::<bool>::read(value, reader).unwrap_or_default()
    }
}

impl RecordField for String {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        Option::<String>::read(value, reader).unwrap_or_default()
    }
}

impl RecordField for i64 {
    fn is_absent(&self) -> bool {
        *self == 0
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        Option::<i64>::read(value, reader).unwrap_or_default()
    }
}

impl RecordField for Option<String> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => reader.wrong_type("a string", "put the value in quotes", other),
        }
    }
}

impl RecordField for Option<bool> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        match value {
            Value::Null => None,
            Value::Bool(flag) => Some(*flag),
            other => reader.wrong_type("true or false", "write it without quotes", other),
        }
    }
}

impl RecordField for Option<i64> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        match value {
            Value::Null => None,
            Value::Number(number) if number.as_i64().is_some() => number.as_i64(),
            other => reader.wrong_type(
                "an integer",
                "write a decimal number without quotes (mode 0644 is 420)",
                other,
            ),
        }
    }
}

impl<T: RecordField> RecordField for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn read(value: &Value, reader: &mut ConfigReader) -> Self {
        let mut list = Vec::new();
        reader.list(value, |reader, element| list.push(T::read(element, reader)));
        list
    }
}

/// The version of the model itself. It holds no data: a model value is always spec 3.5, regardless of the version that
/// was parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecStamp;

impl RecordField for SpecStamp {
    fn is_absent(&self) -> bool {
        true
    }

    /// The version is examined before parsing begins, because it selects the rules.
    fn read(_: &Value, _: &mut ConfigReader) -> Self {
        Self
    }
}

impl Serialize for SpecStamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&crate::SpecVersion::NEWEST)
    }
}
