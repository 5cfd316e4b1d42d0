//! Validation of a RolloutPolicy when it is written: a policy that could never proceed is refused.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mco_api::rollout_policy::{DrainTimeoutAction, GateEndpoint, RolloutGate, RolloutPolicy, SecretKey};

use super::confirm::{DEADLINE_HINT, SHORTEST_DEADLINE};
use super::text::{duration_of, parse_duration};
use super::window::Window;
use super::{name_of, order};
use crate::config::problem::{InvalidObject, Problem};
use crate::config::selector::Selector;

/// The daemon reports a drain of more than an hour as failed.
const LONGEST_EXCLUSION: SignedDuration = SignedDuration::from_mins(30);
const DURATION_HINT: &str = "use a duration such as 30s, 10m or 1h30m";
const SHARE_HINT: &str = "use a number like 2 without quotes or a percentage like \"10%\"";

/// Validates a policy. `others` are the policies of the cluster, for the order between them.
pub fn admit_policy<'p>(
    policy: &'p RolloutPolicy,
    others: impl IntoIterator<Item = &'p RolloutPolicy>,
) -> Result<(), InvalidObject> {
    let mut problems = Vec::new();
    selector(&mut problems, policy);
    waves(&mut problems, policy);
    limits(&mut problems, policy);
    for (index, window) in policy.spec.windows.iter().enumerate() {
        if let Err(error) = Window::parse(window) {
            let path = format!("spec.windows[{index}].{}", error.field);
            problems.push(Problem::new(path, error.message).with_hint(error.hint));
        }
    }
    gates(&mut problems, policy);
    deadlines(&mut problems, policy);
    for (index, notify) in policy.spec.notify.iter().enumerate() {
        secret(
            &mut problems,
            &format!("spec.notify[{index}].secretRef"),
            Some(&notify.secret_ref),
        );
    }
    if let Some(cycle) = order::cycle(policy, others) {
        problems.push(
            Problem::new("spec.after", format!("the policies wait for each other: {cycle}"))
                .with_hint("remove one of them from after"),
        );
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(InvalidObject {
        kind: "RolloutPolicy".to_owned(),
        name: name_of(policy).to_owned(),
        problems,
    })
}

fn selector(problems: &mut Vec<Problem>, policy: &RolloutPolicy) {
    let path = "spec.poolSelector";
    match policy.spec.pool_selector.as_ref().map(Selector::parse) {
        None => problems.push(
            Problem::new(path, "the policy selects no pool")
                .with_hint("name labels of MachineConfigPools; {} selects all of them"),
        ),
        Some(Err(error)) => problems.push(Problem::new(path, error.to_string())),
        Some(Ok(_)) => {}
    }
}

fn waves(problems: &mut Vec<Problem>, policy: &RolloutPolicy) {
    for (index, wave) in policy.spec.waves.iter().enumerate() {
        let path = |field: &str| format!("spec.waves[{index}].{field}");
        if let Some(Err(error)) = wave.selector.as_ref().map(Selector::parse) {
            problems.push(Problem::new(path("selector"), error.to_string()));
        }
        if let Some(limit) = &wave.limit {
            share(problems, &path("limit"), limit, "so the wave has no nodes");
        }
        duration(problems, &path("soak"), &wave.soak, SignedDuration::ZERO);
        if wave.selector.is_none() && wave.limit.is_none() && index + 1 < policy.spec.waves.len() {
            problems.push(
                Problem::new(path("limit"), "the wave has all nodes, so later waves have none")
                    .with_hint("add a selector or a limit, or remove the waves after it"),
            );
        }
    }
}

fn limits(problems: &mut Vec<Problem>, policy: &RolloutPolicy) {
    if let Some(failures) = &policy.spec.max_failures {
        let path = "spec.maxFailures.count";
        match &failures.count {
            Some(count) => share(problems, path, count, "so no node is ever updated"),
            None => problems.push(Problem::new(path, "is missing").with_hint(SHARE_HINT)),
        }
    }
    for (index, budget) in policy.spec.budgets.iter().enumerate() {
        let path = format!("spec.budgets[{index}].maxUnavailable");
        match &budget.max_unavailable {
            Some(limit) => share(problems, &path, limit, "so no node is ever updated"),
            None => problems.push(Problem::new(path, "is missing").with_hint(SHARE_HINT)),
        }
    }
}

fn gates(problems: &mut Vec<Problem>, policy: &RolloutPolicy) {
    for (index, gate) in policy.spec.gates.iter().enumerate() {
        let path = |field: &str| format!("spec.gates[{index}].{field}");
        if gate.name.is_empty() {
            problems.push(Problem::new(path("name"), "is missing").with_hint("name what is checked"));
        }
        let twice = policy
            .spec
            .gates
            .iter()
            .take(index)
            .any(|other| other.name == gate.name);
        if twice {
            problems.push(Problem::new(
                path("name"),
                format!("{:?} is used twice", gate.name),
            ));
        }
        duration(
            problems,
            &path("interval"),
            &gate.interval,
            SignedDuration::from_secs(1),
        );
        let kinds = [
            gate.prometheus.is_some(),
            gate.webhook.is_some(),
            gate.condition.is_some(),
            gate.control_plane.is_some(),
        ];
        if kinds.into_iter().filter(|set| *set).count() != 1 {
            problems.push(
                Problem::new(
                    format!("spec.gates[{index}]"),
                    "the gate checks nothing, or several things",
                )
                .about(gate.name.clone())
                .with_hint("set exactly one of prometheus, webhook, condition and controlPlane"),
            );
        }
        gate_settings(problems, &path, gate);
    }
}

fn gate_settings(problems: &mut Vec<Problem>, path: &dyn Fn(&str) -> String, gate: &RolloutGate) {
    if let Some(prometheus) = &gate.prometheus {
        endpoint(problems, &path("prometheus"), &prometheus.endpoint);
        if prometheus.expr.is_empty() == prometheus.no_firing.is_empty() {
            problems.push(
                Problem::new(
                    path("prometheus.expr"),
                    "a Prometheus gate has an expr or noFiring",
                )
                .with_hint("use expr: \"up == 1\" or noFiring: 'severity=\"critical\"'"),
            );
        }
        duration(
            problems,
            &path("prometheus.for"),
            &prometheus.passing_for,
            SignedDuration::ZERO,
        );
    }
    if let Some(webhook) = &gate.webhook {
        endpoint(problems, &path("webhook"), &webhook.endpoint);
        duration(
            problems,
            &path("webhook.timeout"),
            &webhook.timeout,
            SignedDuration::from_secs(1),
        );
    }
    if let Some(condition) = &gate.condition {
        let fields = [
            ("apiVersion", &condition.api_version),
            ("kind", &condition.kind),
            ("name", &condition.name),
            ("type", &condition.type_),
        ];
        for (field, _) in fields.iter().filter(|(_, value)| value.is_empty()) {
            let path = path(&format!("condition.{field}"));
            problems.push(Problem::new(path, "is missing, so the gate never passes"));
        }
    }
}

fn endpoint(problems: &mut Vec<Problem>, path: &str, endpoint: &GateEndpoint) {
    url(problems, &format!("{path}.url"), &endpoint.url);
    secret(
        problems,
        &format!("{path}.tokenSecret"),
        endpoint.token_secret.as_ref(),
    );
}

fn deadlines(problems: &mut Vec<Problem>, policy: &RolloutPolicy) {
    let second = SignedDuration::from_secs(1);
    if let Some(confirm) = &policy.spec.confirm {
        let text = &confirm.deadline;
        if duration_of(text).is_none_or(|deadline| deadline < SHORTEST_DEADLINE) {
            problems.push(
                Problem::new(
                    "spec.confirm.deadline",
                    format!("{text:?} is not a duration of at least one minute"),
                )
                .with_hint(DEADLINE_HINT),
            );
        }
    }
    if let Some(drain) = &policy.spec.drain {
        duration(problems, "spec.drain.timeout", &drain.timeout, second);
        if drain.timeout.is_empty() && drain.on_timeout != DrainTimeoutAction::Wait {
            problems.push(
                Problem::new("spec.drain.timeout", "is missing, so onTimeout has no effect")
                    .with_hint(DURATION_HINT),
            );
        }
        let path = "spec.drain.excludeFromLoadBalancers";
        duration(
            problems,
            path,
            &drain.exclude_from_load_balancers,
            SignedDuration::ZERO,
        );
        let exclusion = parse_duration(&drain.exclude_from_load_balancers);
        if exclusion.is_some_and(|exclusion| exclusion > LONGEST_EXCLUSION) {
            problems.push(
                Problem::new(
                    path,
                    format!(
                        "{:?} is longer than half an hour",
                        drain.exclude_from_load_balancers
                    ),
                )
                .with_hint("load balancers need seconds or a few minutes"),
            );
        }
    }
}

fn secret(problems: &mut Vec<Problem>, path: &str, secret: Option<&SecretKey>) {
    if secret.is_some_and(|secret| secret.name.is_empty()) {
        problems.push(
            Problem::new(format!("{path}.name"), "is missing")
                .with_hint("name a Secret in the namespace of the operator"),
        );
    }
}

fn url(problems: &mut Vec<Problem>, path: &str, url: &str) {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if host.is_none_or(str::is_empty) || url.contains(char::is_whitespace) {
        problems.push(
            Problem::new(path, format!("{url:?} is not a URL, so the gate never passes"))
                .with_hint("use a URL such as https://prometheus.monitoring.svc:9090"),
        );
    }
}

fn duration(problems: &mut Vec<Problem>, path: &str, text: &str, least: SignedDuration) {
    if !text.is_empty() {
        required_duration(problems, path, text, least);
    }
}

fn required_duration(problems: &mut Vec<Problem>, path: &str, text: &str, least: SignedDuration) {
    if parse_duration(text).is_none_or(|duration| duration < least) {
        problems.push(
            Problem::new(path, format!("{text:?} is not a duration that can be used here"))
                .with_hint(DURATION_HINT),
        );
    }
}

fn share(problems: &mut Vec<Problem>, path: &str, value: &IntOrString, consequence: &str) {
    let (shown, number) = match value {
        IntOrString::Int(count) => (count.to_string(), Some(i64::from(*count))),
        IntOrString::String(text) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|number| number.parse::<u32>().ok());
            (format!("{text:?}"), percent.map(i64::from))
        }
    };
    let message = match number {
        None => format!("{shown} is neither a number nor a percentage like \"50%\""),
        Some(number) if number < 1 => format!("{shown} is less than one, {consequence}"),
        Some(_) => return,
    };
    problems.push(Problem::new(path, message).with_hint(SHARE_HINT));
}
