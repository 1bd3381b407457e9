//! Python's methods of str, dict and list. In Jinja2 a method wins over a key of the same name
//! (`schema.items()` where the schema has an "items" key), so calls of these names come here first.

use super::meter::{charge, error, settle, weigh};
use super::python::Tuple;
use super::string_methods;
use minijinja::value::{from_args, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};
use std::sync::Arc;

/// Every method name that is routed here, with the name of its filter.
pub const NAMES: &[(&str, &str)] = &[
    ("capitalize", ".capitalize"),
    ("center", ".center"),
    ("copy", ".copy"),
    ("count", ".count"),
    ("endswith", ".endswith"),
    ("find", ".find"),
    ("format", ".format"),
    ("get", ".get"),
    ("index", ".index"),
    ("isalnum", ".isalnum"),
    ("isalpha", ".isalpha"),
    ("isascii", ".isascii"),
    ("isdecimal", ".isdecimal"),
    ("isdigit", ".isdigit"),
    ("islower", ".islower"),
    ("isnumeric", ".isnumeric"),
    ("isspace", ".isspace"),
    ("isupper", ".isupper"),
    ("items", ".items"),
    ("join", ".join"),
    ("keys", ".keys"),
    ("ljust", ".ljust"),
    ("lower", ".lower"),
    ("lstrip", ".lstrip"),
    ("partition", ".partition"),
    ("removeprefix", ".removeprefix"),
    ("removesuffix", ".removesuffix"),
    ("replace", ".replace"),
    ("rfind", ".rfind"),
    ("rindex", ".rindex"),
    ("rjust", ".rjust"),
    ("rpartition", ".rpartition"),
    ("rsplit", ".rsplit"),
    ("rstrip", ".rstrip"),
    ("split", ".split"),
    ("splitlines", ".splitlines"),
    ("startswith", ".startswith"),
    ("strip", ".strip"),
    ("swapcase", ".swapcase"),
    ("title", ".title"),
    ("upper", ".upper"),
    ("values", ".values"),
    ("zfill", ".zfill"),
];

/// The attributes that every dict has.
pub const DICT_ATTRIBUTES: &[(&str, &str)] = &[
    ("clear", "@clear"),
    ("copy", "@copy"),
    ("fromkeys", "@fromkeys"),
    ("get", "@get"),
    ("items", "@items"),
    ("keys", "@keys"),
    ("pop", "@pop"),
    ("popitem", "@popitem"),
    ("setdefault", "@setdefault"),
    ("update", "@update"),
    ("values", "@values"),
];

/// A method that was named but not called.
#[derive(Debug)]
struct Method;
impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

pub fn register(env: &mut Environment<'static>) {
    for &(attribute, filter) in DICT_ATTRIBUTES {
        env.add_filter(filter, move |value: Value| match value.kind() {
            ValueKind::Map => Ok(Value::from_object(Method)),
            _ => value.get_attr(attribute),
        });
    }
    for &(method, filter) in NAMES {
        env.add_filter(filter, move |state: &State, args: Rest<Value>| {
            call(state, method, &args.0)
        });
    }
}

fn call(state: &State, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (receiver, args) = args.split_first().ok_or_else(|| error("a method needs a receiver"))?;
    if let Some(text) = receiver.as_str() {
        charge(text.len())?;
        args.iter().try_for_each(weigh)?;
        return string_methods::call(text, method, args)?
            .ok_or_else(|| error(format!("'str' object has no attribute '{method}'")));
    }
    let result = match receiver.kind() {
        ValueKind::Map => dict_method(receiver, method, args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(receiver, method, args)?,
        _ => None,
    };
    match result {
        Some(value) => settle(value),
        None => receiver.call_method(state, method, args),
    }
}

fn dict_method(dict: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let keys = || -> Result<_, Error> {
        charge(dict.len().unwrap_or(0))?;
        from_args::<()>(args)?;
        dict.try_iter()
    };
    Ok(Some(match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            match dict.get_item(key)? {
                found if found.is_undefined() => default.unwrap_or_else(|| Value::from(())),
                found => found,
            }
        }
        "keys" => keys()?.collect(),
        "values" => keys()?.map(|k| dict.get_item(&k)).collect::<Result<Vec<_>, _>>()?.into(),
        "items" => {
            let pair = |k: Value| Ok(Tuple::of(vec![k.clone(), dict.get_item(&k)?]));
            keys()?.map(pair).collect::<Result<Vec<_>, Error>>()?.into()
        }
        "copy" => dict.clone(),
        _ => return Ok(None),
    }))
}

fn list_method(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    weigh(list)?;
    Ok(Some(match method {
        "count" => {
            let (what,): (&Value,) = from_args(args)?;
            Value::from(list.try_iter()?.filter(|v| v == what).count())
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let found = list.try_iter()?.position(|v| v == *what);
            Value::from(found.ok_or_else(|| error("value is not in list"))?)
        }
        "copy" => list.clone(),
        _ => return Ok(None),
    }))
}
