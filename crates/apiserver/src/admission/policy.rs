//! ValidatingAdmissionPolicies: compiled once per generation, evaluated on every write that they match.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::value::Val;
use serde_json::Value;

use super::expression::{CompiledExpression, ExpressionUse, PolicyDeclarations};
use super::matching::AdmissionMatch;
use super::{AdmissionAttributes, AdmissionWarnings};
use crate::catalog::ResourceDefinition;
use crate::error::ApiError;
use crate::field_error;
use crate::schema::cel::{
    AccessCheck, AuthorizerValue, CelBudget, CelScope, CelVariableSet, ResourceAccess, untyped,
};

/// The maximum length of a message that an expression computes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// The maximum length of an audit annotation's value.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled policy.
#[derive(Debug)]
pub(super) struct CompiledPolicy {
    pub name: String,
    pub matching: AdmissionMatch,
    pub param_kind: Value,
    /// A failed evaluation is ignored (`failurePolicy: Ignore`).
    pub fails_open: bool,
    conditions: Vec<CompiledExpression>,
    variables: Vec<(String, CompiledExpression)>,
    validations: Vec<PolicyValidation>,
    annotations: Vec<(String, CompiledExpression)>,
}

#[derive(Debug)]
struct PolicyValidation {
    condition: CompiledExpression,
    message: String,
    message_expression: Option<CompiledExpression>,
    reason: String,
}

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct PolicyBinding {
    pub name: String,
    pub policy: String,
    pub matching: AdmissionMatch,
    pub param_ref: Value,
    actions: Vec<String>,
}

impl PolicyBinding {
    pub fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: text(&binding["metadata"], "name"),
            policy: text(spec, "policyName"),
            matching: AdmissionMatch::of_policy(&spec["matchResources"]),
            param_ref: spec["paramRef"].clone(),
            actions: actions.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    fn does(&self, action: &str) -> bool {
        self.actions.iter().any(|own| own == action)
    }
}

impl CompiledPolicy {
    pub fn compile(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let mut declarations = PolicyDeclarations::new(spec);
        let conditions = compile_conditions(&declarations, &spec["matchConditions"]);
        let mut variables = Vec::new();
        for variable in items(&spec["variables"]) {
            let source = text(variable, "expression");
            let (expression, result) =
                CompiledExpression::compile(&declarations, &source, ExpressionUse::Variable);
            declarations.declare_variable(&text(variable, "name"), &result);
            variables.push((text(variable, "name"), expression));
        }
        let compile = |source: &str, what| CompiledExpression::compile(&declarations, source, what).0;
        let validations = items(&spec["validations"]).map(|validation| {
            let message_expression = text(validation, "messageExpression");
            PolicyValidation {
                condition: compile(&text(validation, "expression"), ExpressionUse::Validation),
                message: text(validation, "message").trim().to_owned(),
                message_expression: (!message_expression.is_empty())
                    .then(|| compile(&message_expression, ExpressionUse::Message)),
                reason: text(validation, "reason"),
            }
        });
        let annotations = items(&spec["auditAnnotations"]).map(|annotation| {
            let expression = compile(&text(annotation, "valueExpression"), ExpressionUse::Annotation);
            (text(annotation, "key"), expression)
        });
        Self {
            name: text(&policy["metadata"], "name"),
            matching: AdmissionMatch::of_policy(&spec["matchConstraints"]),
            param_kind: spec["paramKind"].clone(),
            fails_open: spec["failurePolicy"] == "Ignore",
            conditions,
            validations: validations.collect(),
            annotations: annotations.collect(),
            variables,
        }
    }
}

/// Compiles `matchConditions` of a policy or a webhook.
pub(super) fn compile_conditions(
    declarations: &PolicyDeclarations,
    conditions: &Value,
) -> Vec<CompiledExpression> {
    let compile =
        |source: &str| CompiledExpression::compile(declarations, source, ExpressionUse::Condition).0;
    items(conditions)
        .map(|condition| compile(&text(condition, "expression")))
        .collect()
}

/// A policy and a binding that match a write.
#[derive(Debug)]
pub(super) struct PolicyMatch {
    pub policy: Arc<CompiledPolicy>,
    pub binding: Arc<PolicyBinding>,
    /// The definition whose version the objects are evaluated in.
    pub definition: Arc<ResourceDefinition>,
    pub params: Result<Vec<Option<Value>>, String>,
}

/// The inputs of an evaluation, owned so that it can run on another thread.
#[derive(Debug)]
pub(super) struct EvaluationInput {
    pub attributes: Arc<AdmissionAttributes>,
    /// The namespace of the object, if it has one.
    pub namespace: Option<Value>,
    pub checker: Arc<dyn AccessCheck>,
}

impl EvaluationInput {
    /// Calls a function with the variables of a write, in the version of a matched definition.
    pub fn with_scope<T>(
        &self,
        definition: &ResourceDefinition,
        budget: &CelBudget,
        evaluate: impl FnOnce(&CelScope<'_, '_>) -> T,
    ) -> Result<T, String> {
        let (object, old) = self.attributes.objects_as(definition);
        let request = self.attributes.request(definition);
        let mut scope = CelScope::new(budget)?;
        scope.bind("object", untyped(&object));
        scope.bind("oldObject", untyped(&old));
        scope.bind("request", untyped(&request));
        scope.bind(
            "namespaceObject",
            self.namespace
                .as_ref()
                .map_or_else(|| untyped(&Value::Null), untyped),
        );
        let authorizer = AuthorizerValue {
            checker: Arc::clone(&self.checker),
            budget: budget.clone(),
            service_account: None,
        };
        let attributes = &self.attributes;
        let own = ResourceAccess {
            group: attributes.definition.group.clone(),
            resource: attributes.definition.plural.clone(),
            subresource: attributes.subresource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            ..ResourceAccess::default()
        };
        scope.bind(
            "authorizer.requestResource",
            Box::new(authorizer.request_resource(own)),
        );
        scope.bind("authorizer", Box::new(authorizer));
        Ok(evaluate(&scope))
    }
}

/// A write that a policy does not allow.
#[derive(Debug)]
pub(super) struct PolicyViolation {
    policy: String,
    binding: Arc<PolicyBinding>,
    message: String,
    reason: String,
}

/// Evaluates all policies that match a write, with one budget.
pub(super) fn evaluate(input: &EvaluationInput, matches: &[PolicyMatch]) -> Vec<PolicyViolation> {
    let budget = CelBudget::for_one_object();
    let mut by_version: BTreeMap<String, Vec<&PolicyMatch>> = BTreeMap::new();
    for matched in matches {
        by_version
            .entry(matched.definition.api_version())
            .or_default()
            .push(matched);
    }
    let mut violations = Vec::new();
    for same_version in by_version.values() {
        let Some(first) = same_version.first() else {
            continue;
        };
        let outcome = input.with_scope(&first.definition, &budget, |scope| {
            same_version
                .iter()
                .flat_map(|matched| evaluate_binding(matched, scope, &budget))
                .collect::<Vec<_>>()
        });
        match outcome {
            Ok(found) => violations.extend(found),
            Err(error) => {
                violations.extend(same_version.iter().filter_map(|matched| failure(matched, &error)))
            }
        }
    }
    violations
}

/// Returns the violation for a policy that could not be evaluated, by its failure policy.
fn failure(matched: &PolicyMatch, message: &str) -> Option<PolicyViolation> {
    (!matched.policy.fails_open).then(|| violation(matched, message.to_owned(), ""))
}

fn violation(matched: &PolicyMatch, message: String, reason: &str) -> PolicyViolation {
    PolicyViolation {
        policy: matched.policy.name.clone(),
        binding: Arc::clone(&matched.binding),
        message,
        reason: reason.to_owned(),
    }
}

fn evaluate_binding(
    matched: &PolicyMatch,
    scope: &CelScope<'_, '_>,
    budget: &CelBudget,
) -> Vec<PolicyViolation> {
    let params = match &matched.params {
        Ok(params) => params,
        Err(error) => {
            let message = format!("failed to configure binding: {error}");
            return failure(matched, &message).into_iter().collect();
        }
    };
    let mut violations = Vec::new();
    for param in params {
        // The values that the scope borrows outlive a parameter, so it is converted on its own.
        let null = Value::Null;
        let outcome = evaluate_with_param(matched, scope, param.as_ref().unwrap_or(&null), budget);
        violations.extend(outcome);
    }
    violations
}

fn evaluate_with_param(
    matched: &PolicyMatch,
    scope: &CelScope<'_, '_>,
    param: &Value,
    budget: &CelBudget,
) -> Vec<PolicyViolation> {
    let policy = &matched.policy;
    let mut scope = scope.nested();
    if !policy.param_kind.is_null() {
        scope.bind("params", owned(param));
    }
    match conditions_hold(&policy.conditions, &scope) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(error) => return failure(matched, &error).into_iter().collect(),
    }
    let mut evaluation = PolicyEvaluation {
        policy,
        scope: &scope,
        variables: BTreeMap::new(),
    };
    let mut violations = Vec::new();
    for validation in &policy.validations {
        let outcome = evaluation.flag(&validation.condition);
        if budget.is_exhausted() {
            violations.extend(failure(matched, OUT_OF_BUDGET));
            return violations;
        }
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                let message = evaluation.message(validation);
                violations.push(violation(matched, message, &validation.reason));
            }
            Err(error) => violations.extend(failure(matched, &validation.condition.failed(&error))),
        }
    }
    for (key, expression) in &policy.annotations {
        match evaluation.text(expression) {
            Ok(Some(value)) => annotate(policy, &matched.binding, key, &value),
            Ok(None) => {}
            Err(error) => violations.extend(failure(matched, &expression.failed(&error))),
        }
    }
    violations
}

/// Records an audit annotation of a policy.
fn annotate(policy: &CompiledPolicy, binding: &PolicyBinding, key: &str, value: &str) {
    let value: String = value.chars().take(MAX_ANNOTATION_BYTES).collect();
    tracing::info!(
        target: "audit",
        policy = policy.name,
        binding = binding.name,
        annotation = format!("{}/{key}", policy.name),
        value,
    );
}

/// Returns whether all conditions hold. A condition that is false wins over one that fails.
pub(super) fn conditions_hold(
    conditions: &[CompiledExpression],
    scope: &CelScope<'_, '_>,
) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        let outcome = match &condition.program {
            Ok(program) => scope.flag(program),
            Err(error) => Err(error.clone()),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => errors.push(condition.failed(&error)),
        }
    }
    if errors.is_empty() {
        return Ok(true);
    }
    Err(field_error::aggregate(&errors))
}

/// The evaluation of one policy with one parameter: variables are evaluated once, when an expression needs them.
struct PolicyEvaluation<'a, 's, 'p, 'v> {
    policy: &'a CompiledPolicy,
    scope: &'s CelScope<'p, 'v>,
    /// The evaluated variables, by their index.
    variables: BTreeMap<usize, Result<Box<dyn Val + 'v>, String>>,
}

impl<'v> PolicyEvaluation<'_, '_, '_, 'v> {
    fn flag(&mut self, expression: &CompiledExpression) -> Result<bool, String> {
        let program = expression.program.as_ref().map_err(Clone::clone)?;
        self.scope_of(expression, self.policy.variables.len())
            .flag(program)
    }

    fn text(&mut self, expression: &CompiledExpression) -> Result<Option<String>, String> {
        let program = expression.program.as_ref().map_err(Clone::clone)?;
        self.scope_of(expression, self.policy.variables.len())
            .text(program)
    }

    /// Returns the scope of an expression. It sees the first `visible` variables; of two with the same name, the last.
    fn scope_of(&mut self, expression: &CompiledExpression, visible: usize) -> CelScope<'_, 'v> {
        let mut set = CelVariableSet::default();
        for name in &expression.variables {
            let declared = &self.policy.variables[..visible];
            if let Some(index) = declared.iter().rposition(|(own, _)| own == name) {
                let value = self.variable(index);
                set.insert(name, value);
            }
        }
        let mut scope = self.scope.nested();
        scope.bind("variables", Box::new(set));
        scope
    }

    fn variable(&mut self, index: usize) -> Result<Box<dyn Val + 'v>, String> {
        if let Some(evaluated) = self.variables.get(&index) {
            return evaluated.clone();
        }
        let policy = self.policy;
        let (_, expression) = &policy.variables[index];
        let outcome = match &expression.program {
            Ok(program) => self.scope_of(expression, index).value(program),
            Err(error) => Err(error.clone()),
        };
        self.variables.insert(index, outcome.clone());
        outcome
    }

    fn message(&mut self, validation: &PolicyValidation) -> String {
        let computed = validation
            .message_expression
            .as_ref()
            .and_then(|expression| self.text(expression).ok().flatten())
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE_BYTES);
        computed.unwrap_or_else(|| {
            if validation.message.is_empty() {
                format!("failed expression: {}", validation.condition.source.trim())
            } else {
                validation.message.clone()
            }
        })
    }
}

/// Acts on the violations: adds warnings, and returns the error of the first one that denies the write.
pub(super) fn enforce(
    violations: &[PolicyViolation],
    attributes: &AdmissionAttributes,
    warnings: &AdmissionWarnings,
) -> Result<(), ApiError> {
    for found in violations {
        let (policy, binding) = (&found.policy, &found.binding.name);
        if found.binding.does("Warn") {
            warnings.add(&format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                found.message
            ));
        }
        if found.binding.does("Audit") {
            tracing::info!(target: "audit", policy, binding, validation_failure = found.message);
        }
    }
    let Some(denied) = violations.iter().find(|found| found.binding.does("Deny")) else {
        return Ok(());
    };
    let message = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
        denied.policy, denied.binding.name, denied.message
    );
    Err(attributes
        .forbidden(&message)
        .denied_by_policy(&denied.reason, &message))
}

/// Returns a value that borrows nothing.
fn owned(value: &Value) -> Box<dyn Val> {
    crate::schema::cel::untyped_owned(value)
}

fn text(from: &Value, field: &str) -> String {
    from[field].as_str().unwrap_or_default().to_owned()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
