//! The root objects of every kind: `metadata`, `spec` and perhaps `status`, with the traits a client needs.
//!
//! kube's own derive is not used because it refuses an object without `spec`, which is a legal MachineConfig
//! and would stop a watch of all of them, and because it makes every optional field nullable in the schema.

/// Declares the root object of a kind, its `kube::Resource` implementation and its wire form.
///
/// `apiVersion` and `kind` are always written and never checked on reading, as in kube's derive. With `unknown fields
/// kept`, fields beside `spec` and `status` survive a round trip in `extra`.
macro_rules! resource {
    (
        $(#[$attribute:meta])*
        $kind:ident, $scope:ident, $group:literal / $version:literal, $plural:literal,
        spec: $spec:ty
        $(, status: $status:ty)?
        $(, unknown fields kept in $extra:ident)?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $kind {
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            pub spec: $spec,
            $(pub status: Option<$status>,)?
            $(
                /// Unknown fields, preserved unchanged.
                pub $extra: ::serde_json::Map<String, ::serde_json::Value>,
            )?
        }

        impl $kind {
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(::serde::Deserialize)]
                struct Wire {
                    #[serde(default, rename = "apiVersion")]
                    _api_version: ::serde::de::IgnoredAny,
                    #[serde(default, rename = "kind")]
                    _kind: ::serde::de::IgnoredAny,
                    #[serde(default, deserialize_with = "crate::wire::null_is_default")]
                    metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    #[serde(default, deserialize_with = "crate::wire::null_is_default")]
                    spec: $spec,
                    $(
                        #[serde(default)]
                        status: Option<$status>,
                    )?
                    $(
                        #[serde(flatten)]
                        $extra: ::serde_json::Map<String, ::serde_json::Value>,
                    )?
                }
                let wire = Wire::deserialize(deserializer)?;
                Ok(Self {
                    metadata: wire.metadata,
                    spec: wire.spec,
                    $(status: resource!(@field wire.status, $status),)?
                    $($extra: wire.$extra,)?
                })
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeMap;
                let mut object = serializer.serialize_map(None)?;
                object.serialize_entry("apiVersion", concat!($group, "/", $version))?;
                object.serialize_entry("kind", stringify!($kind))?;
                object.serialize_entry("metadata", &self.metadata)?;
                object.serialize_entry("spec", &self.spec)?;
                $(
                    if let Some(status) = resource!(@field &self.status, $status) {
                        object.serialize_entry("status", status)?;
                    }
                )?
                $(
                    for (key, value) in &self.$extra {
                        object.serialize_entry(key, value)?;
                    }
                )?
                object.end()
            }
        }

        impl ::kube::Resource for $kind {
            type DynamicType = ();
            type Scope = ::kube::core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl ::kube::core::object::HasSpec for $kind {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }
            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        $(
            impl ::kube::core::object::HasStatus for $kind {
                type Status = $status;

                fn status(&self) -> Option<&$status> {
                    self.status.as_ref()
                }
                fn status_mut(&mut self) -> &mut Option<$status> {
                    &mut self.status
                }
            }
        )?
    };

    // Names the status type so that the repetition around it expands only for kinds that have one.
    (@field $value:expr, $status:ty) => {
        $value
    };
}

pub(crate) use resource;
