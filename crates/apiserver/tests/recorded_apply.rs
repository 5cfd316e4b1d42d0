//! Server-side apply and managed fields equal the recordings of a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_apiserver::apply::{FieldManager, FieldManagerError, custom_reset_fields};
use mco_apiserver::decode::FieldValidation;
use mco_apiserver::patch::merge::MergePatch;
use mco_apiserver::schema::CustomSchema;
use serde_json::{Value, json};

const API_VERSION: &str = "schema.example.com/v1";

struct Replay {
    schema: CustomSchema,
    name: String,
    live: Option<Value>,
}

impl Replay {
    /// Executes one write as the server does, and returns the object or the error.
    fn write(&self, step: &Value) -> Result<Value, FieldManagerError> {
        let now = "2026-01-01T00:00:00Z";
        let subresource = step["sub"].as_str().unwrap_or_default();
        let fields = FieldManager {
            schema: self.schema.schema(),
            api_version: API_VERSION,
            subresource,
            reset: custom_reset_fields(true, subresource),
            served: &[],
        };
        let manager = step["manager"].as_str().expect("manager");
        let mut object = match step["op"].as_str().expect("op") {
            "apply" => {
                let force = step["force"] == json!(true);
                fields.apply(
                    self.live.as_ref(),
                    &self.complete(&step["body"]),
                    manager,
                    force,
                    now,
                )?
            }
            "merge" => {
                let mut new = self.live.clone().expect("something to patch");
                let body = step["body"].to_string();
                MergePatch::decode(body.as_bytes(), FieldValidation::Ignore)
                    .expect("a patch")
                    .apply(&mut new);
                new
            }
            _ => {
                let mut new = self.complete(&step["body"]);
                if let Some(live) = &self.live {
                    new["metadata"] = live["metadata"].clone();
                }
                new
            }
        };
        self.keep_out_of_reach(&mut object, subresource);
        self.schema.normalise(&mut object).expect("well-formed");
        if step["op"] != "apply" {
            fields.update(self.live.clone().as_mut(), &mut object, manager, now);
        }
        object["metadata"]["uid"] = json!("u");
        Ok(object)
    }

    /// Returns the fields that a write at the endpoint cannot change.
    fn keep_out_of_reach(&self, object: &mut Value, subresource: &str) {
        let kept = if subresource == "status" { "spec" } else { "status" };
        let before = self.live.as_ref().and_then(|live| live.get(kept)).cloned();
        let fields = object.as_object_mut().expect("an object");
        match before {
            Some(before) => fields.insert(kept.to_owned(), before),
            None => fields.remove(kept),
        };
    }

    fn complete(&self, body: &Value) -> Value {
        let mut object = body.clone();
        object["apiVersion"] = json!(API_VERSION);
        object["kind"] = json!("Own");
        object["metadata"]["name"] = json!(self.name);
        object
    }
}

/// Returns the parts of an object that the recordings contain.
fn recorded_parts(object: &Value) -> (Value, Value) {
    let mut object = object.clone();
    let fields = object.as_object_mut().expect("an object");
    fields.remove("apiVersion");
    fields.remove("kind");
    let metadata = fields["metadata"].as_object_mut().expect("metadata");
    metadata.remove("name");
    metadata.remove("uid");
    let mut managed = metadata.remove("managedFields").unwrap_or(Value::Null);
    for entry in managed.as_array_mut().into_iter().flatten() {
        entry.as_object_mut().expect("an entry").remove("time");
    }
    sort_by_owner(&mut managed);
    (object, managed)
}

/// The recordings were made within a second or two, so that the order by time is arbitrary.
fn sort_by_owner(managed: &mut Value) {
    if let Some(entries) = managed.as_array_mut() {
        entries.sort_by_key(|entry| {
            format!(
                "{} {} {}",
                entry["operation"], entry["manager"], entry["subresource"]
            )
        });
    }
}

#[test]
fn every_sequence_of_writes_ends_as_recorded() {
    let golden: Value = serde_json::from_str(include_str!("golden/apply.json")).expect("golden file");
    let cases = golden["cases"].as_array().expect("cases");
    assert!(cases.len() > 20);
    for (index, case) in cases.iter().enumerate() {
        let mut replay = Replay {
            schema: CustomSchema::new(&golden["schema"], false),
            name: format!("c{index}"),
            live: None,
        };
        for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
            let place = format!("{}, step {number}: {step}", case["name"]);
            match replay.write(step) {
                Ok(object) => {
                    let (found, managed) = recorded_parts(&object);
                    assert_eq!(found, step["object"], "{place}");
                    let mut recorded = step["managed"].clone();
                    sort_by_owner(&mut recorded);
                    assert_eq!(managed, recorded, "{place}");
                    replay.live = Some(object);
                }
                Err(error) => {
                    let recorded = &step["error"];
                    assert_eq!(
                        error.to_string(),
                        recorded["message"].as_str().unwrap_or_default(),
                        "{place}"
                    );
                    let code = match &error {
                        FieldManagerError::Conflicts(_) => 409,
                        FieldManagerError::Malformed(_) => 400,
                        FieldManagerError::Unmergeable(_) => 500,
                    };
                    assert_eq!(json!(code), recorded["code"], "{place}");
                    if let FieldManagerError::Conflicts(conflicts) = &error {
                        let reported: Vec<_> = conflicts
                            .iter()
                            .map(|conflict| json!([conflict.field(), conflict.message()]))
                            .collect();
                        assert_eq!(json!(reported), recorded["causes"], "{place}");
                    }
                }
            }
        }
    }
}
