//! Lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`.

use cel::common::types::{CelBool, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::super::budget::{CelBudget, budget_type};
use super::super::instrument::SETS;
use super::failed;
use super::metered::same;

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    for (name, metered) in SETS {
        let function = match name {
            "contains" => contains,
            "equivalent" => equivalent,
            _ => intersects,
        };
        let arguments = vec![budget_type(), LIST_TYPE, LIST_TYPE];
        env.add_overload(metered, &format!("list_{metered}_list"), arguments, function)?;
    }
    Ok(())
}

fn contains<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    decide(&args, |left, right| has_all(left, right))
}

fn equivalent<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    decide(&args, |left, right| has_all(left, right) && has_all(right, left))
}

fn intersects<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    decide(&args, |left, right| left.iter().any(|item| has(right, *item)))
}

fn decide<'b, 'v>(
    args: &[CowVal<'_, '_>],
    decide: impl Fn(&[&dyn Val], &[&dyn Val]) -> bool,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (left, right) = (items(args, 1)?, items(args, 2)?);
    let comparisons = left.len().saturating_mul(right.len());
    CelBudget::of(args)?.charge(u64::try_from(comparisons).unwrap_or(u64::MAX))?;
    Ok(CowVal::owned(CelBool::from(decide(&left, &right))))
}

fn items<'a>(args: &'a [CowVal<'_, '_>], at: usize) -> Result<Vec<&'a dyn Val>, ExecutionError> {
    let list = args.get(at).and_then(|list| list.as_iterable());
    let mut iterator = list.ok_or_else(|| failed("sets", "no such overload"))?.iter();
    let mut items: Vec<&dyn Val> = Vec::new();
    while let Some(item) = iterator.next() {
        items.push(item);
    }
    Ok(items)
}

fn has_all(items: &[&dyn Val], wanted: &[&dyn Val]) -> bool {
    wanted.iter().all(|item| has(items, *item))
}

fn has(items: &[&dyn Val], wanted: &dyn Val) -> bool {
    items.iter().any(|item| same(*item, wanted))
}
