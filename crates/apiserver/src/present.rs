//! Representation of stored objects in responses: in the requested version, whole, as metadata only, or as a table.
//!
//! The common case (stored version, whole object) returns the stored bytes. Everything else is built per request.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::ResourceDefinition;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::kinds;
use crate::store::{StoredObject, write_type_meta};

/// How much of the object a table row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// The representation that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    Whole,
    Metadata,
    Table(IncludeObject),
}

/// The metadata of a list.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl ListMeta {
    fn value(&self, custom: bool) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        // Lists of custom resources always have `continue`, empty on the last page.
        if custom {
            meta["continue"] = Value::from("");
        }
        if let Some(token) = &self.continue_token {
            meta["continue"] = Value::from(token.as_str());
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = Value::from(remaining);
        }
        meta
    }
}

/// Encodes stored objects of one resource in one representation.
#[derive(Clone, Debug)]
pub struct Presenter {
    pub definition: Arc<ResourceDefinition>,
    pub form: Representation,
    clock: Arc<dyn Clock>,
    type_meta: Vec<u8>,
}

const METADATA_API_VERSION: &str = "meta.k8s.io/v1";

impl Presenter {
    pub fn new(definition: &Arc<ResourceDefinition>, form: Representation, clock: &Arc<dyn Clock>) -> Self {
        let mut type_meta = Vec::new();
        if form == Representation::Metadata {
            write_type_meta(&mut type_meta, "PartialObjectMetadata", METADATA_API_VERSION);
        } else {
            write_type_meta(&mut type_meta, &definition.kind, &definition.api_version());
        }
        Self {
            definition: Arc::clone(definition),
            form,
            clock: Arc::clone(clock),
            type_meta,
        }
    }

    /// The time that ages are relative to.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns whether the stored bytes are the response, which all clients then share.
    pub fn is_stored_form(&self, stored: &StoredObject) -> bool {
        self.form == Representation::Whole
            && stored.type_meta() == self.type_meta
            && !self.definition.is_event_alias()
    }

    /// Encodes one object.
    pub fn object(&self, stored: &StoredObject) -> Result<Bytes, ApiError> {
        match self.form {
            Representation::Whole if self.is_stored_form(stored) => Ok(stored.json().clone()),
            Representation::Whole if self.definition.is_event_alias() => {
                let mut event = Value::Object(stored.value()?);
                kinds::event::from_core(&mut event);
                Ok(Bytes::from(event.to_string()))
            }
            Representation::Whole => Ok(join(&self.type_meta, stored.body())),
            Representation::Metadata => Ok(join(&self.type_meta, stored.metadata_body())),
            Representation::Table(include) => {
                let table = self.table(std::slice::from_ref(&stored), include, None)?;
                Ok(Bytes::from(table.to_string()))
            }
        }
    }

    /// Encodes an object that was never stored: the result of a dry run or of a subresource.
    pub fn value(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.definition.is_event_alias() {
            kinds::event::from_core(&mut object);
        }
        match self.form {
            Representation::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": METADATA_API_VERSION, "metadata": object["metadata"]})
            }
            Representation::Whole | Representation::Table(_) => {
                object["kind"] = Value::from(self.definition.kind.as_str());
                object["apiVersion"] = Value::from(self.definition.api_version());
                object
            }
        }
    }

    /// Encodes a list, in pieces that share the stored bytes of large objects.
    pub fn list(&self, objects: &[Arc<StoredObject>], meta: &ListMeta) -> Result<Vec<Bytes>, ApiError> {
        if let Representation::Table(include) = self.form {
            let borrowed: Vec<&StoredObject> = objects.iter().map(|stored| &**stored).collect();
            return Ok(vec![Bytes::from(
                self.table(&borrowed, include, Some(meta))?.to_string(),
            )]);
        }
        let (kind, api_version) = match self.form {
            Representation::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                METADATA_API_VERSION.to_owned(),
            ),
            Representation::Whole | Representation::Table(_) => {
                (self.definition.list_kind.clone(), self.definition.api_version())
            }
        };
        let mut pieces = Pieces::default();
        let mut head = Vec::new();
        write_type_meta(&mut head, &kind, &api_version);
        pieces.copy(&head);
        pieces.copy(b"\"metadata\":");
        let custom = self.form == Representation::Whole && self.definition.is_custom();
        pieces.copy(meta.value(custom).to_string().as_bytes());
        pieces.copy(b",\"items\":[");
        for (index, stored) in objects.iter().enumerate() {
            if index > 0 {
                pieces.copy(b",");
            }
            self.item(stored, &mut pieces)?;
        }
        pieces.copy(b"]}");
        Ok(pieces.finish())
    }

    fn item(&self, stored: &StoredObject, pieces: &mut Pieces) -> Result<(), ApiError> {
        if self.form == Representation::Whole
            && !self.definition.is_custom()
            && !self.definition.is_event_alias()
        {
            // Items of built-in lists do not repeat their type.
            pieces.copy(b"{");
            let skipped = stored.type_meta().len();
            pieces.share(&stored.json().slice(skipped..));
        } else {
            pieces.share(&self.object(stored)?);
        }
        Ok(())
    }

    fn table(
        &self,
        objects: &[&StoredObject],
        include: IncludeObject,
        meta: Option<&ListMeta>,
    ) -> Result<Value, ApiError> {
        crate::tables::render(self, objects, include, meta)
    }

    /// Returns the list metadata of a table, or that of its only object.
    pub(crate) fn table_meta(objects: &[&StoredObject], meta: Option<&ListMeta>) -> Value {
        match (meta, objects) {
            (Some(meta), _) => meta.value(false),
            (None, [only, ..]) => json!({"resourceVersion": only.revision.to_string()}),
            (None, []) => json!({}),
        }
    }
}

fn join(head: &[u8], body: &[u8]) -> Bytes {
    let mut joined = Vec::with_capacity(head.len() + body.len());
    joined.extend_from_slice(head);
    joined.extend_from_slice(body);
    Bytes::from(joined)
}

/// Collects a response: small parts are copied together, large ones are passed on as they are.
#[derive(Debug, Default)]
struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

/// Below this size, a copy is cheaper than another write to the socket.
const SHARE_FROM: usize = 16 << 10;
const PIECE: usize = 64 << 10;

impl Pieces {
    fn copy(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        if self.open.len() >= PIECE {
            self.close();
            // The next piece most likely gets as large as this one; growing to that size would copy everything twice.
            self.open.reserve(PIECE + SHARE_FROM);
        }
    }

    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_FROM {
            self.copy(bytes);
        } else {
            self.close();
            self.done.push(bytes.clone());
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(Bytes::from(std::mem::take(&mut self.open)));
        }
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }
}
