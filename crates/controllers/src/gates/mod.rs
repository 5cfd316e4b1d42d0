//! Checks the gates of RolloutPolicies, each at most once per interval and only while nodes wait for it.

mod control_plane;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery;
use mco_api::RolloutPolicy;
use mco_api::rollout_policy::{ConditionGate, GateEndpoint, PrometheusGate, RolloutGate, WebhookGate};
use mco_core::rollout::policy::{self, GateObservation};
use mco_runtime::{Requeue, object_name};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::outbound::{self, OutboundRequest, OutboundResponse};

/// How long a check may take, unless the gate has its own timeout.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a check passed, and what it found.
type Checked = Result<(bool, String), String>;

/// Checks one gate of a policy.
pub(crate) async fn reconcile(ctx: Arc<Context>, (policy, gate): (String, String)) -> Result<Requeue, Error> {
    let Some(object) = ctx.stores.rollout_policies.get(&policy) else {
        return Ok(Requeue::OnChange);
    };
    let at = ctx.now();
    // Enqueued again while the last check ran, which may not be in the status yet.
    let object = ctx.policies.with_observations(&object);
    let due = policy::gates_due(&object, at);
    let Some((gate, _)) = due
        .into_iter()
        .find(|(known, due)| known.name == gate && *due <= at)
    else {
        return Ok(Requeue::OnChange);
    };
    ctx.options.metrics.gate_checked(&policy, &gate.name);
    let (outcome, message) = match check(&ctx, &object, gate).await {
        Ok((passed, message)) => (Ok(passed), message),
        Err(why) => (Err(why), String::new()),
    };
    let observation = GateObservation {
        gate: gate.name.clone(),
        at,
        outcome,
        message,
    };
    ctx.policies.observed(&policy, observation);
    ctx.queues.policies.enqueue(policy);
    Ok(Requeue::OnChange)
}

async fn check(ctx: &Context, policy: &RolloutPolicy, gate: &RolloutGate) -> Checked {
    if let Some(gate) = &gate.prometheus {
        prometheus(ctx, gate).await
    } else if let Some(gate) = &gate.webhook {
        webhook(ctx, policy, gate).await
    } else if let Some(gate) = &gate.condition {
        condition(ctx, gate).await
    } else {
        control_plane::check(ctx).await
    }
}

async fn token(ctx: &Context, endpoint: &GateEndpoint) -> Result<Option<String>, String> {
    match &endpoint.token_secret {
        Some(from) => outbound::secret(ctx, from, "token").await.map(Some),
        None => Ok(None),
    }
}

fn answer(who: &str, code: u16, message: &str) -> String {
    match message {
        "" => format!("{who} answers {code}"),
        message => format!("{who} answers {code}: {message}"),
    }
}

async fn prometheus(ctx: &Context, gate: &PrometheusGate) -> Checked {
    let expression = if gate.no_firing.is_empty() {
        gate.expr.clone()
    } else {
        format!("ALERTS{{alertstate=\"firing\",{}}}", gate.no_firing)
    };
    let url = format!(
        "{}/api/v1/query?query={}",
        gate.endpoint.url.trim_end_matches('/'),
        utf8_percent_encode(&expression, NON_ALPHANUMERIC)
    );
    let mut request = OutboundRequest::get(url, TIMEOUT);
    request.token = token(ctx, &gate.endpoint).await?;
    match outbound::send(ctx, request).await? {
        OutboundResponse::Success(text) => evaluate(&text, !gate.no_firing.is_empty()),
        OutboundResponse::Refused { code, message } => Err(answer("Prometheus", code, &message)),
    }
}

/// Reads the response to a query: an expression must have a result, a query of firing alerts must have none.
fn evaluate(text: &str, alerts: bool) -> Checked {
    let response: Value = serde_json::from_str(text)
        .map_err(|error| format!("the answer of Prometheus cannot be read: {error}"))?;
    let result = &response["data"]["result"];
    let series = match result {
        Value::Array(series) => series.as_slice(),
        _ => return Err("the answer of Prometheus has no result".to_owned()),
    };
    // A scalar is a pair of time and value, and always has a result.
    if alerts {
        let mut names: Vec<&str> = series
            .iter()
            .filter_map(|series| series["metric"]["alertname"].as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        return Ok(match series.len() {
            0 => (true, "no alert fires".to_owned()),
            1 => (false, format!("1 alert fires: {}", names.join(", "))),
            count => (false, format!("{count} alerts fire: {}", names.join(", "))),
        });
    }
    Ok(match series.len() {
        0 => (false, "the expression has no result".to_owned()),
        1 => (true, "the expression has 1 result".to_owned()),
        count => (true, format!("the expression has {count} results")),
    })
}

async fn webhook(ctx: &Context, policy: &RolloutPolicy, gate: &WebhookGate) -> Checked {
    let pools: Vec<Value> = policy
        .status
        .iter()
        .flat_map(|status| &status.pools)
        .map(|pool| json!({"name": pool.name, "target": pool.target, "wave": pool.wave, "phase": pool.phase}))
        .collect();
    let body = json!({"policy": object_name(&policy.metadata), "pools": pools});
    let request = OutboundRequest {
        method: Method::POST,
        token: token(ctx, &gate.endpoint).await?,
        body: body.to_string().into_bytes(),
        ..OutboundRequest::get(
            gate.endpoint.url.clone(),
            policy::duration_of(&gate.timeout).unwrap_or(TIMEOUT),
        )
    };
    match outbound::send(ctx, request).await? {
        OutboundResponse::Success(_) => Ok((true, "the webhook agrees".to_owned())),
        OutboundResponse::Refused { code, message } => {
            let answer = answer("the webhook", code, &message);
            match code {
                300..500 => Ok((false, answer)),
                _ => Err(answer),
            }
        }
    }
}

async fn condition(ctx: &Context, gate: &ConditionGate) -> Checked {
    let (group, version) = gate
        .api_version
        .split_once('/')
        .unwrap_or(("", &gate.api_version));
    let kind = GroupVersionKind::gvk(group, version, &gate.kind);
    let name = format!("{} {}", gate.kind, gate.name);
    let reading = async {
        let (resource, _) = discovery::pinned_kind(&ctx.client, &kind).await?;
        let api: Api<DynamicObject> = if gate.namespace.is_empty() {
            Api::all_with(ctx.client.clone(), &resource)
        } else {
            Api::namespaced_with(ctx.client.clone(), &gate.namespace, &resource)
        };
        api.get(&gate.name).await
    };
    let object = tokio::time::timeout(TIMEOUT, reading).await;
    let object = object.map_err(|_| format!("no answer about {name}"))?;
    let object = object.map_err(|error| format!("cannot read {name}: {error}"))?;
    let wanted = if gate.status.is_empty() {
        "True"
    } else {
        &gate.status
    };
    let conditions = object.data["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == gate.type_));
    Ok(match found {
        None => (false, format!("{name} has no condition {}", gate.type_)),
        Some(found) if found["status"] == wanted => (true, format!("{name} is {}={wanted}", gate.type_)),
        Some(found) => {
            let status = found["status"].as_str().unwrap_or_default();
            let why = found["message"]
                .as_str()
                .or(found["reason"].as_str())
                .unwrap_or_default();
            (false, format!("{name} is {}={status}: {why}", gate.type_))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_needs_a_result_and_alerts_need_none() {
        let response = |result: Value| json!({"status": "success", "data": {"result": result}}).to_string();
        let some = response(json!([{"metric": {"alertname": "EtcdDown"}, "value": [0, "1"]}]));
        let none = response(json!([]));
        assert_eq!(
            evaluate(&some, false),
            Ok((true, "the expression has 1 result".to_owned()))
        );
        assert_eq!(
            evaluate(&none, false),
            Ok((false, "the expression has no result".to_owned()))
        );
        assert_eq!(
            evaluate(&some, true),
            Ok((false, "1 alert fires: EtcdDown".to_owned()))
        );
        assert_eq!(evaluate(&none, true), Ok((true, "no alert fires".to_owned())));
        assert!(evaluate("<html>", false).is_err());
    }
}
