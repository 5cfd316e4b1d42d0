//! The expressions of policies and of webhooks' match conditions: their variables, and their compiled form.

use cel::common::ast::Expr;
use cel::parser::Expression;
use serde_json::Value;

use crate::schema::cel::{BOOL, CelDeclarations, CelProgram, CelType, INT, STRING};

/// What an expression is for, which decides its variables and the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpressionUse {
    /// `matchConditions`: a boolean, without `variables`.
    Condition,
    Variable,
    /// `validations`: a boolean.
    Validation,
    /// `messageExpression`: a string, without `authorizer`.
    Message,
    /// `auditAnnotations`: a string or null.
    Annotation,
}

/// The declarations for the expressions of one policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyDeclarations {
    base: CelDeclarations,
    message: CelDeclarations,
    conditions: CelDeclarations,
}

impl PolicyDeclarations {
    /// Returns the declarations of a policy's `spec`, without its variables.
    pub fn new(spec: &Value) -> Self {
        let mut message = objects();
        if !spec["paramKind"].is_null() {
            message.declare("params", CelType::Dyn);
        }
        let mut conditions = message.clone();
        conditions.declare_authorizer();
        if spec["variables"]
            .as_array()
            .is_some_and(|variables| !variables.is_empty())
        {
            message.declare("variables", CelType::object(&[]));
        }
        let mut base = message.clone();
        base.declare_authorizer();
        Self {
            base,
            message,
            conditions,
        }
    }

    /// Declares a variable after it was compiled.
    pub fn declare_variable(&mut self, name: &str, declared: &CelType) {
        self.base.declare_variable(name, declared.clone());
        self.message.declare_variable(name, declared.clone());
    }

    /// Compiles an expression and checks the type of its result.
    pub fn compile(&self, source: &str, what: ExpressionUse) -> Result<(CelProgram, CelType), String> {
        let declarations = match what {
            ExpressionUse::Condition => &self.conditions,
            ExpressionUse::Message => &self.message,
            ExpressionUse::Variable | ExpressionUse::Validation | ExpressionUse::Annotation => &self.base,
        };
        compile(declarations, source, what)
    }
}

/// Returns the declarations of a webhook's match conditions.
pub(crate) fn condition_declarations() -> PolicyDeclarations {
    PolicyDeclarations::new(&Value::Null)
}

fn compile(
    declarations: &CelDeclarations,
    source: &str,
    what: ExpressionUse,
) -> Result<(CelProgram, CelType), String> {
    let (program, result) = declarations
        .compile(source)
        .map_err(|error| format!("compilation failed: {error}"))?;
    let (expected, name) = match what {
        ExpressionUse::Condition | ExpressionUse::Validation => (BOOL, "bool"),
        ExpressionUse::Message => (STRING, "string"),
        ExpressionUse::Annotation if result == CelType::Named("null_type") => return Ok((program, result)),
        ExpressionUse::Annotation => (STRING, "string or null_type"),
        ExpressionUse::Variable => return Ok((program, result)),
    };
    if result == expected || result == CelType::Unknown {
        return Ok((program, result));
    }
    Err(format!("must evaluate to {name} but got {result}"))
}

fn objects() -> CelDeclarations {
    let mut declarations = CelDeclarations::default();
    declarations.declare("object", CelType::Dyn);
    declarations.declare("oldObject", CelType::Dyn);
    declarations.declare("request", request());
    declarations.declare("namespaceObject", namespace());
    declarations
}

/// The type of `request`.
fn request() -> CelType {
    let kind = CelType::object(&[("group", STRING), ("version", STRING), ("kind", STRING)]);
    let resource = CelType::object(&[("group", STRING), ("version", STRING), ("resource", STRING)]);
    let user = CelType::object(&[
        ("username", STRING),
        ("uid", STRING),
        ("groups", CelType::list(STRING)),
        ("extra", CelType::map(CelType::list(STRING))),
    ]);
    CelType::object(&[
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", STRING),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", STRING),
        ("name", STRING),
        ("namespace", STRING),
        ("operation", STRING),
        ("userInfo", user),
        ("dryRun", BOOL),
        ("options", CelType::Dyn),
    ])
}

/// The type of `namespaceObject`.
fn namespace() -> CelType {
    let time = CelType::Unknown;
    let metadata = CelType::object(&[
        ("name", STRING),
        ("generateName", STRING),
        ("namespace", STRING),
        ("labels", CelType::map(STRING)),
        ("annotations", CelType::map(STRING)),
        ("UID", STRING),
        ("creationTimestamp", time.clone()),
        ("deletionGracePeriodSeconds", INT),
        ("deletionTimestamp", time.clone()),
        ("generation", INT),
        ("resourceVersion", STRING),
        ("finalizers", CelType::list(STRING)),
    ]);
    let condition = CelType::object(&[
        ("status", STRING),
        ("type", STRING),
        ("lastTransitionTime", time),
        ("message", STRING),
        ("reason", STRING),
    ]);
    let status = CelType::object(&[("conditions", CelType::list(condition)), ("phase", STRING)]);
    let spec = CelType::object(&[("finalizers", CelType::list(STRING))]);
    CelType::object(&[("metadata", metadata), ("spec", spec), ("status", status)])
}

/// A compiled expression with its source, for messages.
#[derive(Clone, Debug)]
pub(super) struct CompiledExpression {
    pub source: String,
    /// An error if the stored policy does not compile, which a write of the policy would have rejected.
    pub program: Result<CelProgram, String>,
    /// The names of the variables that the expression uses.
    pub variables: Vec<String>,
}

impl CompiledExpression {
    pub fn compile(declarations: &PolicyDeclarations, source: &str, what: ExpressionUse) -> (Self, CelType) {
        let (program, result) = match declarations.compile(source, what) {
            Ok((program, result)) => (Ok(program), result),
            Err(error) => (Err(error), CelType::Unknown),
        };
        let mut variables = Vec::new();
        if let Ok(program) = &program {
            collect_variables(program.expression(), &mut variables);
        }
        let compiled = Self {
            source: source.to_owned(),
            program,
            variables,
        };
        (compiled, result)
    }

    /// Returns the message of a failed evaluation.
    pub fn failed(&self, error: &str) -> String {
        format!("expression '{}' resulted in error: {error}", self.source)
    }
}

fn collect_variables(expression: &Expression, found: &mut Vec<String>) {
    if let Expr::Select(select) = &expression.expr
        && matches!(&select.operand.expr, Expr::Ident(name) if name == "variables")
        && !found.contains(&select.field)
    {
        found.push(select.field.clone());
    }
    for child in crate::schema::cel::children(expression) {
        collect_variables(child, found);
    }
}
