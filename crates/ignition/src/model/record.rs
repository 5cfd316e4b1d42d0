//! One table per object: these macros turn a list of fields into the struct, its canonical JSON form, its parser and
//! its merge, so that the four can never disagree. They are independent of the meaning of a field.

/// Declares an Ignition object.
///
/// Each line reads `"jsonName" rust_name: Type [flags]`, where the flags are
/// - `required`: written even when empty (all other fields vanish from the JSON when they hold nothing);
/// - `since(V3_2)`: unknown to older spec versions, which ignore it with a warning;
/// - `plain_before(V3_3)`: could not be absent in older spec versions, which read its absence as the empty string;
macro_rules! object {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$field_doc:meta])* $json:literal $field:ident : $ty:ty $([ $($flag:tt)* ])? ; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $ty, )*
        }

        impl $crate::model::RecordField for $name {
            fn is_absent(&self) -> bool {
                true $( && $crate::model::RecordField::is_absent(&self.$field) )*
            }

            fn read(value: &serde_json::Value, reader: &mut $crate::parse::ConfigReader) -> Self {
                const KEYS: &[$crate::parse::ReaderKey] = &[
                    $( $crate::parse::ReaderKey { name: $json, since: $crate::model::record::since!($($($flag)*)?) }, )*
                ];
                let mut record = Self::default();
                reader.object(value, KEYS, |reader, name, value| match name {
                    $( $json => record.$field = $crate::model::RecordField::read(value, reader), )*
                    _ => {}
                });
                $( $crate::model::record::fill!(record.$field, value, reader; $($($flag)*)?); )*
                record
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(
                    if $crate::model::record::required!($($($flag)*)?)
                        || !$crate::model::RecordField::is_absent(&self.$field)
                    {
                        map.serialize_entry($json, &self.$field)?;
                    }
                )*
                map.end()
            }
        }

        impl $crate::model::RecordObject for $name {}
    };
}

/// Declares an Ignition object that can be merged. In addition to those of `object!`, its flags may name
/// - a merge strategy of [`crate::merge::strategy`], for lists: `ByKey`, `Set`, `Append`, ...
macro_rules! record {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$field_doc:meta])* $json:literal $field:ident : $ty:ty $([ $($flag:tt)* ])? ; )*
        }
    ) => {
        $crate::model::record::object! {
            $(#[$doc])*
            pub struct $name {
                $( $(#[$field_doc])* $json $field : $ty $([ $($flag)* ])? ; )*
            }
        }

        impl $crate::merge::Merge for $name {
            fn merge_from(&mut self, child: Self, trail: &mut $crate::merge::Trail<'_>) {
                $(
                    trail.within($json, |trail| {
                        use $crate::merge::strategy::Strategy as _;
                        $crate::model::record::strategy!($($($flag)*)?)
                            .merge(&mut self.$field, child.$field, trail);
                    });
                )*
            }

            fn announce(&self, trail: &mut $crate::merge::Trail<'_>) {
                $(
                    trail.within($json, |trail| {
                        use $crate::merge::strategy::Strategy as _;
                        $crate::model::record::strategy!($($($flag)*)?).announce(&self.$field, trail);
                    });
                )*
            }
        }
    };
}

macro_rules! required {
    () => { false };
    (required $($rest:tt)*) => { true };
    ($other:tt $($rest:tt)*) => { $crate::model::record::required!($($rest)*) };
}

macro_rules! since {
    () => { $crate::SpecVersion::V2_0 };
    (since($version:ident) $($rest:tt)*) => { $crate::SpecVersion::$version };
    ($other:tt $($rest:tt)*) => { $crate::model::record::since!($($rest)*) };
}

macro_rules! fill {
    ($field:expr, $value:ident, $reader:ident;) => {};
    ($field:expr, $value:ident, $reader:ident; plain_before($version:ident) $($rest:tt)*) => {
        if $value.is_object() && $reader.version() < $crate::SpecVersion::$version {
            $field.get_or_insert_default();
        }
    };
    ($field:expr, $value:ident, $reader:ident; $other:tt $($rest:tt)*) => {
        $crate::model::record::fill!($field, $value, $reader; $($rest)*);
    };
}

macro_rules! strategy {
    () => { $crate::merge::strategy::WholeValue };
    (required $($rest:tt)*) => { $crate::model::record::strategy!($($rest)*) };
    (since($version:ident) $($rest:tt)*) => { $crate::model::record::strategy!($($rest)*) };
    (plain_before($version:ident) $($rest:tt)*) => { $crate::model::record::strategy!($($rest)*) };
    ($strategy:ident $($rest:tt)*) => { $crate::merge::strategy::$strategy };
}

pub(crate) use {fill, object, record, required, since, strategy};
