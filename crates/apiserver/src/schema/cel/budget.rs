//! The budget that bounds the cost of the rules of one object.
//!
//! Any user who may write a CRD supplies rules, and any user who may write a custom resource supplies objects; neither
//! may block the server. Every expensive operation is charged first, and fails when the budget is exhausted.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelMap, CelString, Kind, Type};
use cel::common::value::{CowVal, StaticVal, Val};

use crate::cpu;

/// Enough for thousands of list items compared with each other, and used up in about a second.
const UNITS_PER_OBJECT: u64 = 1_000_000;

/// Reading a byte of text costs less than visiting an item.
const BYTES_PER_UNIT: usize = 10;

/// Values below this depth are not counted.
const MAX_DEPTH: usize = 32;

static BUDGET_TYPE: Type = budget_type();

/// The type of budgets in the signatures of instrumented functions.
pub(super) const fn budget_type() -> Type {
    Type::new_unspecified_type("mco.budget")
}

/// The remaining units. Clones share them.
#[derive(Clone, Debug)]
pub struct CelBudget(Arc<AtomicU64>);

impl CelBudget {
    pub fn for_one_object() -> Self {
        Self(Arc::new(AtomicU64::new(UNITS_PER_OBJECT)))
    }

    pub fn is_exhausted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Charges units, or fails and exhausts the budget.
    pub fn charge(&self, units: u64) -> Result<(), ExecutionError> {
        let left = self.0.load(Ordering::Relaxed);
        if units >= left || cpu::is_out_of_time() {
            self.0.store(0, Ordering::Relaxed);
            return Err(ExecutionError::InternalError(
                "operation cancelled: actual cost limit exceeded".to_owned(),
            ));
        }
        self.0.store(left - units, Ordering::Relaxed);
        Ok(())
    }

    /// Charges the cost of reading a value once.
    pub fn charge_value(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        self.charge(shallow_cost(value))
    }

    /// Charges the cost of reading a value and everything inside it.
    pub fn charge_all(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        self.charge_deep(value, 0)
    }

    fn charge_deep(&self, value: &dyn Val, depth: usize) -> Result<(), ExecutionError> {
        self.charge_value(value)?;
        if depth == MAX_DEPTH {
            return Ok(());
        }
        if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
            return map
                .inner()
                .values()
                .try_for_each(|inner| self.charge_deep(inner.as_ref(), depth + 1));
        }
        if let Some(iterable) = value.as_iterable() {
            let mut items = iterable.iter();
            while let Some(item) = items.next() {
                self.charge_deep(item, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns the budget that an instrumented call has as its first argument.
    pub(super) fn of<'a>(args: &'a [CowVal<'_, '_>]) -> Result<&'a Self, ExecutionError> {
        let missing = || ExecutionError::InternalError("a call without a budget".to_owned());
        args.first()
            .and_then(|budget| budget.downcast_ref::<Self>())
            .ok_or_else(missing)
    }
}

fn shallow_cost(value: &dyn Val) -> u64 {
    let items = match value.get_type().kind() {
        Kind::String => value
            .downcast_ref::<CelString<'_>>()
            .map_or(0, |text| text.inner().len() / BYTES_PER_UNIT),
        Kind::Bytes => value
            .downcast_ref::<CelBytes<'_>>()
            .map_or(0, |bytes| bytes.inner().len() / BYTES_PER_UNIT),
        _ => value.as_sizer().map_or(0, |sizer| {
            usize::try_from(*sizer.size().inner()).unwrap_or(usize::MAX)
        }),
    };
    1 + u64::try_from(items).unwrap_or(u64::MAX - 1)
}

impl Val for CelBudget {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &BUDGET_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for CelBudget {}
