//! List functions of Kubernetes: order, sums, extremes, positions.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, DYN_TYPE, Kind, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::metered::same;
use super::{count, failed};

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list.isSorted()", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list.sum()", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list.min()", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list.max()", LIST_TYPE, vec![], max)?;
    env.add_member_overload(
        "indexOf",
        "list.indexOf(dyn)",
        LIST_TYPE,
        vec![DYN_TYPE],
        index_of,
    )?;
    env.add_member_overload(
        "lastIndexOf",
        "list.lastIndexOf(dyn)",
        LIST_TYPE,
        vec![DYN_TYPE],
        last_index_of,
    )?;
    Ok(())
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;

fn items<'a, 'v>(
    args: &'a [CowVal<'_, 'v>],
    function: &str,
) -> Result<Vec<&'a (dyn Val + 'v)>, ExecutionError> {
    let list = args.first().and_then(|list| list.as_iterable());
    let mut iterator = list.ok_or_else(|| failed(function, "no such overload"))?.iter();
    let mut items = Vec::new();
    while let Some(item) = iterator.next() {
        items.push(item);
    }
    Ok(items)
}

fn compare(left: &dyn Val, right: &dyn Val, function: &str) -> Result<Ordering, ExecutionError> {
    left.as_comparer()
        .ok_or_else(|| failed(function, "no such overload"))?
        .compare(right)
}

fn is_sorted<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let items = items(&args, "isSorted")?;
    for pair in items.windows(2) {
        if compare(pair[0], pair[1], "isSorted")? == Ordering::Greater {
            return Ok(CowVal::owned(CelBool::from(false)));
        }
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let items = items(&args, "sum")?;
    let Some((first, rest)) = items.split_first() else {
        return Ok(CowVal::owned(CelInt::from(0)));
    };
    // Strings and lists can be added too, but each sum would be longer than the one before.
    if matches!(first.get_type().kind(), Kind::String | Kind::Bytes | Kind::List) {
        return Err(failed("sum", "no such overload"));
    }
    let mut total = first.clone_as_boxed();
    for item in rest {
        let adder = total
            .as_adder()
            .ok_or_else(|| failed("sum", "no such overload"))?;
        let next = adder.add(*item)?.into_owned();
        total = next;
    }
    Ok(CowVal::Owned(total))
}

fn min<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme(&args, "min", Ordering::Less)
}

fn max<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme(&args, "max", Ordering::Greater)
}

fn extreme<'b, 'v>(
    args: &[CowVal<'_, 'v>],
    function: &str,
    wanted: Ordering,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let items = items(args, function)?;
    let Some((first, rest)) = items.split_first() else {
        return Err(failed(function, format!("{function} called on empty list")));
    };
    let mut best = *first;
    for item in rest {
        if compare(*item, best, function)? == wanted {
            best = *item;
        }
    }
    Ok(CowVal::Owned(best.clone_as_boxed()))
}

fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let position = items(&args, "indexOf")?.iter().position(|item| is(*item, &args));
    Ok(CowVal::owned(position.map_or_else(|| CelInt::from(-1), count)))
}

fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let position = items(&args, "lastIndexOf")?
        .iter()
        .rposition(|item| is(*item, &args));
    Ok(CowVal::owned(position.map_or_else(|| CelInt::from(-1), count)))
}

fn is(item: &dyn Val, args: &[CowVal<'_, '_>]) -> bool {
    args.get(1).is_some_and(|wanted| same(item, wanted.as_ref()))
}
