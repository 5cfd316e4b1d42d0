//! The variables that the expressions of an admission policy are evaluated with.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::traits::Indexer;
use cel::common::types::{CelBool, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::{Context, ExecutionError};

use super::budget::CelBudget;
use super::environment::environment;
use super::instrument::BUDGET;
use super::program::CelProgram;

/// Variables in nested scopes, and the budget of the evaluation.
pub(crate) struct CelScope<'p, 'v> {
    context: Context<'p, 'v>,
}

impl std::fmt::Debug for CelScope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CelScope").finish_non_exhaustive()
    }
}

impl<'v> CelScope<'_, 'v> {
    /// Returns a scope without variables.
    pub fn new(budget: &CelBudget) -> Result<Self, String> {
        let env = environment().map_err(ToString::to_string)?;
        let mut context = Context::with_env(Arc::clone(env));
        context.add_variable_as_val(BUDGET, Box::new(budget.clone()));
        Ok(Self { context })
    }

    /// Returns a scope inside this one.
    pub fn nested(&self) -> CelScope<'_, 'v> {
        CelScope {
            context: self.context.new_inner_scope(),
        }
    }

    pub fn bind(&mut self, name: &str, value: Box<dyn Val + 'v>) {
        self.context.add_variable_as_val(name, value);
    }

    /// Evaluates a condition; the error is that of Kubernetes' evaluator.
    pub fn flag(&self, program: &CelProgram) -> Result<bool, String> {
        let value = program.resolve(&self.context)?;
        let flag = value.downcast_ref::<CelBool>().map(|flag| *flag.inner());
        flag.ok_or_else(|| "no such overload".to_owned())
    }

    /// Evaluates an expression to a string; `None` for any other result.
    pub fn text(&self, program: &CelProgram) -> Result<Option<String>, String> {
        let value = program.resolve(&self.context)?;
        Ok(value
            .downcast_ref::<CelString<'_>>()
            .map(|text| text.inner().to_owned()))
    }

    pub fn value(&self, program: &CelProgram) -> Result<Box<dyn Val + 'v>, String> {
        program.resolve(&self.context).map(CowVal::into_owned)
    }
}

/// The value of `variables`: a variable that failed to evaluate fails where it is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelVariableSet<'v> {
    values: HashMap<String, Result<Box<dyn Val + 'v>, String>>,
}

impl<'v> CelVariableSet<'v> {
    pub fn insert(&mut self, name: &str, value: Result<Box<dyn Val + 'v>, String>) {
        self.values.insert(name.to_owned(), value);
    }
}

impl Indexer for CelVariableSet<'_> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = index.downcast_ref::<CelString<'_>>().map(CelString::inner);
        let name = name.unwrap_or_default();
        match self.values.get(name) {
            Some(Ok(value)) => Ok(CowVal::Borrowed(value.as_ref())),
            Some(Err(error)) => Err(ExecutionError::InternalError(format!(
                "composited variable {name:?} fails to evaluate: {error}"
            ))),
            None => Err(ExecutionError::NoSuchKey(Arc::new(name.to_owned()))),
        }
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Val for CelVariableSet<'_> {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(self.clone())
    }
}
