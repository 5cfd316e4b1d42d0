//! Parsing of a rule into an expression of bounded depth.
//!
//! The `cel` crate has two parsers. One is fast and supports the standard macros. The other follows the grammar of
//! Kubernetes, supports the macros of the extensions and has Kubernetes' error messages, but is slow and recurses
//! deeply. Rules are parsed with the first, and with the second if the first is not enough.

use cel::common::ast::{EntryExpr, Expr};
use cel::parser::{Expression, PrattParser};

use super::environment::environment;

/// The maximum length of an expression, because parsing takes long.
const MAX_SOURCE_BYTES: usize = 16 * 1024;

/// The maximum depth, because evaluation recurses with the expression.
const MAX_DEPTH: usize = 100;

/// The maximum depth of brackets and number of chained alternatives (`a ? b : c`), because parsing recurses.
const MAX_NESTING: usize = 250;

/// The stack of the grammar's parser: about 100 KiB for each level of nesting in an unoptimized build.
const PARSER_STACK_BYTES: usize = 128 * 1024 * 1024;

/// Macros that only the grammar's parser expands.
const EXTENDED_MACROS: [&str; 5] = ["optMap", "optFlatMap", "sortBy", "math.greatest", "math.least"];

/// Parses an expression; the error is that of Kubernetes' compiler.
pub(super) fn parse(source: &str) -> Result<Expression, String> {
    if source.len() > MAX_SOURCE_BYTES {
        let size = source.chars().count();
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE_BYTES}"
        ));
    }
    if nesting(source) > MAX_NESTING {
        return Err(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {MAX_NESTING}"
        ));
    }
    stacker::grow(PARSER_STACK_BYTES, || parse_deeply(source))
}

fn parse_deeply(source: &str) -> Result<Expression, String> {
    let extended = EXTENDED_MACROS.iter().any(|name| source.contains(name));
    let quick = if extended {
        None
    } else {
        PrattParser::new().enable_optional_syntax(true).parse(source).ok()
    };
    let expression = if let Some(expression) = quick {
        expression
    } else {
        let env = environment().map_err(ToString::to_string)?;
        env.parser()
            .parse(source)
            .map_err(|errors| in_kubernetes_layout(&errors.to_string()))?
    };
    if is_deeper_than(&expression, MAX_DEPTH) {
        return Err(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {MAX_DEPTH}"
        ));
    }
    Ok(expression)
}

/// Indents the lines that show the position of an error, as Kubernetes does.
fn in_kubernetes_layout(report: &str) -> String {
    report.replace("\n| ", "\n | ")
}

/// Returns an upper bound of the parser's recursion. Brackets inside strings count as well.
fn nesting(source: &str) -> usize {
    let (mut open, mut deepest, mut alternatives) = (0_usize, 0, 0_usize);
    let mut before = ' ';
    for character in source.chars() {
        match character {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '?' if !matches!(before, '.' | '[') => alternatives += 1,
            _ => {}
        }
        deepest = deepest.max(open);
        before = character;
    }
    deepest + alternatives
}

/// Walks iteratively, so that no depth can overflow the stack.
fn is_deeper_than(expression: &Expression, limit: usize) -> bool {
    let mut pending = vec![(expression, 1_usize)];
    while let Some((expression, depth)) = pending.pop() {
        if depth > limit {
            return true;
        }
        pending.extend(children(expression).into_iter().map(|child| (child, depth + 1)));
    }
    false
}

/// Returns the operands of an expression.
pub(crate) fn children(expression: &Expression) -> Vec<&Expression> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Comprehension(comprehension) => vec![
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ],
        Expr::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| entry_parts(&entry.expr))
            .collect(),
        Expr::Struct(fields) => fields
            .entries
            .iter()
            .flat_map(|entry| entry_parts(&entry.expr))
            .collect(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&Expression> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}
