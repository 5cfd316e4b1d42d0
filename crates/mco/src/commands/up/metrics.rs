//! The metrics of operator, controllers and image builder at one address.

use std::net::SocketAddr;

use anyhow::Context as _;
use mco_http::metrics::{ScrapeAccess, serve_metrics};
use tokio::net::TcpListener;

use super::Components;

/// The end marker of OpenMetrics, which may occur only once.
const END: &str = "# EOF\n";

pub async fn start(
    address: SocketAddr,
    operator: mco_operator::OperatorMetrics,
    controllers: mco_controllers::Metrics,
    builder: mco_builder::Metrics,
    components: &mut Components,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot serve metrics on {address}; choose another --metrics-listen"))?;
    let source = move || {
        let first = operator.encode()?;
        let second = controllers.encode()?;
        Ok(format!(
            "{}{}{}",
            first.trim_end_matches(END),
            second.trim_end_matches(END),
            builder.encode()?
        ))
    };
    let serving = serve_metrics(listener, ScrapeAccess::default(), source, components.stop.clone());
    components.start("the metrics", async move {
        serving.await;
        Ok(())
    });
    Ok(())
}
