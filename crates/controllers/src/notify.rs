//! Sends the changes of rollouts to webhooks, as CloudEvents. A webhook that cannot be reached is logged and delays
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use mco_api::RolloutPolicy;
use mco_core::rollout::policy::PolicyChange;
use mco_runtime::object_name;
use serde_json::{Value, json};
use tracing::warn;

use crate::context::Context;
use crate::outbound::{self, OutboundRequest, OutboundResponse};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the change to every webhook of the policy that asks for it.
pub(crate) fn send(ctx: &Arc<Context>, policy: &RolloutPolicy, change: &PolicyChange) {
    let wanted = policy
        .spec
        .notify
        .iter()
        .filter(|notify| notify.on.is_empty() || notify.on.contains(&change.event));
    for notify in wanted {
        let (ctx, from) = (Arc::clone(ctx), notify.secret_ref.clone());
        let event = cloud_event(policy, change, &ctx.now().to_string());
        let name = object_name(&policy.metadata).to_owned();
        tokio::spawn(async move {
            let sent = async {
                let url = outbound::secret(&ctx, &from, "url").await?;
                let request = OutboundRequest {
                    method: Method::POST,
                    content_type: "application/cloudevents+json",
                    body: event.to_string().into_bytes(),
                    ..OutboundRequest::get(url, TIMEOUT)
                };
                delivered(&outbound::send(&ctx, request).await?)
            };
            // The URL is a secret, so only the name of its Secret is logged.
            if let Err(why) = sent.await {
                warn!(
                    policy = name,
                    secret = from.name,
                    "cannot notify the webhook: {why}"
                );
            }
        });
    }
}

/// Whether the webhook has accepted the event, or why not.
fn delivered(response: &OutboundResponse) -> Result<(), String> {
    match response {
        OutboundResponse::Success(_) => Ok(()),
        OutboundResponse::Refused { code, .. } => Err(format!("it answers {code}")),
    }
}

fn cloud_event(policy: &RolloutPolicy, change: &PolicyChange, now: &str) -> Value {
    let name = object_name(&policy.metadata);
    let version = policy.metadata.resource_version.as_deref().unwrap_or_default();
    json!({
        "specversion": "1.0",
        "id": format!("{name}-{}-{:?}-{version}", change.pool, change.event),
        "source": format!("/apis/mco.dev/v1alpha1/rolloutpolicies/{name}"),
        "type": format!("dev.mco.rollout.{}", format!("{:?}", change.event).to_lowercase()),
        "subject": change.pool,
        "time": now,
        "datacontenttype": "application/json",
        "data": {"policy": name, "pool": change.pool, "event": change.event, "message": change.message},
    })
}

#[cfg(test)]
mod tests {
    use mco_api::rollout_policy::NotificationEvent;

    use super::*;

    #[test]
    fn a_cloud_event_has_the_required_attributes() {
        let mut policy = RolloutPolicy::default();
        policy.metadata.name = Some("workers".to_owned());
        let change = PolicyChange {
            pool: "worker".to_owned(),
            event: NotificationEvent::Halted,
            message: "halted: 1 of 1 allowed failure, n1: broken".to_owned(),
        };
        let event = cloud_event(&policy, &change, "2026-11-18T12:00:00Z");
        for attribute in ["specversion", "id", "source", "type", "time"] {
            assert!(
                event[attribute].as_str().is_some_and(|value| !value.is_empty()),
                "{attribute}"
            );
        }
        assert_eq!(event["type"], "dev.mco.rollout.halted");
        assert_eq!(event["data"]["event"], "Halted");
    }

    #[test]
    fn a_redirect_was_taken_for_a_delivery() {
        let refused = |code| {
            delivered(&OutboundResponse::Refused {
                code,
                message: String::new(),
            })
        };
        assert_eq!(refused(302), Err("it answers 302".to_owned()));
        assert_eq!(delivered(&OutboundResponse::Success(String::new())), Ok(()));
    }
}
