//! From the model to spec 2.2.
