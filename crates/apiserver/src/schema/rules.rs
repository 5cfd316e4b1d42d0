//! The rules of `x-kubernetes-validations`: compiled with the schema, evaluated on every write.

use serde_json::Value;

use super::cel::{CelBudget, CelPosition, CelProgram, RuleInput, with_room};
use super::correlate::{OldItems, old_member};
use super::model::{AdditionalMembers, JsonType, Schema, SchemaNode};
use crate::cpu;
use crate::field_error::{FieldError, FieldReason};

/// The rules of one node.
#[derive(Clone, Debug)]
pub struct CelRules(Vec<CelRule>);

/// One rule.
#[derive(Clone, Debug)]
struct CelRule {
    source: String,
    program: Result<CelProgram, String>,
    message: String,
    message_expression: Option<CelProgram>,
    reason: FieldReason,
    /// The field of the error, relative to the node; empty for the node itself.
    field_path: String,
    /// Whether the rule also runs without an old value, and sees it as an optional.
    optional_old_self: bool,
    uses_old_self: bool,
}

/// The maximum length of a message that an expression computes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

impl CelRules {
    /// Compiles the rules of a node; `None` when it has none.
    pub fn compile(schema: &Value) -> Option<Self> {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array)?;
        let rules: Vec<CelRule> = rules.iter().map(CelRule::compile).collect();
        (!rules.is_empty()).then_some(Self(rules))
    }
}

impl CelRule {
    fn compile(rule: &Value) -> Self {
        let text = |field: &str| {
            rule.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let source = text("rule");
        let program = CelProgram::compile(&source);
        let message_expression = text("messageExpression");
        Self {
            uses_old_self: program.as_ref().is_ok_and(CelProgram::uses_old_self),
            program,
            message: text("message"),
            message_expression: (!message_expression.is_empty())
                .then(|| CelProgram::compile(&message_expression).ok())
                .flatten(),
            reason: match rule.get("reason").and_then(Value::as_str) {
                Some("FieldValueForbidden") => FieldReason::Forbidden,
                Some("FieldValueRequired") => FieldReason::Required,
                Some("FieldValueDuplicate") => FieldReason::Duplicate,
                _ => FieldReason::Invalid,
            },
            field_path: normalised(&text("fieldPath")),
            optional_old_self: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
            source,
        }
    }

    /// Returns the name of the rule in messages.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            &self.source
        } else {
            &self.message
        }
    }

    fn detail(&self, on: &RuleInput<'_, '_>) -> String {
        let composed = self
            .message_expression
            .as_ref()
            .and_then(|program| program.text(on).ok());
        let composed = composed.map(|text| text.trim().to_owned());
        let usable = composed
            .filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE_BYTES);
        usable.unwrap_or_else(|| {
            if self.message.is_empty() {
                format!("failed rule: {}", self.source)
            } else {
                self.message.clone()
            }
        })
    }
}

/// Evaluates every rule on an object, or on the change from `old` to it.
pub fn validate_rules(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = RuleWalk {
        schema,
        budget: CelBudget::for_one_object(),
        errors: Vec::new(),
        stopped: false,
    };
    let unchanged = Unchanged {
        own: old,
        parent: None,
    };
    with_room(|| walk.visit(schema.root(), object, old, unchanged, ""));
    walk.errors
}

struct RuleWalk<'s> {
    schema: &'s Schema,
    budget: CelBudget,
    errors: Vec<FieldError>,
    /// The budget is exhausted, or a rule failed fatally.
    stopped: bool,
}

/// Whether a value is unchanged: then a failed rule is ignored (ratcheting).
#[derive(Clone, Copy)]
struct Unchanged<'v> {
    /// The old value, if it can be correlated.
    own: Option<&'v Value>,
    /// The nearest enclosing value that can be correlated, before and after.
    parent: Option<(&'v Value, &'v Value)>,
}

impl<'v> Unchanged<'v> {
    fn inside(self, value: &'v Value, own: Option<&'v Value>) -> Self {
        match self.own {
            Some(before) => Self {
                own,
                parent: Some((before, value)),
            },
            None => self,
        }
    }

    fn holds(self, value: &Value) -> bool {
        match (self.own, self.parent) {
            (Some(before), _) => before == value,
            (None, Some((before, after))) => before == after,
            (None, None) => false,
        }
    }
}

impl<'s> RuleWalk<'s> {
    fn visit<'v>(
        &mut self,
        node: &'s SchemaNode,
        value: &'v Value,
        old: Option<&'v Value>,
        unchanged: Unchanged<'v>,
        path: &str,
    ) {
        if self.stopped || value.is_null() || cpu::is_out_of_time() {
            return;
        }
        if let Some(rules) = &node.rules {
            self.evaluate(
                rules,
                node,
                value,
                old.filter(|old| !old.is_null()),
                unchanged,
                path,
            );
        }
        match value {
            Value::Array(items) => {
                let Some(child) = self.schema.items(node) else {
                    return;
                };
                let old_items = OldItems::new(old, node);
                for (index, item) in items.iter().enumerate() {
                    let old = old_items.of(item);
                    self.visit(
                        child,
                        item,
                        old,
                        unchanged.inside(value, old),
                        &format!("{path}[{index}]"),
                    );
                }
            }
            Value::Object(fields) => {
                for (name, member) in fields {
                    let (child, path) = match (node.property(name), node.additional) {
                        (Some(property), _) => (property.node, join(path, name)),
                        (None, AdditionalMembers::Schema(id)) => (id, format!("{path}[{name}]")),
                        (None, _) => continue,
                    };
                    let old = old_member(old, name);
                    self.visit(
                        self.schema.node(child),
                        member,
                        old,
                        unchanged.inside(value, old),
                        &path,
                    );
                }
            }
            _ => {}
        }
    }

    fn evaluate(
        &mut self,
        rules: &CelRules,
        node: &'s SchemaNode,
        value: &Value,
        old: Option<&Value>,
        unchanged: Unchanged<'_>,
        path: &str,
    ) {
        let place = CelPosition {
            schema: self.schema,
            node: Some(node),
        };
        let this = place.value(value);
        let old_value = old.map(|old| place.value(old));
        for rule in &rules.0 {
            if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let on = RuleInput {
                this: this.as_ref(),
                old: old_value.as_deref(),
                optional_old: rule.optional_old_self,
                budget: &self.budget.clone(),
            };
            let outcome = match &rule.program {
                Ok(program) => program.holds(&on),
                Err(error) => {
                    self.fail(node, path, &format!("rule compile error: {error}"));
                    continue;
                }
            };
            if self.budget.is_exhausted() {
                let text = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.fail(node, path, text);
                self.stopped = true;
                return;
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    let forgiven = !rule.uses_old_self && unchanged.holds(value);
                    if !forgiven {
                        self.errors.push(violation(rule, node, value, path, &rule.detail(&on)));
                    }
                }
                Err(error) if error.starts_with("no such overload") => self.fail(
                    node,
                    path,
                    &format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                        rule.name()
                    ),
                ),
                Err(error) => self.fail(node, path, &format!("{error} evaluating rule: {}", rule.name())),
            }
        }
    }

    /// Returns the error of a rule that failed to evaluate; the value shown is the name of the type.
    fn fail(&mut self, node: &SchemaNode, path: &str, detail: &str) {
        self.errors.push(FieldError::invalid(
            field(path),
            &Value::from(node.json_type.name()),
            detail,
        ));
    }
}

fn violation(rule: &CelRule, node: &SchemaNode, value: &Value, path: &str, detail: &str) -> FieldError {
    let place = if rule.field_path.is_empty() {
        path.to_owned()
    } else {
        join(path, &rule.field_path)
    };
    let place = field(&place);
    let is_compound = matches!(node.json_type, JsonType::Object | JsonType::Array);
    match rule.reason {
        FieldReason::Forbidden | FieldReason::Required => {
            FieldError::without_value(rule.reason, place, detail)
        }
        FieldReason::Duplicate if is_compound => FieldError::without_value(FieldReason::Duplicate, place, ""),
        FieldReason::Duplicate => FieldError::duplicate(place, value),
        _ if is_compound => FieldError::without_value(FieldReason::Invalid, place, detail),
        _ => FieldError::invalid(place, value, detail),
    }
}

fn field(path: &str) -> String {
    if path.is_empty() {
        "<nil>".to_owned()
    } else {
        path.to_owned()
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Returns a `fieldPath` (`.a.b`, `.a['b.c']`) in the notation of errors.
fn normalised(path: &str) -> String {
    let dotted = path.replace("['", ".").replace("']", "");
    dotted.strip_prefix('.').unwrap_or(&dotted).to_owned()
}
