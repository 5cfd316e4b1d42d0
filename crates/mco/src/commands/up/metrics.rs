//! What operator and controllers count, at one address, for those who ask for it.

use std::net::SocketAddr;

use anyhow::Context as _;
use mco_serve_metrics::Door;
use tokio::net::TcpListener;

use super::Components;

/// Ends a text of metrics, so it may come only once.
const END: &str = "# EOF\n";

pub async fn start(
    address: SocketAddr,
    operator: mco_operator::Metrics,
    controllers: mco_controllers::Metrics,
    components: &mut Components,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot tell metrics at {address}; choose another --metrics-listen"))?;
    let site = move || {
        let first = operator.encode()?;
        Ok(format!(
            "{}{}",
            first.trim_end_matches(END),
            controllers.encode()?
        ))
    };
    let serving = mco_serve_metrics::serve(listener, Door::default(), site, components.stop.clone());
    components.start("the metrics", async move {
        serving.await;
        Ok(())
    });
    Ok(())
}
