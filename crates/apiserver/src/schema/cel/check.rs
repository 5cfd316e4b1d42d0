//! Static checks of a rule: undeclared names.

use std::collections::BTreeSet;

use cel::common::ast::{EntryExpr, Expr};
use cel::parser::Expression;

use super::value::{CelPosition, escape};
use crate::schema::model::{AdditionalMembers, JsonType};

/// Returns the first name in a rule that is neither a variable nor a member of the value it is selected from.
///
/// Types are followed only along plain selections from `self`. An undeclared name behind a function call is found when
/// the rule is evaluated.
pub fn undefined_reference(
    expression: &Expression,
    place: CelPosition<'_>,
    is_resource: bool,
) -> Option<UndeclaredName> {
    let mut scope = CheckScope {
        place,
        is_resource,
        variables: ["self", "oldSelf"]
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
    };
    scope.visit(expression)
}

/// An undeclared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndeclaredName {
    Variable(String),
    Field(String),
    Function(String),
}

impl UndeclaredName {
    /// Returns the report of a CEL compiler: the position, and the line with a mark below it.
    pub fn located_in(&self, source: &str) -> String {
        let (found, problem) = match self {
            Self::Variable(name) => (
                find_word(source, name),
                format!("undeclared reference to '{name}' (in container '')"),
            ),
            Self::Field(name) => (
                find_word(source, &format!(".{name}")),
                format!("undefined field '{name}'"),
            ),
            Self::Function(name) => (
                source.find(&format!("{name}(")).map(|at| at + name.len()),
                format!("undeclared reference to '{name}' (in container '')"),
            ),
        };
        let at = found.unwrap_or(0);
        let before = &source[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let number = before.matches('\n').count() + 1;
        let column = source[line_start..at].chars().count();
        let line = source[line_start..].lines().next().unwrap_or_default();
        format!(
            "ERROR: <input>:{number}:{}: {problem}\n | {line}\n | {}^",
            column + 1,
            ".".repeat(column)
        )
    }
}

/// Returns the first occurrence of a whole word.
fn find_word(source: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(word).map(|(at, _)| at).find(|at| {
        let after = source[at + word.len()..].chars().next();
        let before = source[..*at].chars().next_back();
        !after.is_some_and(is_part)
            && (word.starts_with('.') || !before.is_some_and(|c| is_part(c) || c == '.'))
    })
}

/// Namespaces of functions, and types: identifiers that are not variables.
pub(super) const GLOBAL: [&str; 18] = [
    "math", "sets", "strings", "base64", "optional", "format", "ip", "cidr", "lists", "cel", "int", "uint",
    "double", "string", "bool", "bytes", "list", "map",
];

struct CheckScope<'s> {
    place: CelPosition<'s>,
    is_resource: bool,
    variables: BTreeSet<String>,
}

impl<'s> CheckScope<'s> {
    fn visit(&mut self, expression: &Expression) -> Option<UndeclaredName> {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.visit(&select.operand).or_else(|| {
                let holder = self.typed(&select.operand)?;
                self.member_error(holder, &select.operand, &select.field)
            }),
            Expr::Call(call) => {
                let target = call.target.as_deref().and_then(|target| self.visit(target));
                target.or_else(|| call.args.iter().find_map(|argument| self.visit(argument)))
            }
            Expr::Comprehension(comprehension) => {
                let outside = self
                    .visit(&comprehension.iter_range)
                    .or_else(|| self.visit(&comprehension.accu_init));
                if outside.is_some() {
                    return outside;
                }
                let mut names = vec![comprehension.iter_var.clone(), comprehension.accu_var.clone()];
                names.extend(comprehension.iter_var2.clone());
                let added: Vec<String> = names
                    .into_iter()
                    .filter(|name| self.variables.insert(name.clone()))
                    .collect();
                let parts = [
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ];
                let problem = parts.into_iter().find_map(|part| self.visit(part));
                for name in added {
                    self.variables.remove(&name);
                }
                problem
            }
            Expr::List(list) => list.elements.iter().find_map(|element| self.visit(element)),
            Expr::Map(map) => map.entries.iter().find_map(|entry| self.entry(&entry.expr)),
            Expr::Struct(fields) => fields.entries.iter().find_map(|entry| self.entry(&entry.expr)),
            Expr::Literal(_) | Expr::Unspecified => None,
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Option<UndeclaredName> {
        match entry {
            EntryExpr::MapEntry(entry) => self.visit(&entry.key).or_else(|| self.visit(&entry.value)),
            EntryExpr::StructField(field) => self.visit(&field.value),
        }
    }

    fn ident(&self, name: &str) -> Option<UndeclaredName> {
        let known = self.variables.contains(name) || GLOBAL.contains(&name) || name.starts_with('@');
        (!known).then(|| UndeclaredName::Variable(name.to_owned()))
    }

    /// Returns the schema that a chain of selections from `self` leads to.
    fn typed(&self, expression: &Expression) -> Option<CelPosition<'s>> {
        match &expression.expr {
            Expr::Ident(name) if name == "self" && self.variables.contains(name) => Some(self.place),
            Expr::Select(select) if !select.test => {
                let holder = self.typed(&select.operand)?;
                let node = holder.node?;
                let property = node
                    .properties
                    .iter()
                    .find(|property| escape(&property.name).as_deref() == Some(&select.field));
                let child = match (property, node.additional) {
                    (Some(property), _) => Some(holder.schema.node(property.node)),
                    (None, AdditionalMembers::Schema(id)) => Some(holder.schema.node(id)),
                    (None, _) => None,
                };
                child.map(|child| CelPosition {
                    node: Some(child),
                    ..holder
                })
            }
            _ => None,
        }
    }

    fn member_error(
        &self,
        holder: CelPosition<'_>,
        operand: &Expression,
        field: &str,
    ) -> Option<UndeclaredName> {
        let node = holder.node.filter(|node| node.json_type == JsonType::Object)?;
        let is_root = matches!(&operand.expr, Expr::Ident(_));
        if (is_root && self.is_resource || node.embedded_resource)
            && matches!(field, "apiVersion" | "kind" | "metadata")
        {
            return None;
        }
        let is_map = matches!(
            node.additional,
            AdditionalMembers::Schema(_) | AdditionalMembers::Schemaless
        );
        let declared = node
            .properties
            .iter()
            .any(|property| escape(&property.name).as_deref() == Some(field));
        let of_metadata = matches!(&operand.expr, Expr::Select(select)
            if select.field == "metadata" && matches!(&select.operand.expr, Expr::Ident(_)));
        let names_resource = of_metadata && self.is_resource && matches!(field, "name" | "generateName");
        (!declared && !is_map && !names_resource).then(|| UndeclaredName::Field(field.to_owned()))
    }
}
