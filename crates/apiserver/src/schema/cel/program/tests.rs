use serde_json::{Value as Json, json};

use super::*;
use crate::schema::cel::CelPosition;
use crate::schema::compile;

/// Evaluates a rule on a value without a schema.
fn holds(rule: &str, this: &Json) -> Result<bool, String> {
    let schema = compile(&json!({}));
    let place = CelPosition {
        schema: &schema,
        node: None,
    };
    let this = place.value(this);
    let budget = CelBudget::for_one_object();
    let on = RuleInput {
        this: this.as_ref(),
        old: None,
        optional_old: false,
        budget: &budget,
    };
    CelProgram::compile(rule)?.holds(&on)
}

#[test]
fn the_language_and_its_libraries_work_as_kubernetes_documents_them() {
    let value = json!({"s": "abc", "n": 3, "l": [1, 2, 3], "m": {"a": 1}, "e": "", "x": "grün"});
    for rule in [
        "self.s == 'abc' && self.n > 2",
        "size(self.x) == 4",
        "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x == 3)",
        "self.l.map(x, x * 2) == [2, 4, 6]",
        "self.l.filter(x, x > 1).size() == 2",
        "has(self.s) && !has(self.missing)",
        "'a' in self.m && 2 in self.l",
        "self.?missing.orValue('d') == 'd'",
        "self.?m.?a.orValue(5) == 1",
        "self.?m.b.orValue(5) == 5",
        "self.s.matches('^a.c$') && matches(self.s, 'b')",
        "self.s.startsWith('a') && self.s.endsWith('c') && self.s.contains('b')",
        "self.s.upperAscii() == 'ABC' && self.s.replace('b', 'xx') == 'axxc'",
        "'a,b,c'.split(',').size() == 3 && ['a', 'b'].join('-') == 'a-b'",
        "'%s-%d'.format(['a', 1]) == 'a-1'",
        "self.s.find('[b-z]+') == 'bc' && 'abab'.findAll('a').size() == 2",
        "self.l.isSorted() && self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3",
        "self.l.indexOf(2) == 1 && [1, 1].lastIndexOf(1) == 1",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 3])",
        "math.greatest([1, 5]) == 5",
        "isIP('10.0.0.1') && !isIP('10.0.0') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
        "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16')) && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "isURL('https://a.example:80/p?q=1') && url('https://a.example:80/p').getHost() == 'a.example:80'",
        "url('https://[::1]:80/p').getHostname() == '::1' && url('https://a/p?x=1&x=2').getQuery()['x'] == ['1', '2']",
        "!isURL('relative')",
        "quantity('1Gi').isGreaterThan(quantity('1M')) && quantity('1500m').compareTo(quantity('1.5')) == 0",
        "quantity('50k').add(20).sub(quantity('19')) == quantity('50001') && isQuantity('1.5') && !isQuantity('1x')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('v1.2', true).minor() == 2 && !isSemver('1.2')",
        "semver('1.0.0-alpha.1').isLessThan(semver('1.0.0'))",
        "!format.dns1123Subdomain().validate('a.b').hasValue()",
        "format.dns1123Label().validate('A_b').value()[0].contains('lowercase RFC 1123 label')",
        "format.named('uuid').hasValue() && !format.named('nothing').hasValue()",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z') && duration('1h') > duration('30m')",
        "dyn(1) == 1.0 && 1 < 2.5",
        "type(1) == int && string(1) == '1' && int('5') == 5",
        "[1, 0].exists(x, 1 / x > 0)",
        "true || 1 / 0 > 0",
        "(self.n > 5 ? 'x' : 'y') == 'y'",
        "optional.none().hasValue() == false && optional.of(1).value() == 1",
    ] {
        assert_eq!(holds(rule, &value), Ok(true), "{rule}");
    }
}

#[test]
fn failures_read_as_kubernetes_reads_them() {
    for (rule, expected) in [
        ("self.missing == 1", "no such key: missing"),
        ("1 / self.zero > 0", "division by zero"),
        ("self.l[5] == 1", "index out of bounds: 5"),
        ("self.s > 1", "no such overload"),
        ("self.s + 1 == 'x'", "no such overload"),
        ("9223372036854775807 + self.one > 0", "integer overflow"),
        (
            "quantity('x') == quantity('1')",
            "quantities must match the regular expression",
        ),
        ("self.s", "no such overload"),
    ] {
        let value = json!({"s": "abc", "l": [1], "zero": 0, "one": 1});
        let error = holds(rule, &value).expect_err(rule);
        assert!(error.starts_with(expected), "{rule}: {error}");
    }
}

#[test]
fn what_does_not_parse_is_refused_with_the_place() {
    for (source, expected) in [
        ("self.a >", "ERROR: <input>:1:9: Syntax error"),
        ("", "ERROR: <input>:1:1: Syntax error"),
        ("self..a", "ERROR: <input>:1:6: Syntax error"),
    ] {
        let error = CelProgram::compile(source).expect_err(source);
        assert!(error.starts_with(expected), "{source}: {error}");
    }
}

#[test]
fn no_rule_can_keep_the_server_busy() {
    let many: Vec<usize> = (0..2_000).collect();
    let value = json!({"l": many, "s": "a".repeat(100_000)});
    for rule in [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))",
        "self.l.all(a, self.l == self.l)",
        "self.l.all(a, a in self.l) && self.l.all(b, b in self.l)",
        "self.l.map(a, self.s).join('').size() > 0",
        "self.s.replace('a', self.s).size() > 0",
        "(self.s + self.s + self.s + self.s + self.s + self.s).replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').size() > 0",
        "self.l.all(a, self.s.contains('zzz') == false)",
        "self.l.all(a, self.s.matches('(a|b)*zzz') == false)",
        "self.l.map(a, self.l.map(b, self.l)).size() > 0",
        "sets.equivalent(self.l, self.l.map(a, a + 1))",
    ] {
        let begin = std::time::Instant::now();
        let error = holds(rule, &value).expect_err(rule);
        assert!(error.contains("cost limit exceeded"), "{rule}: {error}");
        assert!(
            begin.elapsed() < std::time::Duration::from_secs(20),
            "{rule} took {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn deep_and_long_expressions_are_refused_instead_of_overflowing() {
    let nested = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    let negated = format!("{}true", "!".repeat(5_000));
    let chained = vec!["1"; 4_000].join(" + ") + " > 0";
    let endless = format!("'{}' == ''", "x".repeat(20_000));
    let unbalanced = "(".repeat(16_000);
    let alternatives = format!("{}true", "true ? true : ".repeat(1_000));
    for source in [nested, endless, unbalanced, alternatives] {
        assert!(CelProgram::compile(&source).is_err(), "{} bytes", source.len());
    }
    assert_eq!(holds(&negated, &json!({})), Ok(true));
    let error = holds(&chained, &json!({})).expect_err("a long sum is a deep one");
    assert!(error.contains("recursion limit exceeded"), "{error}");
}

#[test]
fn the_deepest_accepted_expressions_fit_on_the_stack_of_a_request() {
    // The stack size of tokio's workers.
    let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let sum = vec!["self"; 97].join(" + ") + " > 0";
    let lists = format!("{}self{} != []", "[".repeat(90), "]".repeat(90));
    let loops = format!("{}self > 0{}", "[1].all(a, ".repeat(20), ")".repeat(20));
    let evaluate = move || [sum, lists, loops].map(|rule| holds(&rule, &json!(1)));
    let outcomes = worker
        .spawn(evaluate)
        .expect("a thread")
        .join()
        .expect("no overflow");
    assert_eq!(outcomes, [Ok(true), Ok(true), Ok(true)]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_compiled_or_refused_without_harm(
        parts in proptest::collection::vec("self|oldSelf|[.?:,!+*/<>=&|(){}\\[\\]'\"@-]|in|has|all|[a-z0-9]{1,3}|[^a-z]{1,2}", 0..12)
    ) {
        let source = parts.join("");
        if let Ok(program) = CelProgram::compile(&source) {
            let _ = program.uses_old_self();
        }
    }
}

#[test]
fn names_of_the_instrumentation_cannot_be_written() {
    assert!(CelProgram::compile("@charge(@budget, 1) == 1").is_err());
}

#[test]
fn the_old_value_is_noticed_wherever_it_is_used() {
    for (source, expected) in [
        ("self == oldSelf", true),
        ("self.all(x, oldSelf.exists(y, x == y))", true),
        ("{'a': oldSelf}.size() == 1", true),
        ("self.oldSelf == 1", false),
        ("self > 1", false),
    ] {
        assert_eq!(
            CelProgram::compile(source).expect(source).uses_old_self(),
            expected,
            "{source}"
        );
    }
}
