//! What a value must satisfy beyond its type, in compiled form.

/// The value validations of one node.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub required: Vec<Box<str>>,
    pub format: Option<Box<str>>,
}
