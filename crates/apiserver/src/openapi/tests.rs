use super::*;
use crate::kinds;

fn core() -> Vec<DocumentedResource> {
    kinds::BUILT_IN
        .iter()
        .filter(|kind| kind.group.is_empty())
        .map(DocumentedResource::built_in)
        .collect()
}

fn all() -> Vec<DocumentedResource> {
    kinds::BUILT_IN.iter().map(DocumentedResource::built_in).collect()
}

fn custom() -> DocumentedResource {
    DocumentedResource {
        group: "maps.example.com".to_owned(),
        version: "v1".to_owned(),
        kind: "Map".to_owned(),
        list_kind: "MapList".to_owned(),
        plural: "maps".to_owned(),
        namespaced: true,
        verbs: [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
        .map(str::to_owned)
        .to_vec(),
        subresources: vec![DocumentedSubresource {
            name: "status".to_owned(),
            group: String::new(),
            version: String::new(),
            kind: "Map".to_owned(),
            verbs: vec!["get".to_owned(), "patch".to_owned(), "update".to_owned()],
        }],
        schema: ResourceSchema::Custom(json!({"type": "object", "description": "A map of a place.",
            "required": ["spec"],
            "properties": {"spec": {"type": "object", "properties": {
                "scale": {"type": "integer", "minimum": 1, "default": 5},
                "size": {"x-kubernetes-int-or-string": true},
                "note": {"type": "string", "nullable": true},
                "either": {"type": "object", "oneOf": [{"required": ["a"]}]}}}}})),
    }
}

/// Every reference in a document must resolve.
fn dangling(document: &Value, prefix: &str, schemas: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![document];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                    let name = reference.strip_prefix(prefix).unwrap_or_default();
                    if schemas.get(name).is_none() {
                        found.push(reference.to_owned());
                    }
                }
                pending.extend(fields.values());
            }
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    found
}

#[test]
fn no_reference_leads_nowhere() {
    let v3 = group_version(&core());
    assert_eq!(
        dangling(&v3, "#/components/schemas/", &v3["components"]["schemas"]),
        Vec::<String>::new()
    );
    let v2 = swagger(&[all(), vec![custom()]].concat());
    assert_eq!(
        dangling(&v2, "#/definitions/", &v2["definitions"]),
        Vec::<String>::new()
    );
    let own = group_version(&[custom()]);
    assert_eq!(
        dangling(&own, "#/components/schemas/", &own["components"]["schemas"]),
        Vec::<String>::new()
    );
}

#[test]
fn a_document_holds_only_what_its_resources_need() {
    let own = group_version(&[custom()]);
    let schemas = own["components"]["schemas"].as_object().expect("schemas");
    assert!(
        schemas.contains_key("com.example.maps.v1.Map")
            && schemas.contains_key("com.example.maps.v1.MapList")
    );
    assert!(!schemas.contains_key("io.k8s.api.core.v1.Pod"));
    assert!(schemas.len() < 20, "{:?}", schemas.keys());
}

#[test]
fn operation_ids_are_unique() {
    let document = swagger(&[all(), vec![custom()]].concat());
    let mut seen = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let Some(id) = operation.get("operationId").and_then(Value::as_str) else {
                continue;
            };
            // The list across namespaces is the same operation in a wider scope.
            let wide = !path.contains("{namespace}") && method == "get";
            assert!(seen.insert((id.to_owned(), wide)), "{method} {path}: {id}");
        }
    }
}

#[test]
fn what_clients_look_for_is_there() {
    let v3 = group_version(&core());
    let pod = &v3["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(pod["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(pod["containers"]["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(pod["tolerations"]["x-kubernetes-list-type"], "atomic");
    let config_map = &v3["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"];
    assert_eq!(
        config_map["properties"]["data"]["additionalProperties"],
        json!({"type": "string", "default": ""})
    );
    assert_eq!(
        config_map["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "ConfigMap"}])
    );
    let patch = &v3["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "ConfigMap");
    assert!(
        patch["parameters"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["name"] == "fieldValidation"))
    );
    let eviction = &v3["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
    assert_eq!(
        eviction["x-kubernetes-group-version-kind"],
        json!({"group": "policy", "version": "v1", "kind": "Eviction"})
    );
    assert!(v3["paths"]["/api/v1/nodes/{name}"]["get"].is_object());
    assert!(v3["paths"]["/api/v1/pods"]["get"].is_object());
}

#[test]
fn a_custom_resource_keeps_its_schema_and_gains_type_and_metadata() {
    let document = group_version(&[custom()]);
    let map = &document["components"]["schemas"]["com.example.maps.v1.Map"];
    assert_eq!(map["description"], "A map of a place.");
    assert_eq!(
        map["properties"]["spec"]["properties"]["scale"],
        json!({"type": "integer", "minimum": 1, "default": 5})
    );
    assert_eq!(
        map["properties"]["spec"]["properties"]["size"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert!(
        map["properties"]["kind"]["description"]
            .as_str()
            .is_some_and(|text| text.len() > 20)
    );
    assert_eq!(
        map["properties"]["metadata"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
    );
    let status = &document["paths"]["/apis/maps.example.com/v1/namespaces/{namespace}/maps/{name}/status"];
    assert_eq!(status["patch"]["x-kubernetes-group-version-kind"]["kind"], "Map");
}

#[test]
fn openapi_v2_omits_what_it_cannot_express() {
    let document = swagger(&[custom()]);
    let spec = &document["definitions"]["com.example.maps.v1.Map"]["properties"]["spec"]["properties"];
    assert_eq!(spec["scale"], json!({"type": "integer", "minimum": 1}));
    assert_eq!(spec["note"], json!({}));
    assert_eq!(spec["either"], json!({"type": "object"}));
    assert_eq!(spec["size"], json!({"x-kubernetes-int-or-string": true}));
}

#[test]
fn the_index_changes_with_the_document() {
    let index = index([("api/v1", b"a".as_slice()), ("apis/apps/v1", b"b".as_slice())]);
    let url = |path: &str| {
        index["paths"][path]["serverRelativeURL"]
            .as_str()
            .expect("a URL")
            .to_owned()
    };
    assert!(
        url("api/v1").starts_with("/openapi/v3/api/v1?hash=1F40FC92"),
        "{}",
        url("api/v1")
    );
    assert_ne!(
        url("api/v1").rsplit('=').next(),
        url("apis/apps/v1").rsplit('=').next()
    );
    assert_eq!(index_path("", "v1"), "api/v1");
    assert_eq!(index_path("apps", "v1"), "apis/apps/v1");
}
