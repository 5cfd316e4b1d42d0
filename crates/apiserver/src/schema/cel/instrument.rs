//! Instrumentation of an expression, so that every expensive operation is charged to the budget.
//!
//! Loops and literals are charged for everything they iterate over or hold, because they copy it. Comparisons, sums and
//! calls are charged for the size of their operands. Rules cannot contain the names used here: CEL identifiers do not
//! begin with `@`.

use std::collections::BTreeSet;

use cel::common::ast::{CallExpr, EntryExpr, Expr, operators};
use cel::parser::Expression;

pub(super) const BUDGET: &str = "@budget";
pub(super) const CHARGE: &str = "@charge";
pub(super) const EQUALS: &str = "@equals";
pub(super) const ADD: &str = "@add";
pub(super) const MATCHES: &str = "@matches";
pub(super) const REPLACE: &str = "@replace";
pub(super) const JOIN: &str = "@join";
pub(super) const CHARGE_ALL: &str = "@chargeAll";
pub(super) const SETS: [(&str, &str); 3] = [
    ("contains", "@sets.contains"),
    ("equivalent", "@sets.equivalent"),
    ("intersects", "@sets.intersects"),
];

/// Instruments an expression with these variables.
pub(super) fn instrument(expression: &mut Expression, variables: &[&str]) {
    let mut scope = InstrumentScope {
        variables: variables.iter().map(|name| (*name).to_owned()).collect(),
    };
    scope.visit(expression);
}

struct InstrumentScope {
    variables: BTreeSet<String>,
}

impl InstrumentScope {
    fn visit(&mut self, expression: &mut Expression) {
        match &mut expression.expr {
            Expr::Call(call) => {
                if let Some(target) = &mut call.target {
                    self.visit(target);
                }
                call.args.iter_mut().for_each(|argument| self.visit(argument));
                if let Some(replacement) = self.call(call) {
                    expression.expr = replacement;
                }
            }
            Expr::Comprehension(comprehension) => {
                self.visit(&mut comprehension.iter_range);
                wrap_in(CHARGE_ALL, &mut comprehension.iter_range);
                self.visit(&mut comprehension.accu_init);
                let mut inner = Self {
                    variables: self.variables.clone(),
                };
                inner.variables.insert(comprehension.iter_var.clone());
                inner.variables.extend(comprehension.iter_var2.clone());
                inner.variables.insert(comprehension.accu_var.clone());
                let accumulator = comprehension.accu_var.clone();
                inner.step(&mut comprehension.loop_step, &accumulator);
                inner.visit(&mut comprehension.result);
            }
            Expr::Select(select) => self.visit(&mut select.operand),
            Expr::List(list) => list.elements.iter_mut().for_each(|element| {
                self.visit(element);
                wrap_in(CHARGE_ALL, element);
            }),
            Expr::Map(map) => map
                .entries
                .iter_mut()
                .for_each(|entry| self.entry(&mut entry.expr)),
            Expr::Struct(fields) => fields
                .entries
                .iter_mut()
                .for_each(|entry| self.entry(&mut entry.expr)),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn entry(&mut self, entry: &mut EntryExpr) {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.visit(&mut entry.key);
                self.visit(&mut entry.value);
                wrap_in(CHARGE_ALL, &mut entry.value);
            }
            EntryExpr::StructField(field) => {
                self.visit(&mut field.value);
                wrap_in(CHARGE_ALL, &mut field.value);
            }
        }
    }

    /// Instruments the step of a macro's loop. Its addition to the accumulator stays, because the evaluator recognizes
    /// it.
    fn step(&mut self, expression: &mut Expression, accumulator: &str) {
        match &mut expression.expr {
            Expr::Call(call) if is_addition_to(call, accumulator) => {
                call.args
                    .iter_mut()
                    .skip(1)
                    .for_each(|argument| self.visit(argument));
            }
            Expr::Call(call) if call.func_name == operators::CONDITIONAL && call.args.len() == 3 => {
                let mut arguments = call.args.iter_mut();
                if let Some(condition) = arguments.next() {
                    self.visit(condition);
                }
                arguments.for_each(|argument| self.step(argument, accumulator));
            }
            _ => self.visit(expression),
        }
    }

    fn call(&self, call: &mut CallExpr) -> Option<Expr> {
        if let Some(metered) = self.set_function(call) {
            return Some(budgeted(metered, std::mem::take(&mut call.args)));
        }
        let replacement = match (call.func_name.as_str(), call.args.len(), call.target.is_some()) {
            (operators::EQUALS, 2, false) => EQUALS,
            (operators::NOT_EQUALS, 2, false) => {
                let equals = budgeted(EQUALS, std::mem::take(&mut call.args));
                return Some(Expr::Call(CallExpr {
                    func_name: operators::LOGICAL_NOT.to_owned(),
                    target: None,
                    args: vec![Expression { id: 0, expr: equals }],
                }));
            }
            (operators::ADD, 2, false) => ADD,
            ("matches", 1, true) | ("matches", 2, false) => MATCHES,
            ("replace", 2 | 3, true) => REPLACE,
            ("join", 0 | 1, true) => JOIN,
            (operators::IN, 2, false) => {
                call.args.iter_mut().for_each(wrap);
                return None;
            }
            // Logic and selection have no cost of their own.
            (name, ..) if name.starts_with(['_', '!', '-', '@']) => return None,
            _ => {
                call.args.iter_mut().for_each(wrap);
                if let Some(target) = call.target.as_deref_mut().filter(|target| self.is_value(target)) {
                    wrap(target);
                }
                return None;
            }
        };
        let mut arguments = Vec::with_capacity(3);
        arguments.extend(call.target.take().map(|target| *target));
        arguments.append(&mut call.args);
        Some(budgeted(replacement, arguments))
    }

    /// Returns the metered name of a function over two sets, which compares each item of one with each of the other.
    fn set_function(&self, call: &CallExpr) -> Option<&'static str> {
        let target = call.target.as_deref()?;
        let is_namespace =
            matches!(&target.expr, Expr::Ident(name) if name == "sets") && !self.is_value(target);
        let known = SETS.iter().find(|(name, _)| *name == call.func_name);
        known
            .filter(|_| is_namespace && call.args.len() == 2)
            .map(|(_, metered)| *metered)
    }

    /// Returns whether a call's target is a value, rather than the namespace of a function (`math.abs`).
    fn is_value(&self, target: &Expression) -> bool {
        match &target.expr {
            Expr::Ident(name) => self.variables.contains(name),
            Expr::Select(select) => self.is_value(&select.operand),
            _ => true,
        }
    }
}

fn is_addition_to(call: &CallExpr, accumulator: &str) -> bool {
    call.func_name == operators::ADD
        && matches!(call.args.first().map(|argument| &argument.expr), Some(Expr::Ident(name)) if name == accumulator)
}

/// Charges for reading a value, unless it is a constant.
fn wrap(expression: &mut Expression) {
    wrap_in(CHARGE, expression);
}

fn wrap_in(function: &str, expression: &mut Expression) {
    if !matches!(expression.expr, Expr::Literal(_)) {
        let inner = std::mem::take(expression);
        expression.id = inner.id;
        expression.expr = budgeted(function, vec![inner]);
    }
}

fn budgeted(function: &str, arguments: Vec<Expression>) -> Expr {
    let mut args = vec![Expression {
        id: 0,
        expr: Expr::Ident(BUDGET.to_owned()),
    }];
    args.extend(arguments);
    Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    })
}
