//! The gate of the control plane: every API server and every etcd member is ready.
//!
//! API servers are asked one by one. Those that no longer respond disappear from the EndpointSlices of the Service
//! `kubernetes` within seconds, so the static pods are checked as well.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use mco_runtime::object_name;

use super::{Checked, TIMEOUT};
use crate::context::Context;
use crate::outbound::{self, OutboundRequest, OutboundResponse, Trust};

/// The server name in the certificate of every API server.
const API_SERVER_NAME: &str = "kubernetes.default.svc";

/// The static pods of a control plane, by namespace and label: those of kubeadm and of OpenShift.
const STATIC_PODS: [(Member, &str, &str); 4] = [
    (Member::Etcd, "kube-system", "component=etcd"),
    (Member::Etcd, "openshift-etcd", "app=etcd"),
    (Member::ApiServer, "kube-system", "component=kube-apiserver"),
    (
        Member::ApiServer,
        "openshift-kube-apiserver",
        "app=openshift-kube-apiserver",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Etcd,
    ApiServer,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd member",
            Self::ApiServer => "API server",
        })
    }
}

/// What a check found about one member.
enum Health {
    Ready,
    NotReady(String),
}

pub(super) async fn check(ctx: &Context) -> Checked {
    let servers = api_servers(ctx).await?;
    let readiness = if servers.is_empty() {
        this_api_server(ctx).await?
    } else {
        let checks = servers.iter().map(|address| api_server(ctx, address));
        let checks = futures::future::join_all(checks).await;
        let unready = checks
            .into_iter()
            .find(|health| matches!(health, Health::NotReady(_)));
        unready.unwrap_or(Health::Ready)
    };
    if let Health::NotReady(why) = readiness {
        return Ok((false, why));
    }
    let mut etcd_members = 0;
    for (member, namespace, selector) in STATIC_PODS {
        let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
        let pods = pods
            .list(&ListParams::default().labels(selector))
            .await
            .map_err(|error| format!("cannot list the pods of each {member}: {error}"))?;
        if let Some(pod) = pods.items.iter().find(|pod| !is_ready(pod)) {
            return Ok((
                false,
                format!("{member} {} is not ready", object_name(&pod.metadata)),
            ));
        }
        if member == Member::Etcd {
            etcd_members += pods.items.len();
        }
    }
    let servers = servers.len().max(1);
    let message = format!(
        "{} and {} ready",
        count(servers, Member::ApiServer),
        count(etcd_members, Member::Etcd)
    );
    Ok((true, message))
}

fn count(number: usize, member: Member) -> String {
    match number {
        1 => format!("1 {member}"),
        number => format!("{number} {member}s"),
    }
}

/// Asks the API server of this controller, where the cluster publishes no addresses.
async fn this_api_server(ctx: &Context) -> Result<Health, String> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIMEOUT, ctx.client.request_text(request)).await {
        Ok(Ok(_)) => Ok(Health::Ready),
        Ok(Err(kube::Error::Api(status))) => Ok(Health::NotReady(format!(
            "the API server is not ready: {}",
            status.message
        ))),
        Ok(Err(error)) => Err(format!("the API server cannot be reached: {error}")),
        Err(_) => Err("the API server does not answer".to_owned()),
    }
}

/// Asks one API server. With the token of the controller, because clusters may refuse anonymous requests; for the same
/// reason only the authorities of the cluster are trusted.
async fn api_server(ctx: &Context, address: &str) -> Health {
    let request = OutboundRequest {
        server_name: Some(API_SERVER_NAME),
        trust: Trust::ApiServers,
        token: outbound::service_account_token(),
        ..OutboundRequest::get(format!("https://{address}/readyz"), TIMEOUT)
    };
    Health::NotReady(match outbound::send(ctx, request).await {
        Ok(OutboundResponse::Success(_)) => return Health::Ready,
        Ok(OutboundResponse::Refused { code: 401 | 403, .. }) => {
            format!("API server {address} does not let this controller read /readyz")
        }
        Ok(OutboundResponse::Refused { code, .. }) => format!("API server {address} is not ready ({code})"),
        Err(why) => format!("API server {address} cannot be reached: {why}"),
    })
}

/// Returns host and port of every API server.
async fn api_servers(ctx: &Context) -> Result<Vec<String>, String> {
    let slices: Api<EndpointSlice> = Api::namespaced(ctx.client.clone(), "default");
    let selector = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = match slices.list(&selector).await {
        Ok(slices) => slices.items,
        // The embedded API server has none.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(format!("cannot list the API servers: {error}")),
    };
    let mut servers = Vec::new();
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let port = ports.find_map(|port| port.port).unwrap_or(6443);
        let addresses = slice
            .endpoints
            .iter()
            .flatten()
            .flat_map(|endpoint| &endpoint.addresses);
        servers.extend(addresses.map(|address| {
            if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            }
        }));
    }
    Ok(servers)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
