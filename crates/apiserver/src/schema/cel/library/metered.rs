//! Metered replacements of operations that are expensive or amplify their input; each charges the budget first.

use cel::common::types::{
    CelBool, CelInt, CelString, DYN_TYPE, INT_TYPE, Kind, LIST_TYPE, STRING_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::super::budget::{CelBudget, budget_type};
use super::super::instrument::{ADD, CHARGE, CHARGE_ALL, EQUALS, JOIN, MATCHES, REPLACE};
use super::{failed, regex};

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let mut declare = |name: &str, rest: Vec<Type>, function| {
        let id = format!(
            "{name}_{}",
            rest.iter().map(Type::name).collect::<Vec<_>>().join("_")
        );
        let mut arguments = vec![budget_type()];
        arguments.extend(rest);
        env.add_overload(name, &id, arguments, function)
    };
    declare(CHARGE, vec![DYN_TYPE], charge)?;
    declare(CHARGE_ALL, vec![DYN_TYPE], charge_all)?;
    declare(EQUALS, vec![DYN_TYPE, DYN_TYPE], equals)?;
    declare(ADD, vec![DYN_TYPE, DYN_TYPE], add)?;
    declare(MATCHES, vec![STRING_TYPE, STRING_TYPE], matches)?;
    declare(REPLACE, vec![STRING_TYPE, STRING_TYPE, STRING_TYPE], replace)?;
    declare(
        REPLACE,
        vec![STRING_TYPE, STRING_TYPE, STRING_TYPE, INT_TYPE],
        replace,
    )?;
    declare(JOIN, vec![LIST_TYPE], join)?;
    declare(JOIN, vec![LIST_TYPE, STRING_TYPE], join)?;
    Ok(())
}

fn charge<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(|| failed(CHARGE, "missing argument"))?;
    CelBudget::of(&args)?.charge_value(value.as_ref())?;
    Ok(value)
}

fn charge_all<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(|| failed(CHARGE_ALL, "missing argument"))?;
    CelBudget::of(&args)?.charge_all(value.as_ref())?;
    Ok(value)
}

fn equals<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [budget, left, right] = args.as_slice() else {
        return Err(failed(EQUALS, "two operands are needed"));
    };
    let budget = CelBudget::of(std::slice::from_ref(budget))?;
    budget.charge_all(left.as_ref())?;
    budget.charge_all(right.as_ref())?;
    Ok(CowVal::owned(CelBool::from(same(left.as_ref(), right.as_ref()))))
}

/// Lists of different Rust types are compared item by item; all other values compare themselves.
pub(super) fn same(left: &dyn Val, right: &dyn Val) -> bool {
    let both_lists = left.get_type().kind() == Kind::List && right.get_type().kind() == Kind::List;
    if left.equals(right) {
        return true;
    }
    let (true, Some(left), Some(right)) = (both_lists, left.as_iterable(), right.as_iterable()) else {
        return false;
    };
    let (mut left, mut right) = (left.iter(), right.iter());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(left), Some(right)) if same(left, right) => {}
            _ => return false,
        }
    }
}

fn add<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [budget, left, right] = args.as_slice() else {
        return Err(failed(ADD, "two operands are needed"));
    };
    let budget = CelBudget::of(std::slice::from_ref(budget))?;
    budget.charge_value(left.as_ref())?;
    budget.charge_value(right.as_ref())?;
    let adder = left.as_adder().ok_or_else(|| {
        ExecutionError::no_such_overload(
            "_+_",
            vec![
                left.get_type().name().to_owned(),
                right.get_type().name().to_owned(),
            ],
        )
    })?;
    Ok(CowVal::Owned(adder.add(right.as_ref())?.into_owned()))
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (text, pattern) = (text(&args, 1, "matches")?, text(&args, 2, "matches")?);
    CelBudget::of(&args)?.charge_value(args[1].as_ref())?;
    let pattern = regex::cached(pattern).map_err(|error| failed("matches", error))?;
    let is_match = pattern.is_match(text).map_err(|error| failed("matches", error))?;
    Ok(CowVal::owned(CelBool::from(is_match)))
}

fn replace<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (text, from, to) = (
        text(&args, 1, "replace")?,
        text(&args, 2, "replace")?,
        text(&args, 3, "replace")?,
    );
    let limit = args
        .get(4)
        .and_then(|limit| limit.downcast_ref::<CelInt>())
        .map_or(-1, |limit| *limit.inner());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let occurrences = text.matches(from).count().min(limit);
    charge_bytes(
        CelBudget::of(&args)?,
        text.len().saturating_add(occurrences.saturating_mul(to.len())),
    )?;
    Ok(CowVal::owned(CelString::from(text.replacen(from, to, limit))))
}

fn join<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let separator = if args.len() > 2 {
        text(&args, 2, "join")?
    } else {
        ""
    };
    let budget = CelBudget::of(&args)?;
    let list = args.get(1).and_then(|list| list.as_iterable());
    let mut items = list.ok_or_else(|| failed("join", "no such overload"))?.iter();
    let mut joined = String::new();
    let mut is_first = true;
    while let Some(item) = items.next() {
        let item = item
            .downcast_ref::<CelString<'_>>()
            .ok_or_else(|| failed("join", "no such overload"))?;
        charge_bytes(budget, item.inner().len() + separator.len())?;
        if !is_first {
            joined.push_str(separator);
        }
        is_first = false;
        joined.push_str(item.inner());
    }
    Ok(CowVal::owned(CelString::from(joined)))
}

fn charge_bytes(budget: &CelBudget, bytes: usize) -> Result<(), ExecutionError> {
    budget.charge(1 + u64::try_from(bytes / 10).unwrap_or(u64::MAX - 1))
}

fn text<'a>(args: &'a [CowVal<'_, '_>], at: usize, function: &str) -> Result<&'a str, ExecutionError> {
    let text = args
        .get(at)
        .and_then(|value| value.downcast_ref::<CelString<'_>>());
    text.map(CelString::inner)
        .ok_or_else(|| failed(function, "no such overload"))
}
