//! `mco token`, and the same options of `mco up`: requests a token from the running `mco up` and prints the command that
//! uses it, lists tokens, and revokes them.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client, Config};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::{labels, names};
use serde::Deserialize;
use serde_json::json;

use super::join_token_store::ListedJoinToken;
use super::{DataDirectory, addresses};
use crate::cli::{ListFormat, TokenCreate, Up};
use crate::connection::{Connection, to_cli_error};
use crate::output;
use crate::table::Table;

/// On the same machine, a listener accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct IssuedToken {
    id: String,
    token: String,
    authority: String,
    expires: Timestamp,
}

/// The token to create.
#[derive(Debug)]
pub struct TokenRequest<'a> {
    pool: &'a str,
    ttl: SignedDuration,
    max_uses: Option<u32>,
    node_names: Option<&'a str>,
    /// The name of this machine for others.
    advertise: Option<&'a str>,
}

impl<'a> TokenRequest<'a> {
    pub fn of_up(arguments: &'a Up) -> Self {
        let join = &arguments.join;
        Self {
            pool: &join.pool,
            ttl: join.ttl,
            max_uses: if join.once { Some(1) } else { join.max_uses },
            node_names: join.node_names.as_deref(),
            advertise: arguments.advertise.first().map(String::as_str),
        }
    }

    pub fn of_token(arguments: &'a TokenCreate) -> Self {
        Self {
            pool: &arguments.pool,
            ttl: arguments.ttl,
            max_uses: if arguments.once {
                Some(1)
            } else {
                arguments.max_uses
            },
            node_names: arguments.node_names.as_deref(),
            advertise: arguments.advertise.as_deref(),
        }
    }
}

/// Prints the command on standard output, and everything else on standard error.
pub async fn issue(wanted: &TokenRequest<'_>, directory: &DataDirectory) -> anyhow::Result<()> {
    let (client, config) = connect(directory).await?;
    let (pool, max_uses) = (wanted.pool, wanted.max_uses);
    let body = json!({
        "pool": pool,
        "labels": labels_of(&client, pool).await?,
        "seconds": wanted.ttl.as_secs(),
        "maxUses": max_uses,
        "nodeNames": wanted.node_names,
    });
    let request = Request::post("/join-tokens").body(body.to_string().into_bytes())?;
    let issued: IssuedToken = to_cli_error(client.request(request).await, "create a join token")?;
    let server = address_for_others(wanted, &config);
    let IssuedToken {
        id,
        token,
        authority,
        expires,
    } = issued;
    let machines = match max_uses {
        Some(1) => "one machine".to_owned(),
        Some(max) => format!("each of up to {max} machines"),
        None => "each machine".to_owned(),
    };
    output::aside(format!(
        "run on {machines} to join pool {pool}, until {expires:.0} (to revoke it: mco token revoke {id}):"
    ));
    // Through standard input: all users of a machine see the arguments of its processes.
    output::print(&format!(
        "echo {token} | mco daemon join --server https://{server} --ca-hash {authority} --token-file -\n"
    ))
}

#[derive(Deserialize)]
struct JoinTokenList {
    items: Vec<ListedJoinToken>,
}

/// Prints the join tokens.
pub async fn list(directory: &DataDirectory, format: Option<&ListFormat>) -> anyhow::Result<()> {
    let (client, _) = connect(directory).await?;
    let request = Request::get("/join-tokens").body(Vec::new())?;
    let found: JoinTokenList = to_cli_error(client.request(request).await, "list the join tokens")?;
    if found.items.is_empty() && format.is_none() {
        output::aside("there are no join tokens; create one with mco token create");
        return Ok(());
    }
    let now = Timestamp::now();
    let names = || {
        found
            .items
            .iter()
            .map(|token| format!("token/{}", token.id))
            .collect()
    };
    output::show_list(format, &found.items, names, |_| {
        let mut table = Table::new(["NAME", "POOL", "USES", "NODES", "EXPIRES"]);
        for token in &found.items {
            table.row(row(token.clone(), now));
        }
        table.to_string()
    })
}

fn row(token: ListedJoinToken, now: Timestamp) -> [String; 5] {
    let uses = match token.grant.max_uses {
        Some(max) => format!("{} of {max}", token.uses),
        None => token.uses.to_string(),
    };
    let expires = if token.expires <= now {
        format!("{:.0} (expired)", token.expires)
    } else {
        format!("{:.0}", token.expires)
    };
    let nodes = token.grant.node_names.unwrap_or_else(|| "*".to_owned());
    [token.id, token.grant.pool, uses, nodes, expires]
}

pub async fn revoke(directory: &DataDirectory, id: &str) -> anyhow::Result<()> {
    let (client, _) = connect(directory).await?;
    let request = Request::delete(format!("/join-tokens/{id}")).body(Vec::new())?;
    match client.request::<serde_json::Value>(request).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            bail!("there is no join token {id}; its ID is the part before the first dot")
        }
        answer => to_cli_error(answer, "revoke the join token")?,
    };
    output::print(&format!(
        "join token {id} revoked; machines that joined with it keep their access\n"
    ))
}

pub(super) async fn connect(directory: &DataDirectory) -> anyhow::Result<(Client, Config)> {
    let kubeconfig = directory.kubeconfig();
    let not_running = || {
        anyhow!(
            "no mco up runs on {}; start it first, or set its directory with --data-dir",
            directory.path().display()
        )
    };
    if !kubeconfig.is_file() {
        return Err(not_running());
    }
    let connection = Connection {
        kubeconfig: Some(kubeconfig),
        ..Connection::default()
    };
    let config = connection.config().await.map_err(|_| {
        anyhow!(
            "{} is damaged; restart mco up, which writes it again",
            directory.kubeconfig().display()
        )
    })?;
    let client = Client::try_from(config.clone())?;
    match client.apiserver_version().await {
        Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => Err(not_running()),
        answer => {
            to_cli_error(answer, "connect to the running mco up")?;
            Ok((client, config))
        }
    }
}

/// Returns the labels by which the pool selects its nodes. Custom pools select nodes that are workers as well.
async fn labels_of(client: &Client, pool: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let found = to_cli_error(pools.get_opt(pool).await, "read the pools")?;
    let found = found.with_context(|| format!("there is no pool {pool}; list the pools with mco status"))?;
    let selector = found.spec.node_selector.unwrap_or_default();
    if selector.match_expressions.is_some_and(|all| !all.is_empty()) {
        bail!("pool {pool} selects its nodes by expressions; join pool worker, then label the Node");
    }
    let mut all = selector.match_labels.unwrap_or_default();
    let role = match pool {
        names::pool::MASTER => labels::node::ROLE_CONTROL_PLANE,
        _ => labels::node::ROLE_WORKER,
    };
    all.insert(role.to_owned(), String::new());
    Ok(all)
}

/// Returns the address of the API for other machines.
fn address_for_others(wanted: &TokenRequest<'_>, config: &Config) -> String {
    let host = config
        .cluster_url
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']']);
    let port = config.cluster_url.port_u16().unwrap_or(443);
    if let Some(chosen) = wanted.advertise {
        return addresses::with_port(chosen, port);
    }
    let is_local = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_local {
        return addresses::with_port(host, port);
    }
    let reachable = addresses::primary()
        .filter(|address| TcpStream::connect_timeout(&(*address, port).into(), CONNECT_TIMEOUT).is_ok());
    if let Some(address) = reachable {
        return addresses::with_port(&address.to_string(), port);
    }
    output::warning(
        "this mco up listens on the loopback address only; for other machines to join, start it with --listen 0.0.0.0",
    );
    addresses::with_port(host, port)
}
