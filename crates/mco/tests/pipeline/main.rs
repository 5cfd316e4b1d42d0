//! The results of `mco plan`, of `mco render` on the exported objects and of the controllers are equal, on the embedded
//! API with the real controllers: names, targets, conditions and messages.
//!
//! Random clusters are numbered; the number is the seed. `MCO_PIPELINE_CLUSTERS=1000` runs that many,
//! `MCO_PIPELINE_FIRST=17` begins with another number.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout, reason = "prints how much was compared")]

mod cluster;
mod random;

use cluster::Cluster;
use futures::StreamExt as _;
use mco_api::ClusterBase;
use mco_client::forecast::Edit;
use random::{Numbers, RandomCluster};

/// Enough for every kind of object in an ordinary run of the tests.
const CLUSTERS: u64 = 12;
/// Clusters mostly wait for their controllers to become idle.
const AT_ONCE: usize = 6;
const EDITS: usize = 3;
/// Maximum number of comparisons. Rendering a large config on a busy machine can take longer than the idle time; a real
/// difference persists.
const PATIENCE: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_and_an_offline_render_are_what_the_controllers_publish() {
    let setting = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let clusters = setting("MCO_PIPELINE_CLUSTERS").unwrap_or(CLUSTERS);
    let first = setting("MCO_PIPELINE_FIRST").unwrap_or(0);
    let checks = (first..first + clusters).map(|seed| async move {
        let done = tokio::spawn(check(seed)).await;
        (seed, done.unwrap_or_else(|panic| Err(panic.to_string())))
    });
    let outcomes: Vec<(u64, Result<Tally, String>)> = futures::stream::iter(checks)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut total = Tally::default();
    let mut failures = Vec::new();
    for (seed, outcome) in outcomes {
        match outcome {
            Ok(tally) => total.add(&tally),
            Err(failure) => failures.push(format!("cluster {seed}: {failure}")),
        }
    }
    println!("clusters {first} to {}: {total:?}", first + clusters - 1);
    assert!(
        failures.is_empty(),
        "{} of {clusters} clusters differ:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Counters of what was compared.
#[derive(Debug, Default)]
struct Tally {
    edits: usize,
    refused: usize,
    rendered_pools: usize,
    failed_pools: usize,
    accepted_objects: usize,
    rejected_objects: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.edits += other.edits;
        self.refused += other.refused;
        self.rendered_pools += other.rendered_pools;
        self.failed_pools += other.failed_pools;
        self.accepted_objects += other.accepted_objects;
        self.rejected_objects += other.rejected_objects;
    }
}

async fn check(seed: u64) -> Result<Tally, String> {
    let mut numbers = Numbers::new(seed);
    let random = RandomCluster::new(&mut numbers);
    let mut cluster = Cluster::prepare().await;
    cluster.set_base(base_of(seed)).await;
    for object in random.objects() {
        cluster.create(&object).await;
    }
    cluster.start_controllers();
    let mut tally = Tally::default();
    let first = at_rest(&cluster, || cluster.compare_with_render()).await;
    first.map_err(|why| format!("at first: {why}"))?;
    for step in 0..EDITS {
        let edit = random.edit(&mut numbers, &cluster.export().await);
        let context = |why: String| format!("edit {step}, {}: {why}", described(&edit));
        let plan = cluster.plan(&edit).await.map_err(context)?;
        tally.edits += 1;
        if plan.refused.is_empty() {
            cluster.apply(&edit).await;
        } else {
            tally.refused += 1;
        }
        let planned = at_rest(&cluster, || cluster.compare_with_plan(&plan)).await;
        tally.add(&planned.map_err(context)?);
        cluster.compare_with_render().await.map_err(context)?;
    }
    cluster.stop().await;
    Ok(tally)
}

/// Returns the base of a cluster. Half of them have the templates, which most objects modify.
fn base_of(seed: u64) -> ClusterBase {
    use ClusterBase::{K3s, Kubeadm, None, OpenShift};
    let all = [OpenShift, None, OpenShift, Kubeadm, OpenShift, K3s];
    all[usize::try_from(seed % 6).unwrap()]
}

/// Compares once the controllers are idle.
async fn at_rest<T, F>(cluster: &Cluster, compare: impl Fn() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, String>>,
{
    let mut compared = Err(String::new());
    for _ in 0..PATIENCE {
        cluster.come_to_rest().await;
        compared = compare().await;
        if compared.is_ok() {
            break;
        }
    }
    compared
}

/// Returns an edit without the contents of large files.
fn described(edit: &Edit) -> String {
    match edit {
        Edit::Delete(name) => format!("delete {name}"),
        Edit::Apply(manifest) => {
            let spec: String = manifest.value["spec"].to_string().chars().take(300).collect();
            format!("apply {} {}: {spec}", manifest.kind, manifest.name)
        }
    }
}
