//! Static types of expressions in admission policies.
//!
//! Objects have no schema here, so most values are `dyn`. The check finds names, fields and functions that are not
//! declared, and results of the wrong type. A type that it cannot infer is accepted, and checked on evaluation.

use std::collections::BTreeMap;
use std::fmt;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;
use cel::{Context, ExecutionError, Value};

use super::check::{GLOBAL, UndeclaredName};
use super::environment::environment;
use super::instrument::SETS;
use super::program::CelProgram;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CelType {
    /// Any type, checked on evaluation.
    Dyn,
    /// A type that the check cannot infer.
    Unknown,
    Named(&'static str),
    List(Box<CelType>),
    Map(Box<CelType>, Box<CelType>),
    /// An object with these fields only.
    Object(BTreeMap<String, CelType>),
}

pub(crate) const BOOL: CelType = CelType::Named("bool");
pub(crate) const STRING: CelType = CelType::Named("string");
pub(crate) const INT: CelType = CelType::Named("int");
const AUTHORIZER: CelType = CelType::Named("kubernetes.authorization.Authorizer");
const RESOURCE_CHECK: CelType = CelType::Named("kubernetes.authorization.ResourceCheck");

impl fmt::Display for CelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Unknown => f.write_str("dyn"),
            Self::Named(name) => f.write_str(name),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
        }
    }
}

impl CelType {
    pub fn list(item: Self) -> Self {
        Self::List(Box::new(item))
    }

    pub fn map(value: Self) -> Self {
        Self::Map(Box::new(STRING), Box::new(value))
    }

    pub fn object(fields: &[(&str, Self)]) -> Self {
        Self::Object(
            fields
                .iter()
                .map(|(name, field)| ((*name).to_owned(), field.clone()))
                .collect(),
        )
    }

    fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Unknown)
    }
}

/// The declared variables of an expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelDeclarations(BTreeMap<String, CelType>);

impl CelDeclarations {
    pub fn declare(&mut self, name: &str, declared: CelType) {
        self.0.insert(name.to_owned(), declared);
    }

    /// Declares the fields of `variables`, one after the other.
    pub fn declare_variable(&mut self, name: &str, declared: CelType) {
        let variables = self
            .0
            .entry("variables".to_owned())
            .or_insert_with(|| CelType::Object(BTreeMap::new()));
        if let CelType::Object(fields) = variables {
            fields.insert(name.to_owned(), declared);
        }
    }

    /// Declares `authorizer`.
    pub fn declare_authorizer(&mut self) {
        self.declare("authorizer", AUTHORIZER);
    }

    /// Compiles an expression and returns its type; the error is that of a CEL compiler.
    pub fn compile(&self, source: &str) -> Result<(CelProgram, CelType), String> {
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let program = CelProgram::compile_with(source, &names)?;
        let mut scope = TypeScope {
            variables: self.0.clone(),
        };
        match scope.infer(program.expression()) {
            Ok(inferred) => Ok((program, inferred)),
            Err(undeclared) => Err(undeclared.located_in(source)),
        }
    }
}

struct TypeScope {
    variables: BTreeMap<String, CelType>,
}

impl TypeScope {
    fn infer(&mut self, expression: &Expression) -> Result<CelType, UndeclaredName> {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let holder = self.infer(&select.operand)?;
                let field = field_type(&holder, &select.field)?;
                Ok(if select.test { BOOL } else { field })
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => {
                let range = self.infer(&comprehension.iter_range)?;
                let initial = self.infer(&comprehension.accu_init)?;
                let item = match (&range, &comprehension.iter_var2) {
                    (CelType::List(item), None) => (**item).clone(),
                    (CelType::Map(key, _), None) => (**key).clone(),
                    (range, None) if range.is_dynamic() => CelType::Dyn,
                    _ => CelType::Unknown,
                };
                let outer = self.variables.clone();
                self.variables.insert(comprehension.iter_var.clone(), item);
                if let Some(second) = &comprehension.iter_var2 {
                    self.variables.insert(second.clone(), CelType::Unknown);
                }
                self.variables.insert(comprehension.accu_var.clone(), initial);
                self.infer(&comprehension.loop_cond)?;
                self.infer(&comprehension.loop_step)?;
                let result = self.infer(&comprehension.result);
                self.variables = outer;
                result
            }
            Expr::List(list) => {
                let items: Vec<CelType> = list
                    .elements
                    .iter()
                    .map(|element| self.infer(element))
                    .collect::<Result<_, _>>()?;
                Ok(CelType::list(common(&items)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.infer(&entry.key)?);
                        values.push(self.infer(&entry.value)?);
                    }
                }
                Ok(CelType::Map(Box::new(common(&keys)), Box::new(common(&values))))
            }
            Expr::Struct(_) | Expr::Unspecified => Ok(CelType::Unknown),
            Expr::Literal(literal) => Ok(literal_type(literal)),
        }
    }

    fn ident(&self, name: &str) -> Result<CelType, UndeclaredName> {
        if let Some(declared) = self.variables.get(name) {
            return Ok(declared.clone());
        }
        if GLOBAL.contains(&name) || name.starts_with('@') {
            return Ok(CelType::Unknown);
        }
        Err(UndeclaredName::Variable(name.to_owned()))
    }

    fn call(&mut self, call: &CallExpr) -> Result<CelType, UndeclaredName> {
        let arguments: Vec<CelType> = call
            .args
            .iter()
            .map(|argument| self.infer(argument))
            .collect::<Result<_, _>>()?;
        let name = call.func_name.as_str();
        if let Some(target) = call.target.as_deref() {
            if let Some(qualified) = self.qualified(target, name) {
                // Functions over sets exist only in their metered form.
                if SETS.iter().any(|(set, _)| qualified == format!("sets.{set}")) {
                    return Ok(BOOL);
                }
                if is_function(&qualified, false) {
                    return Ok(CelType::Unknown);
                }
            }
            self.infer(target)?;
            if !is_function(name, true) {
                return Err(UndeclaredName::Function(name.to_owned()));
            }
            return Ok(member_result(name));
        }
        if let Some(result) = operator_result(name, &arguments) {
            return Ok(result);
        }
        if !is_function(name, false) {
            return Err(UndeclaredName::Function(name.to_owned()));
        }
        Ok(function_result(name))
    }

    /// Returns `a.b.f` for a call of `f` on names that are not variables.
    fn qualified(&self, target: &Expression, function: &str) -> Option<String> {
        match &target.expr {
            Expr::Ident(name) if !self.variables.contains_key(name) => Some(format!("{name}.{function}")),
            Expr::Select(select) if !select.test => {
                self.qualified(&select.operand, &format!("{}.{function}", select.field))
            }
            _ => None,
        }
    }
}

fn field_type(holder: &CelType, field: &str) -> Result<CelType, UndeclaredName> {
    match holder {
        CelType::Object(fields) => {
            let declared = fields.get(field).cloned();
            declared.ok_or_else(|| UndeclaredName::Field(field.to_owned()))
        }
        CelType::Map(_, value) => Ok((**value).clone()),
        holder if *holder == AUTHORIZER && field == "requestResource" => Ok(RESOURCE_CHECK),
        CelType::Dyn => Ok(CelType::Dyn),
        _ => Ok(CelType::Unknown),
    }
}

/// Returns the type of all of these, or `dyn` if they differ.
fn common(types: &[CelType]) -> CelType {
    match types {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => first.clone(),
        _ => CelType::Dyn,
    }
}

fn literal_type(literal: &LiteralValue) -> CelType {
    CelType::Named(match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::Null => "null_type",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
    })
}

/// Returns the type of an operator's result; `None` if the name is not that of an operator.
fn operator_result(name: &str, arguments: &[CelType]) -> Option<CelType> {
    let first = arguments.first().cloned().unwrap_or(CelType::Unknown);
    Some(match name {
        operators::CONDITIONAL => match arguments {
            [_, left, right] if left == right => left.clone(),
            [_, left, right] if *left == CelType::Dyn || *right == CelType::Dyn => CelType::Dyn,
            _ => CelType::Unknown,
        },
        operators::ADD
        | operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO => match arguments {
            [left, _] if !left.is_dynamic() => left.clone(),
            [_, right] => right.clone(),
            _ => CelType::Unknown,
        },
        operators::NEGATE => first,
        operators::INDEX => match first {
            CelType::List(item) | CelType::Map(_, item) => *item,
            CelType::Dyn => CelType::Dyn,
            _ => CelType::Unknown,
        },
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::IN => BOOL,
        name if name.starts_with(['_', '!', '-', '@']) => CelType::Unknown,
        _ => return None,
    })
}

fn function_result(name: &str) -> CelType {
    match name {
        "size" | "int" => INT,
        "string" => STRING,
        "bool" => BOOL,
        "double" => CelType::Named("double"),
        "uint" => CelType::Named("uint"),
        "dyn" => CelType::Dyn,
        _ => CelType::Unknown,
    }
}

fn member_result(name: &str) -> CelType {
    match name {
        "allowed" | "errored" | "contains" | "startsWith" | "endsWith" | "matches" | "hasValue" => BOOL,
        "size" => INT,
        "reason" | "error" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "join" | "format" => STRING,
        "check" => CelType::Named("kubernetes.authorization.Decision"),
        "path" => CelType::Named("kubernetes.authorization.PathCheck"),
        "group" => CelType::Named("kubernetes.authorization.GroupCheck"),
        "serviceAccount" => AUTHORIZER,
        "resource" | "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector" => {
            RESOURCE_CHECK
        }
        _ => CelType::Unknown,
    }
}

/// Returns whether a function of this name exists, for any arguments.
///
/// The environment has no list of its functions: a call without usable arguments fails differently for a function that
/// exists than for one that does not.
fn is_function(name: &str, is_member: bool) -> bool {
    let Ok(env) = environment() else {
        return false;
    };
    let literal = |value| Expression {
        id: 0,
        expr: Expr::Literal(value),
    };
    let call = Expression {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: is_member.then(|| Box::new(literal(LiteralValue::Null))),
            args: Vec::new(),
        }),
    };
    let context = Context::with_env(std::sync::Arc::clone(env));
    let outcome = Value::resolve_val(&call, &context);
    !matches!(outcome, Err(ExecutionError::UndeclaredReference(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declarations() -> CelDeclarations {
        let mut declarations = CelDeclarations::default();
        declarations.declare("object", CelType::Dyn);
        declarations.declare("request", CelType::object(&[("name", STRING)]));
        declarations.declare_authorizer();
        declarations.declare_variable("flag", BOOL);
        declarations
    }

    #[test]
    fn every_function_that_policies_use_is_declared() {
        for source in [
            "object.metadata.namespace == 'a' && object.a.all(c, c.image.startsWith('x'))",
            "object.l.exists_one(x, x == 3) && object.l.map(x, x * 2).size() == 1 && has(object.a.b)",
            "object.?missing.orValue('d') == 'd' && object[?'a'].hasValue()",
            "object.s.matches('^a$') && matches(object.s, 'b') && 'a,b'.split(',').join('-') != ''",
            "object.s.upperAscii().replace('b', 'x').substring(1).trim() == '%s'.format(['a'])",
            "object.s.find('[a]') == 'a' && object.s.findAll('a').size() == 2",
            "object.l.isSorted() && object.l.sum() == 6 && object.l.min() < object.l.max() && object.l.indexOf(2) == 1",
            "sets.contains([1], [2]) && sets.equivalent([1], [2]) && sets.intersects([1], [3])",
            "math.greatest([1, 5]) == 5 && math.least(1, 2) == 1",
            "isIP('10.0.0.1') && ip('::1').family() == 6 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "isURL('https://a') && url('https://a').getHost() == 'a'",
            "quantity('1Gi').isGreaterThan(quantity('1M')) && semver('1.2.3').minor() == 2",
            "!format.dns1123Label().validate('a').hasValue()",
            "int(object.n) > 1 && string(1) == '1' && double('1.5') > 1.0 && bool('true')",
            "type(object.s) == string && dyn(1) == 1 && size(object.l) == 1",
            "timestamp(object.t) + duration('1h') > timestamp('2020-01-01T00:00:00Z')",
            "optional.of(1).hasValue() && optional.none().orValue(2) == 2",
            "authorizer.group('').resource('pods').subresource('x').namespace('n').name('p').check('get').allowed()",
            "authorizer.serviceAccount('n', 'a').path('/x').check('get').reason() == ''",
            "authorizer.requestResource.check('get').allowed() && variables.flag && request.name != ''",
        ] {
            let compiled = declarations().compile(source);
            assert!(compiled.is_ok(), "{source}: {}", compiled.unwrap_err());
        }
    }

    #[test]
    fn results_have_the_type_that_kubernetes_infers() {
        for (source, expected) in [
            ("object.a", "dyn"),
            ("object.a == 1", "bool"),
            ("'a' + object.b", "string"),
            ("[1, 2]", "list(int)"),
            ("{'a': true}", "map(string, bool)"),
            ("object.a.map(x, x)", "list(dyn)"),
            ("true ? object.a : false", "dyn"),
            ("variables.flag", "bool"),
            ("request.name", "string"),
        ] {
            let (_, inferred) = declarations().compile(source).unwrap();
            assert_eq!(inferred.to_string(), expected, "{source}");
        }
    }

    #[test]
    fn undeclared_names_are_reported_at_their_position() {
        for (source, expected) in [
            ("objekt.x == 1", "1:1: undeclared reference to 'objekt'"),
            ("request.nope == 1", "1:8: undefined field 'nope'"),
            ("variables.other", "1:10: undefined field 'other'"),
            ("foo(object)", "1:4: undeclared reference to 'foo'"),
            ("object.x.foo(1)", "1:13: undeclared reference to 'foo'"),
            ("sets.nope([1])", "1:10: undeclared reference to 'nope'"),
        ] {
            let error = declarations().compile(source).unwrap_err();
            assert!(error.contains(expected), "{source}: {error}");
        }
    }
}
