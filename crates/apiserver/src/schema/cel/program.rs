//! One compiled expression and its evaluation.

use std::sync::Arc;

use cel::common::ast::Expr;
use cel::common::types::{CelBool, CelOptional, CelString};
use cel::common::value::{CowVal, Val};
use cel::parser::Expression;
use cel::{Context, ExecutionError, Value};

use super::budget::CelBudget;
use super::environment::environment;
use super::instrument::{self, BUDGET};
use super::parse::{children, parse};

/// The variables of a rule.
const VARIABLES: [&str; 2] = ["self", "oldSelf"];

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CelProgram {
    plain: Expression,
    metered: Expression,
}

/// The values that a rule is evaluated on.
#[derive(Debug)]
pub struct RuleInput<'a, 'v> {
    pub this: &'a (dyn Val + 'v),
    pub old: Option<&'a (dyn Val + 'v)>,
    /// Whether the rule sees the old value as an optional, present or not.
    pub optional_old: bool,
    pub budget: &'a CelBudget,
}

impl CelProgram {
    /// Compiles a rule; the error is that of a CEL compiler.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::compile_with(source, &VARIABLES)
    }

    /// Compiles an expression with these variables; the error is that of a CEL compiler.
    pub fn compile_with(source: &str, variables: &[&str]) -> Result<Self, String> {
        let plain = parse(source)?;
        let mut metered = plain.clone();
        instrument::instrument(&mut metered, variables);
        Ok(Self { plain, metered })
    }

    /// Returns the expression as parsed, for static checks.
    pub fn expression(&self) -> &Expression {
        &self.plain
    }

    /// Returns whether the expression uses the old value.
    pub fn uses_old_self(&self) -> bool {
        mentions(&self.plain, "oldSelf")
    }

    /// Evaluates a rule to a boolean.
    pub fn holds(&self, on: &RuleInput<'_, '_>) -> Result<bool, String> {
        self.evaluate(on, |value| {
            value.downcast_ref::<CelBool>().map(|flag| *flag.inner())
        })
    }

    /// Evaluates an expression to a string.
    pub fn text(&self, on: &RuleInput<'_, '_>) -> Result<String, String> {
        self.evaluate(on, |value| {
            value
                .downcast_ref::<CelString<'_>>()
                .map(|text| text.inner().to_owned())
        })
    }

    fn evaluate<T>(&self, on: &RuleInput<'_, '_>, read: impl Fn(&dyn Val) -> Option<T>) -> Result<T, String> {
        let env = environment().map_err(ToString::to_string)?;
        let mut context = Context::with_env(Arc::clone(env));
        context.add_variable_as_val(BUDGET, Box::new(on.budget.clone()));
        context.add_variable_as_val("self", on.this.clone_as_boxed());
        if on.optional_old {
            let old = on
                .old
                .map_or_else(CelOptional::none, |old| CelOptional::of(old.clone_as_boxed()));
            context.add_variable_as_val("oldSelf", Box::new(old));
        } else if let Some(old) = on.old {
            context.add_variable_as_val("oldSelf", old.clone_as_boxed());
        }
        with_room(|| {
            let value = self.resolve(&context)?;
            read(value.as_ref()).ok_or_else(|| "no such overload".to_owned())
        })
    }

    /// Evaluates the expression in a context that has a budget.
    pub(super) fn resolve<'e, 'v>(&'e self, context: &'e Context<'_, 'v>) -> Result<CowVal<'e, 'v>, String> {
        Value::resolve_val(&self.metered, context).map_err(|error| explain(&error))
    }
}

/// The deepest expression needs less than this, even in an unoptimized build. The stack of a request's thread is
/// smaller.
const EVALUATION_STACK_BYTES: usize = 16 * 1024 * 1024;

/// Runs a function on a stack that is large enough for any expression. Called around many evaluations, it allocates the
/// stack once.
pub fn with_room<T>(evaluate: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(EVALUATION_STACK_BYTES, 2 * EVALUATION_STACK_BYTES, evaluate)
}

/// Returns an error with the message of Kubernetes' evaluator.
fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Value::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, message } if message.starts_with("string parse error") => {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } | ExecutionError::InternalError(message) => {
            message.clone()
        }
        other => other.to_string(),
    }
}

fn mentions(expression: &Expression, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(ident) if ident == name)
        || children(expression)
            .into_iter()
            .any(|child| mentions(child, name))
}

#[cfg(test)]
mod tests;
