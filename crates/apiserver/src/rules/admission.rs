//! Validating admission policies and their bindings. Expressions are compiled, so that a stored policy is one that can
//! be enforced.

use std::collections::BTreeSet;

use serde_json::Value;

use super::admission_match::{conditions, match_resources, one_of, selector, text, texts};
use super::{items, webhooks};
use crate::admission::{ExpressionUse, PolicyDeclarations};
use crate::field_error::FieldError;
use crate::names;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const BLANK: &str = "must be non-empty if specified";
const NO_EXPRESSION: &str = "expression is not specified";
/// The maximum number of audit annotations.
const MOST_ANNOTATIONS: usize = 20;

pub(super) fn check(kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    // A change of the status or the metadata must not fail because of a spec that was accepted before.
    let unchanged = |field: &str| old.is_some_and(|old| old.get(field) == new.get(field));
    match kind {
        "ValidatingAdmissionPolicy" if !unchanged("spec") => policy(new),
        "ValidatingAdmissionPolicyBinding" if !unchanged("spec") => binding(new),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" if !unchanged("webhooks") => {
            webhooks::configuration(kind, new)
        }
        _ => Vec::new(),
    }
}

fn policy(policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &policy["spec"];
    one_of(spec, "spec", "failurePolicy", &["Fail", "Ignore"], &mut errors);
    if spec["paramKind"].is_object() {
        param_kind(&spec["paramKind"], &mut errors);
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_object() {
        if texts_missing(constraints, "resourceRules") {
            errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
        match_resources(constraints, "spec.matchConstraints", &mut errors);
    } else {
        errors.push(FieldError::required("spec.matchConstraints", ""));
    }
    if texts_missing(spec, "validations") && texts_missing(spec, "auditAnnotations") {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required("spec.validations", detail));
        errors.push(FieldError::required("spec.auditAnnotations", detail));
    }
    let mut declarations = PolicyDeclarations::new(spec);
    conditions(spec, "spec", &declarations, &mut errors);
    variables(spec, &mut declarations, &mut errors);
    for (index, validation) in items(spec, "/validations") {
        check_validation(
            validation,
            &format!("spec.validations[{index}]"),
            &declarations,
            &mut errors,
        );
    }
    annotations(policy, &declarations, &mut errors);
    errors
}

fn texts_missing(from: &Value, field: &str) -> bool {
    from[field].as_array().is_none_or(Vec::is_empty)
}

fn param_kind(kind: &Value, errors: &mut Vec<FieldError>) {
    let (api_version, name) = (text(kind, "apiVersion"), text(kind, "kind"));
    if api_version.is_empty() {
        errors.push(FieldError::required("spec.paramKind.apiVersion", ""));
    } else if api_version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(
            "spec.paramKind.apiVersion",
            &kind["apiVersion"],
            &detail,
        ));
    }
    if name.is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
        return;
    }
    let problems = names::dns1035_label(&name.to_ascii_lowercase());
    if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.push(FieldError::invalid("spec.paramKind.kind", &kind["kind"], &detail));
    }
}

fn variables(spec: &Value, declarations: &mut PolicyDeclarations, errors: &mut Vec<FieldError>) {
    for (index, variable) in items(spec, "/variables") {
        let path = format!("spec.variables[{index}]");
        let (name, source) = (text(variable, "name"), text(variable, "expression"));
        if name.is_empty() {
            errors.push(FieldError::required(
                format!("{path}.name"),
                "name is not specified",
            ));
        } else if !is_identifier(name) {
            let detail = "must be a valid CEL identifier";
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &variable["name"],
                detail,
            ));
        }
        if source.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), NO_EXPRESSION));
            continue;
        }
        let result = declarations.compile(source, ExpressionUse::Variable);
        match result {
            Ok((_, declared)) => declarations.declare_variable(name, &declared),
            Err(error) => {
                declarations.declare_variable(name, &crate::schema::cel::CelType::Unknown);
                errors.push(FieldError::invalid(
                    format!("{path}.expression"),
                    &variable["expression"],
                    &error,
                ));
            }
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && crate::schema::cel::is_plain_name(name)
}

fn check_validation(
    validation: &Value,
    path: &str,
    declarations: &PolicyDeclarations,
    errors: &mut Vec<FieldError>,
) {
    let source = text(validation, "expression");
    if source.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.expression"), NO_EXPRESSION));
    } else if let Err(error) = declarations.compile(source, ExpressionUse::Validation) {
        errors.push(FieldError::invalid(
            format!("{path}.expression"),
            &validation["expression"],
            &error,
        ));
    }
    let message = text(validation, "message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &validation["message"],
            BLANK,
        ));
    } else if message.trim().contains('\n') {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &validation["message"],
            detail,
        ));
    }
    let computed = text(validation, "messageExpression");
    if !computed.is_empty() {
        let problem = if computed.trim().is_empty() {
            Some(BLANK.to_owned())
        } else {
            declarations.compile(computed, ExpressionUse::Message).err()
        };
        if let Some(problem) = problem {
            let field = format!("{path}.messageExpression");
            errors.push(FieldError::invalid(
                field,
                &validation["messageExpression"],
                &problem,
            ));
        }
    }
    one_of(validation, path, "reason", &REASONS, errors);
}

fn annotations(policy: &Value, declarations: &PolicyDeclarations, errors: &mut Vec<FieldError>) {
    let spec = &policy["spec"];
    let count = spec["auditAnnotations"].as_array().map_or(0, Vec::len);
    if count > MOST_ANNOTATIONS {
        errors.push(FieldError::too_many(
            "spec.auditAnnotations",
            count,
            MOST_ANNOTATIONS,
        ));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, annotation) in items(spec, "/auditAnnotations") {
        let path = format!("spec.auditAnnotations[{index}]");
        let key = format!(
            "{}/{}",
            text(&policy["metadata"], "name"),
            text(annotation, "key")
        );
        for problem in names::label_key(&key) {
            errors.push(FieldError::invalid(
                format!("{path}.key"),
                &Value::from(key.as_str()),
                &problem,
            ));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(format!("{path}.key"), &annotation["key"]));
        }
        let source = text(annotation, "valueExpression");
        let field = format!("{path}.valueExpression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(field, "valueExpression is not specified"));
        } else if let Err(error) = declarations.compile(source, ExpressionUse::Annotation) {
            errors.push(FieldError::invalid(field, &annotation["valueExpression"], &error));
        }
    }
}

fn binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &binding["spec"];
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.push(FieldError::required("spec.policyName", ""));
    } else {
        for problem in names::dns1123_subdomain(policy) {
            errors.push(FieldError::invalid(
                "spec.policyName",
                &spec["policyName"],
                &problem,
            ));
        }
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &mut errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], "spec.matchResources", &mut errors);
    }
    actions(&spec["validationActions"], &mut errors);
    errors
}

fn param_ref(reference: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.paramRef";
    let (named, selecting) = (
        !text(reference, "name").is_empty(),
        reference["selector"].is_object(),
    );
    match (named, selecting) {
        (true, true) => {
            for field in ["name", "selector"] {
                let detail = "name and selector are mutually exclusive";
                errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
            }
        }
        (false, false) => {
            errors.push(FieldError::required(
                path,
                "one of name or selector must be specified",
            ));
        }
        _ => {}
    }
    selector(&reference["selector"], &format!("{path}.selector"), errors);
    if text(reference, "parameterNotFoundAction").is_empty() {
        errors.push(FieldError::required(
            format!("{path}.parameterNotFoundAction"),
            "",
        ));
    } else {
        one_of(
            reference,
            path,
            "parameterNotFoundAction",
            &["Deny", "Allow"],
            errors,
        );
    }
}

fn actions(list: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.validationActions";
    let actions = texts(list);
    if actions.is_empty() {
        errors.push(FieldError::required(
            path,
            "at least one validation action is required",
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let (at, value) = (format!("{path}[{index}]"), Value::from(*action));
        if !ACTIONS.contains(action) {
            errors.push(FieldError::not_supported(at.as_str(), &value, &ACTIONS));
        }
        if !seen.insert(*action) {
            errors.push(FieldError::duplicate(at, &value));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, list, detail));
    }
}
