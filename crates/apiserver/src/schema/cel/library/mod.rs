//! The functions that Kubernetes adds to CEL.

#![allow(
    elided_lifetimes_in_paths,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    reason = "the evaluator and the macros that declare functions decide how arguments are passed and types named"
)]

mod authorizer;
mod format;
mod lists;
mod metered;
mod net;
mod quantity;
mod regex;
mod semver;
mod sets;
mod url;

pub(super) use authorizer::extension as authorizer;
pub(crate) use authorizer::{AccessCheck, AuthorizerValue, ResourceAccess};
pub(super) use format::extension as format;
pub(super) use lists::extension as lists;
pub(super) use metered::extension as metered;
pub(super) use net::extension as net;
pub(super) use quantity::extension as quantity;
pub(super) use regex::extension as regex;
pub(super) use semver::extension as semver;
pub(super) use sets::extension as sets;
pub(super) use url::extension as url;

use cel::ExecutionError;
use cel::common::types::{CelInt, CelList, CelString};
use cel::common::value::Val;

/// Makes a Rust type an opaque CEL value.
macro_rules! opaque {
    ($name:ident, $cel_name:literal) => {
        impl cel::common::value::Val for $name {
            fn get_type(&self) -> &cel::common::types::Type {
                <Self as cel::common::value::Val>::cel_type()
            }

            fn cel_type() -> &'static cel::common::types::Type {
                static TYPE: cel::common::types::Type =
                    cel::common::types::Type::new_unspecified_type($cel_name);
                &TYPE
            }

            fn equals(&self, other: &dyn cel::common::value::Val) -> bool {
                other.downcast_ref::<$name>() == Some(self)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn cel::common::value::Val + 'v>
            where
                Self: 'v,
            {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn std::any::Any> {
                Some(self)
            }
        }

        impl cel::common::value::StaticVal for $name {}
    };
}
use opaque;

fn failed(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn texts(texts: impl IntoIterator<Item = String>) -> CelList<'static> {
    let items: Vec<Box<dyn Val>> = texts
        .into_iter()
        .map(|text| -> Box<dyn Val> { Box::new(CelString::from(text)) })
        .collect();
    CelList::from(items)
}

fn count(count: usize) -> CelInt {
    CelInt::from(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Returns -1, 0 or 1, as `compareTo` does.
fn sign(ordering: std::cmp::Ordering) -> CelInt {
    CelInt::from(ordering as i64)
}
