//! `mco install --helm` and `--kustomize`: the same manifests as a chart and as a base of kustomize.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use mco_api::crd::crds_with;
use mco_core::config::goyaml;
use mco_operator::manifests::{self, ManifestSettings};
use serde_json::{Value, json};

use crate::commands::VERSION;
use crate::input::count;
use crate::output;

/// What stands in the manifests for a value of the chart until they are text.
const IMAGE: &str = "MCO-IMAGE";
const ARGUMENTS: &str = "MCO-ARGUMENTS";
const SELECTOR: &str = "mco-node-selector";

/// The operator's arguments that depend on values.
const ARGUMENT_TEMPLATE: &str = "\
{{- with .Values.base }}
        - --base={{ . }}
{{- end }}
{{- if .Values.server.enabled }}
        - --with-server
{{- end }}
{{- if .Values.networkPolicies.enabled }}
        - --with-network-policies
{{- end }}
{{- range $key, $value := .Values.nodeSelector }}
        - --node-selector={{ $key }}={{ $value }}
{{- end }}
";
const SELECTOR_TEMPLATE: &str = "\
{{- range $key, $value := .Values.nodeSelector }}
        {{ $key }}: {{ $value | quote }}
{{- end }}
";

const NOTES: &str = "\
The operator is installed, and no node has changed. Next:

  1. Create a MachineConfigPool that selects nodes.
  2. See what its config would change on them:  mco adopt
  3. Adopt them:                                mco adopt NODE --yes

To remove the installation, run \"mco uninstall\" before \"helm uninstall\": helm deletes the operator, and leaves finalizers
on MachineConfigs and KubeletConfigs, with which they can never be deleted, and cordons, taints and annotations on nodes.
";

/// Writes a Helm chart. What Helm's values cannot change is as `settings` say.
pub fn write_chart(directory: &Path, settings: &ManifestSettings) -> anyhow::Result<()> {
    if settings.profile.base.is_openshift() {
        bail!("the chart is for clusters other than OpenShift; there, apply the output of mco install");
    }
    let without_server = objects(settings, false);
    let with_server = objects(settings, true);
    let mut files = BTreeMap::new();
    for (key, object) in &with_server {
        let text = match without_server.get(key) {
            Some(other) if other == object => template(object)?,
            Some(other) => format!(
                "{{{{- if .Values.server.enabled }}}}\n{}{{{{- else }}}}\n{}{{{{- end }}}}\n",
                template(object)?,
                template(other)?
            ),
            None => format!(
                "{{{{- if .Values.server.enabled }}}}\n{}{{{{- end }}}}\n",
                template(object)?
            ),
        };
        files.insert(format!("templates/{key}.yaml"), text);
    }
    if let Some(key) = without_server.keys().find(|key| !with_server.contains_key(*key)) {
        bail!("{key} exists only without the config servers, which the chart cannot express");
    }
    files.insert("templates/NOTES.txt".to_owned(), NOTES.to_owned());
    for definition in crds_with(settings.profile.kinds) {
        let name = format!("crds/{}.yaml", definition.spec.names.plural);
        files.insert(name, goyaml::to_string(&serde_json::to_value(&definition)?));
    }
    files.insert("Chart.yaml".to_owned(), goyaml::to_string(&chart()));
    files.insert("values.yaml".to_owned(), values(&settings.image));
    files.insert(
        "values.schema.json".to_owned(),
        format!("{:#}\n", values_schema()),
    );
    write(directory, &files, "helm install mco DIR --namespace kube-system")
}

/// Writes a base of kustomize.
pub fn write_base(directory: &Path, settings: &ManifestSettings) -> anyhow::Result<()> {
    let mut files = BTreeMap::new();
    for definition in crds_with(settings.profile.kinds) {
        let name = format!("crds/{}.yaml", definition.spec.names.plural);
        files.insert(name, goyaml::to_string(&serde_json::to_value(&definition)?));
    }
    for mut object in manifests::operator_installation(settings) {
        if let Some(arguments) = object
            .pointer_mut("/spec/template/spec/containers/0/args")
            .and_then(Value::as_array_mut)
        {
            // An overlay replaces the image of the container only; without the argument the operator uses that one.
            arguments.retain(|argument| !argument.as_str().is_some_and(|text| text.starts_with("--image=")));
        }
        files.insert(format!("{}.yaml", key(&object)), goyaml::to_string(&object));
    }
    let resources: Vec<&String> = files.keys().collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    });
    files.insert("kustomization.yaml".to_owned(), goyaml::to_string(&kustomization));
    write(directory, &files, "kubectl apply --server-side -k DIR")
}

/// The objects by the names of their files. What depends on values is left to the templates.
fn objects(settings: &ManifestSettings, server: bool) -> BTreeMap<String, Value> {
    let mut settings = settings.clone();
    IMAGE.clone_into(&mut settings.image);
    settings.chosen_base = None;
    settings.profile.server = server;
    settings.profile.network_policies = false;
    let mut all = BTreeMap::new();
    for mut object in manifests::operator_installation(&settings) {
        if object["kind"] == "Deployment" {
            let pod = &mut object["spec"]["template"]["spec"];
            if let Some(arguments) = pod["containers"][0]["args"].as_array_mut() {
                arguments.retain(|argument| argument != "--with-server");
                arguments.push(json!(ARGUMENTS));
            }
            pod["nodeSelector"][SELECTOR] = json!("");
        }
        all.insert(key(&object), object);
    }
    all
}

fn key(object: &Value) -> String {
    let part = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let name = format!("{}-{}", part("/kind").to_lowercase(), part("/metadata/name"));
    let namespace = match part("/metadata/namespace") {
        "" | mco_api::vocabulary::names::NAMESPACE => String::new(),
        other => format!("{other}-"),
    };
    // Names of roles may contain colons.
    format!("{namespace}{name}").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "-")
}

/// Returns an object as a template of Helm.
fn template(object: &Value) -> anyhow::Result<String> {
    let text = goyaml::to_string(object);
    if text.contains("{{") {
        bail!("{} contains braces that Helm would evaluate", key(object));
    }
    let mut lines = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed == format!("- {ARGUMENTS}") {
            lines.push_str(ARGUMENT_TEMPLATE);
        } else if trimmed.starts_with(SELECTOR) {
            lines.push_str(SELECTOR_TEMPLATE);
        } else {
            lines.push_str(&line.replace(IMAGE, "{{ .Values.image }}"));
            lines.push('\n');
        }
    }
    Ok(lines)
}

fn chart() -> Value {
    json!({
        "apiVersion": "v2",
        "name": "mco",
        "description": "Manage your nodes' operating system the Kubernetes way.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.30.0-0",
    })
}

fn values(image: &str) -> String {
    format!(
        "\
# The image with this program.
image: {image}
# What nodes get beside your MachineConfigs: none, kubeadm, k3s, rke2 or machine. Empty keeps the base that is stored in
# the cluster, and is none in a new one.
base: \"\"
server:
  # Serve new machines their first configuration, on port 22623 of the control plane.
  enabled: false
networkPolicies:
  # Apply network policies, and admission policies that prevent changes to them.
  enabled: false
# Labels of the nodes that operator and controller run on.
nodeSelector: {{}}
"
    )
}

fn values_schema() -> Value {
    let switch = || {
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"enabled": {"type": "boolean"}},
        })
    };
    json!({
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": false,
        "required": ["image"],
        "properties": {
            "image": {"type": "string", "minLength": 1},
            "base": {"enum": ["", "none", "kubeadm", "k3s", "rke2", "machine"]},
            "server": switch(),
            "networkPolicies": switch(),
            "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
            "global": {"type": "object"},
        },
    })
}

/// Writes the files into an empty directory, so that nothing of an earlier version stays.
fn write(directory: &Path, files: &BTreeMap<String, String>, next: &str) -> anyhow::Result<()> {
    let shown = directory.display();
    let is_used = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if is_used {
        bail!("{shown} is not empty; name another directory, or delete this one");
    }
    for (name, text) in files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create directory {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(&format!(
        "{} written to {shown}; install with: {}\n",
        count(files.len(), "file"),
        next.replace("DIR", &shown.to_string())
    ))
}
