//! What `mco up` says when it is there.

use super::DataDirectory;
use super::ignition_server::Files;

/// The API alone.
pub fn bare(directory: &DataDirectory, url: &str) -> String {
    format!(
        "kubeconfig  {kubeconfig}\nAPI         {url}\nlog         {log}\nCtrl-C stops it; the next start carries on.\n",
        kubeconfig = directory.kubeconfig().display(),
        log = directory.log_path().display(),
    )
}

/// The whole system.
pub fn full(directory: &DataDirectory, url: &str, server: &Files, address: &str) -> String {
    let kubeconfig = directory.kubeconfig().display().to_string();
    format!(
        "kubeconfig  {kubeconfig}\n\n\
         Try in another terminal, after export KUBECONFIG={kubeconfig}\n  \
         mco status --watch\n  \
         kubectl get nodes,machineconfigpools\n  \
         mco plan -f examples/quickstart/50-worker-chrony.yaml\n\n\
         API         {url}\n\
         nodes       {nodes}\n\
         log         {log}\n\
         new machines of a pool boot with what this prints:\n  \
         mco pointer --pool worker --server {address} --ca {ca} --token --tokens {tokens}\n\
         a machine that runs already joins with what this prints:\n  \
         mco up --join-token{data_dir}\n\
         Ctrl-C stops it; the next start carries on.\n",
        data_dir = directory.option(),
        nodes = directory.nodes().display(),
        log = directory.log_path().display(),
        ca = server.authority().display(),
        tokens = server.tokens().display(),
    )
}
