//! The gate of the control plane: every API server and every etcd member is ready.
//!
//! API servers are asked one by one. Those that no longer respond disappear from the EndpointSlices of the Service
//! `kubernetes` within seconds, so the static pods are checked as well.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use mco_core::rollout::policy::{ControlPlaneHealth, ControlPlaneMember, control_plane_health};

use super::{Checked, TIMEOUT};
use crate::context::Context;
use crate::outbound::{self, OutboundRequest, OutboundResponse, Trust};

/// The server name in the certificate of every API server.
const API_SERVER_NAME: &str = "kubernetes.default.svc";

/// The static pods of etcd members, by namespace and label: those of kubeadm and RKE2, and of OpenShift.
const ETCD_PODS: [(&str, &str); 2] = [("kube-system", "component=etcd"), ("openshift-etcd", "app=etcd")];
/// The static pods of API servers.
const API_SERVER_PODS: [(&str, &str); 2] = [
    ("kube-system", "component=kube-apiserver"),
    ("openshift-kube-apiserver", "app=openshift-kube-apiserver"),
];

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
    let etcd = pods(ctx, ControlPlaneMember::Etcd, &ETCD_PODS).await?;
    let api_servers = pods(ctx, ControlPlaneMember::ApiServer, &API_SERVER_PODS).await?;
    let nodes = ctx.stores.nodes.all();
    let nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    match control_plane_health(&nodes, &etcd, &api_servers) {
        ControlPlaneHealth::NotReady(why) => Ok((false, why)),
        ControlPlaneHealth::UnknownEtcd => {
            Err("no etcd member runs as a pod; with onUnreachable: Pass the API servers decide".to_owned())
        }
        ControlPlaneHealth::Ready { etcd_members } => {
            let servers = count(servers.len().max(1), ControlPlaneMember::ApiServer);
            let members = count(etcd_members, ControlPlaneMember::Etcd);
            Ok((true, format!("{servers} and {members} ready")))
        }
    }
}

async fn pods(
    ctx: &Context,
    member: ControlPlaneMember,
    sources: &[(&str, &str)],
) -> Result<Vec<Pod>, String> {
    let mut found = Vec::new();
    for (namespace, selector) in sources {
        let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
        let pods = pods.list(&ListParams::default().labels(selector)).await;
        let pods = pods.map_err(|error| format!("cannot list the pods of each {member}: {error}"))?;
        found.extend(pods.items);
    }
    Ok(found)
}

fn count(number: usize, member: ControlPlaneMember) -> String {
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
