//! Jinja's `namespace`: the one object whose attributes a template may set.

use super::meter::{error, settle};
use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub struct Namespace {
    attributes: Mutex<BTreeMap<String, Value>>,
}

impl Namespace {
    pub fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if name.starts_with('_') {
            return Err(error(format!(
                "Chat templates cannot store underscore-prefixed attributes on a namespace, but \
                 got '{name}'. Please rename the attribute."
            )));
        }
        let value = settle(value)?;
        // A namespace inside itself would never be freed.
        if holds_namespace(&value) {
            return Err(error("a namespace cannot hold another namespace"));
        }
        self.attributes.lock().unwrap().insert(name.to_string(), value);
        Ok(())
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.attributes.lock().unwrap().get(key.as_str()?).cloned()
    }
}

/// For a settled value, whose depth is bounded.
fn holds_namespace(value: &Value) -> bool {
    let inside = |v: Result<Value, Error>| v.map_or(true, |v| holds_namespace(&v));
    match (value.kind(), value.try_iter()) {
        (ValueKind::Seq, Ok(mut items)) => items.any(|v| inside(Ok(v))),
        (ValueKind::Map, Ok(mut keys)) => keys.any(|k| inside(value.get_item(&k))),
        _ => value.downcast_object_ref::<Namespace>().is_some(),
    }
}
