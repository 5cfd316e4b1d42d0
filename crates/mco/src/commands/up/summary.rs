//! The summary that `mco up` prints after the start.

use super::DataDirectory;
use super::ignition_server::IgnitionServerFiles;

/// Returns the summary of the API alone.
pub fn bare(directory: &DataDirectory, url: &str) -> String {
    format!(
        "kubeconfig  {kubeconfig}\nAPI         {url}\nlog         {log}\nCtrl-C stops it; the next start resumes.\n",
        kubeconfig = directory.kubeconfig().display(),
        log = directory.log_path().display(),
    )
}

/// Returns the summary of the whole system.
pub fn full(directory: &DataDirectory, url: &str, server: &IgnitionServerFiles, address: &str) -> String {
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
         to boot a new machine of a pool, use the output of:\n  \
         mco pointer --pool worker --server {address} --ca {ca} --token --tokens {tokens}\n\
         to join a running machine, use the output of:\n  \
         mco token create{data_dir}\n\
         Ctrl-C stops it; the next start resumes.\n",
        data_dir = directory.option(),
        nodes = directory.nodes().display(),
        log = directory.log_path().display(),
        ca = server.authority().display(),
        tokens = server.tokens().display(),
    )
}
