//! Installs a directory machine as Ignition installs a real one, and completes its first boot.

use mco_api::MachineConfig;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::node_state;
use mco_daemon::config::NodeConfig;
use mco_daemon::once::{self, RebootPolicy};
use mco_daemon::transaction::{self, TransactionSubject, Uninterrupted};
use mco_daemon::{firstboot, paths, plan};
use mco_host::{Attributes, Machine, RootedPath};
use serde_json::{Value, json};

/// Installs the machine from a rendered config, with the files that the server would add to it.
pub fn install_config(machine: &Machine, config: &MachineConfig) {
    let config = NodeConfig::new(config.clone()).unwrap();
    lay_out(machine, &config);
    let name = config.name();
    let mut encapsulated = json!(&*config.object);
    if let Some(spec) = encapsulated.get_mut("spec") {
        spec["config"] = json!({"ignition": {"version": "3.5.0"}});
    }
    let annotations = json!({
        annotation::CURRENT_CONFIG: name,
        annotation::DESIRED_CONFIG: name,
        annotation::FIRST_PIVOT_CONFIG: name,
        annotation::STATE: node_state::DONE,
    });
    write(machine, paths::INSTALLED_CONFIG, &json!(&*config.object));
    write(machine, paths::ENCAPSULATED, &encapsulated);
    firstboot::complete(machine, RebootPolicy::WhenNeeded).unwrap();
    // Written last, because it marks the machine as installed.
    write(machine, paths::NODE_ANNOTATIONS, &annotations);
}

fn lay_out(machine: &Machine, config: &NodeConfig) {
    let _lock = once::lock(machine).unwrap();
    once::settle_past(machine, &Uninterrupted).unwrap();
    let plan = plan::plan_installation(machine, config).unwrap();
    if plan.steps.is_empty() {
        return;
    }
    let subject = TransactionSubject {
        to: config.name().to_owned(),
        ..TransactionSubject::default()
    };
    let journal = transaction::execute(machine, &plan, subject, &Uninterrupted).unwrap();
    transaction::prove(machine, &journal, &Uninterrupted).unwrap();
}

fn write(machine: &Machine, path: &str, value: &Value) {
    let path = RootedPath::new(path).unwrap();
    let root = &machine.root;
    root.create_directories(&path.parent().unwrap(), Attributes::root(0o755))
        .unwrap();
    root.write_atomically(&path, Attributes::root(0o644), value.to_string().as_bytes())
        .unwrap();
}
