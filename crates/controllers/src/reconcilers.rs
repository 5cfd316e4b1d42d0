//! The reconcilers. One line of the table declares a work queue with its key, its debouncing, its concurrency and the
//! reconcile function; the queue and its worker are generated from it.

use std::sync::Arc;
use std::time::Duration;

use mco_core::config::remote::ContentKey;
use mco_core::generators::generated::Generator;
use mco_runtime::{Debounce, Queue, run_worker};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::options::Options;
use crate::{
    boot_images, contents, control_plane, disruption_policy, drain, gates, generated_configs, generators,
    machine_config_nodes, os_streams, pinned_images, policies, render, rendered_config_gc, rollout,
    source_cache,
};

/// `field: Key = "name in logs", debouncing, concurrency, reconcile function;`
macro_rules! reconcilers {
    ($(
        $(#[$doc:meta])*
        $field:ident: $key:ty = $name:literal, $debounce:expr, $concurrency:expr, $reconcile:path;
    )*) => {
        /// The work queues.
        pub(crate) struct Queues {
            $($(#[$doc])* pub $field: Arc<Queue<$key>>,)*
        }

        impl Queues {
            pub fn new(options: &Options) -> Self {
                Self { $($field: Arc::new(Queue::new($debounce(options))),)* }
            }

            /// Starts one worker per queue.
            pub fn spawn_workers(ctx: &Arc<Context>, stop: &CancellationToken, tasks: &mut JoinSet<&'static str>) {
                $({
                    let (queue, stop) = (Arc::clone(&ctx.queues.$field), stop.clone());
                    let (ctx, concurrency) = (Arc::clone(ctx), $concurrency(&ctx.options));
                    tasks.spawn(async move {
                        let reconcile = move |key| Box::pin($reconcile(Arc::clone(&ctx), key));
                        run_worker($name, queue, concurrency, stop, reconcile).await;
                        $name
                    });
                })*
            }
        }
    };
}

reconcilers! {
    /// Fetches source MachineConfigs, by name.
    sources: String = "source-cache", immediate, per_object, source_cache::reconcile;
    /// Fetches the remote contents of source MachineConfigs, by hash.
    contents: ContentKey = "remote-contents", immediate, per_pool, contents::reconcile;
    /// Restores generated MachineConfigs that were edited or deleted, by name.
    enforcement: String = "generated-configs", immediate, per_object, generated_configs::reconcile;
    generators: Generator = "generator", generate, per_generator, generators::reconcile;
    os_streams: () = "os-image-stream", generate, one, os_streams::reconcile;
    /// By pool.
    pinned_images: String = "pinned-image-set", generate, per_pool, pinned_images::reconcile;
    /// By pool.
    render: String = "render", render_debounce, per_pool, render::reconcile;
    /// By pool.
    rollout: String = "rollout", rollout_debounce, per_pool, rollout::reconcile;
    /// By RolloutPolicy.
    policies: String = "rollout-policy", rollout_debounce, per_pool, policies::reconcile;
    /// By RolloutPolicy and name of the gate. A check that takes long delays no other.
    gates: (String, String) = "rollout-gate", immediate, per_object, gates::reconcile;
    /// By node.
    drain: String = "drain", immediate, per_drain, drain::reconcile;
    /// By node.
    machine_config_nodes: String = "machine-config-node", immediate, per_object, machine_config_nodes::reconcile;
    /// By node.
    control_plane: String = "control-plane", immediate, per_pool, control_plane::reconcile;
    /// By the event that caused it, which is reported.
    boot_images: String = "boot-image", rollout_debounce, one, boot_images::reconcile;
    disruption_policy: () = "disruption-policy", generate, one, disruption_policy::reconcile;
    rendered_config_gc: () = "rendered-config-gc", gc_debounce, one, rendered_config_gc::reconcile;
}

/// Users and tools write several objects one after the other; a pool is rendered this long after the last one.
const RENDER_QUIET_PERIOD: Duration = Duration::from_millis(150);
/// The default of [`Options::render_interval`].
pub(crate) const RENDER_INTERVAL: Duration = Duration::from_secs(2);
/// Generators are quick, and renders wait for them anyway.
const GENERATE_QUIET_PERIOD: Duration = Duration::from_millis(20);
const GENERATE_MAX_DELAY: Duration = Duration::from_millis(200);
/// A rollout's own writes come in quick succession; what changes in the same moment is planned together.
const ROLLOUT_QUIET_PERIOD: Duration = Duration::from_millis(5);
/// A plan reads every node of its pool. The nodes of a large pool report all the time, and not each report needs a
/// plan.
const ROLLOUT_INTERVAL: Duration = Duration::from_millis(100);
/// Garbage collection is never urgent.
const GC_QUIET_PERIOD: Duration = Duration::from_secs(1);
const GC_INTERVAL: Duration = Duration::from_secs(10);

fn immediate(_: &Options) -> Debounce {
    Debounce::immediate()
}

fn generate(_: &Options) -> Debounce {
    Debounce::new(GENERATE_QUIET_PERIOD, GENERATE_MAX_DELAY)
}

fn render_debounce(options: &Options) -> Debounce {
    let interval = options.render_interval;
    Debounce::new(RENDER_QUIET_PERIOD, interval).with_min_interval(interval)
}

fn rollout_debounce(_: &Options) -> Debounce {
    Debounce::new(ROLLOUT_QUIET_PERIOD, ROLLOUT_INTERVAL).with_min_interval(ROLLOUT_INTERVAL)
}

fn gc_debounce(_: &Options) -> Debounce {
    Debounce::new(GC_QUIET_PERIOD, GC_INTERVAL).with_min_interval(GC_INTERVAL)
}

fn one(_: &Options) -> usize {
    1
}

/// Pools are few, and each reconcile of one is short.
fn per_pool(_: &Options) -> usize {
    8
}

/// Small objects, many of them at startup.
fn per_object(_: &Options) -> usize {
    32
}

fn per_generator(_: &Options) -> usize {
    Generator::ALL.len()
}

fn per_drain(options: &Options) -> usize {
    options.drain.at_once
}
