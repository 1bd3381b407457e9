//! The operators of templates, with Python's meaning and at a metered price. `compile` puts these in
//! place of the machine's own instructions.

use super::meter::{charge, error, settle, weigh};
use super::namespace::Namespace;
use super::python;
use indexmap::IndexMap;
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

/// Filters with these names cannot be written in a template: no identifier has such characters.
pub fn register(env: &mut Environment<'static>) {
    env.add_filter("+", |a: Value, b: Value| add(&a, &b));
    env.add_filter("*", |a: Value, b: Value| multiply(&a, &b));
    env.add_filter("%", remainder);
    env.add_filter("/", |a: Value, b: Value| divide("/", &a, &b));
    env.add_filter("//", |a: Value, b: Value| divide("//", &a, &b));
    env.add_filter("~", |a: Value, b: Value| concat(&a, &b));
    env.add_filter("[:]", slice);
    env.add_filter("[]", |value: Value, key: Value| item(&value, &key));
    env.add_filter("[,]", |items: Rest<Value>| settle(Value::from(items.0)));
    env.add_filter("{}", build_map);
    env.add_filter("=", set_attribute);
    env.add_filter("#", |value: Value| charge(value.len().unwrap_or(0)).map(|()| value));
    env.add_filter("&", |a: Value, b: Value| {
        weigh(&a)?;
        weigh(&b)?;
        // Unpacking stacks the first item on top.
        Ok::<_, Error>(Value::from(vec![b, a]))
    });
    for op in ["==", "!=", "<", "<=", ">", ">=", "in", "notin"] {
        // "in" could be written as a filter; the prefix keeps it out of reach.
        env.add_filter(format!("?{op}"), move |a: Value, b: Value| compare(op, &a, &b));
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn unsupported(op: &str, a: &Value, b: &Value) -> Error {
    error(format!("unsupported operand types for {op}: {} and {}", a.kind(), b.kind()))
}

/// Both operands as numbers; booleans count as in Python.
enum Numbers {
    Int(i128, i128),
    Float(f64, f64),
}

fn numbers(a: &Value, b: &Value) -> Option<Numbers> {
    let numeric = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if !numeric(a) || !numeric(b) {
        return None;
    }
    let int = |v: &Value| match v.kind() {
        ValueKind::Bool => Some(v.is_true() as i128),
        _ if v.is_integer() => i128::try_from(v.clone()).ok(),
        _ => None,
    };
    if let (Some(x), Some(y)) = (int(a), int(b)) {
        return Some(Numbers::Int(x, y));
    }
    let float = |v: &Value| int(v).map(|i| i as f64).or_else(|| f64::try_from(v.clone()).ok());
    Some(Numbers::Float(float(a)?, float(b)?))
}

fn integer(x: Option<i128>) -> Result<Value, Error> {
    let x = x.ok_or_else(|| error("integer overflow"))?;
    Ok(i64::try_from(x).map_or_else(|_| Value::from(x), Value::from))
}

fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        charge(x.len() + y.len())?;
        return Ok(Value::from([x, y].concat()));
    }
    if is_list(a) && is_list(b) {
        charge(a.len().unwrap_or(0) + b.len().unwrap_or(0))?;
        return settle(a.try_iter()?.chain(b.try_iter()?).collect());
    }
    match numbers(a, b) {
        Some(Numbers::Int(x, y)) => integer(x.checked_add(y)),
        Some(Numbers::Float(x, y)) => Ok(Value::from(x + y)),
        None => Err(unsupported("+", a, b)),
    }
}

fn multiply(a: &Value, b: &Value) -> Result<Value, Error> {
    let count = |v: &Value| v.as_i64().map(|n| n.max(0) as usize);
    let (sequence, times) = match (a.as_str().is_some() || is_list(a), count(b)) {
        (true, Some(n)) => (a, n),
        _ => match (b.as_str().is_some() || is_list(b), count(a)) {
            (true, Some(n)) => (b, n),
            _ => return multiply_numbers(a, b),
        },
    };
    if let Some(text) = sequence.as_str() {
        charge(text.len().saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    charge(sequence.len().unwrap_or(0).saturating_mul(times))?;
    let items: Vec<Value> = sequence.try_iter()?.collect();
    settle((0..times).flat_map(|_| items.iter().cloned()).collect())
}

fn multiply_numbers(a: &Value, b: &Value) -> Result<Value, Error> {
    match numbers(a, b) {
        Some(Numbers::Int(x, y)) => integer(x.checked_mul(y)),
        Some(Numbers::Float(x, y)) => Ok(Value::from(x * y)),
        None => Err(unsupported("*", a, b)),
    }
}

/// Python's `%`: the sign follows the divisor; on a string it formats.
fn remainder(state: &State, a: Value, b: Value) -> Result<Value, Error> {
    if a.as_str().is_some() {
        let mut args = vec![a];
        if is_list(&b) {
            args.extend(b.try_iter()?);
        } else {
            args.push(b);
        }
        return state.apply_filter("format", &args);
    }
    match numbers(&a, &b) {
        Some(Numbers::Int(_, 0)) => Err(error("integer modulo by zero")),
        Some(Numbers::Int(x, y)) => {
            let r = x.checked_rem(y).unwrap_or(0);
            integer(Some(if r != 0 && (r < 0) != (y < 0) { r + y } else { r }))
        }
        Some(Numbers::Float(x, y)) => Ok(Value::from(x - y * (x / y).floor())),
        None => Err(unsupported("%", &a, &b)),
    }
}

fn divide(op: &str, a: &Value, b: &Value) -> Result<Value, Error> {
    let numbers = numbers(a, b).ok_or_else(|| unsupported(op, a, b))?;
    match numbers {
        Numbers::Int(_, 0) => Err(error("division by zero")),
        Numbers::Float(_, 0.0) => Err(error("division by zero")),
        Numbers::Int(x, y) if op == "/" => Ok(Value::from(x as f64 / y as f64)),
        Numbers::Int(x, y) => {
            let down = (x % y != 0 && (x < 0) != (y < 0)) as i128;
            integer(x.checked_div(y).and_then(|q| q.checked_sub(down)))
        }
        Numbers::Float(x, y) if op == "/" => Ok(Value::from(x / y)),
        Numbers::Float(x, y) => Ok(Value::from((x / y).floor())),
    }
}

fn concat(a: &Value, b: &Value) -> Result<Value, Error> {
    let (x, y) = (python::str_of(a)?, python::str_of(b)?);
    Ok(Value::from(x + &y))
}

fn compare(op: &str, a: &Value, b: &Value) -> Result<bool, Error> {
    match (a.as_str(), b.as_str()) {
        (Some(x), Some(y)) => charge(x.len().max(y.len()) / 16)?,
        _ => {
            weigh(a)?;
            weigh(b)?;
        }
    }
    Ok(match op {
        "==" => a == b,
        "!=" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        ">=" => a >= b,
        "in" => contains(b, a)?,
        _ => !contains(b, a)?,
    })
}

fn contains(container: &Value, needle: &Value) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        let Some(needle) = needle.as_str() else {
            return Err(error(format!("'in <string>' needs a string, not {}", needle.kind())));
        };
        return Ok(text.contains(needle));
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Seq | ValueKind::Iterable => Ok(container.try_iter()?.any(|v| v == *needle)),
        ValueKind::Map => Ok(!container.get_item(needle)?.is_undefined()),
        kind => Err(error(format!("{kind} is not a container"))),
    }
}

fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    let (Some(text), Some(index)) = (value.as_str(), key.as_i64()) else {
        return value.get_item(key);
    };
    charge(text.len() / 16)?;
    let index = if index < 0 { index + text.chars().count() as i64 } else { index };
    let c = usize::try_from(index).ok().and_then(|i| text.chars().nth(i));
    Ok(c.map_or(Value::UNDEFINED, |c| Value::from(c.to_string())))
}

/// Python's slice, made at once.
fn slice(value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let bound = |v: &Value| -> Result<Option<i64>, Error> {
        match v.is_none() || v.is_undefined() {
            true => Ok(None),
            false => v.as_i64().map(Some).ok_or_else(|| error("slice indices must be integers")),
        }
    };
    let (start, stop) = (bound(&start)?, bound(&stop)?);
    let step = bound(&step)?.unwrap_or(1);
    if step == 0 {
        return Err(error("slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        charge(text.len())?;
        let chars: Vec<char> = text.chars().collect();
        let picked = slice_indices(chars.len(), start, stop, step);
        return Ok(Value::from(picked.into_iter().map(|i| chars[i]).collect::<String>()));
    }
    if !is_list(&value) {
        return Err(error(format!("a {} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    charge(items.len())?;
    let picked = slice_indices(items.len(), start, stop, step);
    Ok(picked.into_iter().map(|i| items[i].clone()).collect())
}

fn slice_indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<usize> {
    let len = len as i64;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clip = |i: i64| if i < 0 { i.saturating_add(len).max(low) } else { i.min(high) };
    let start = start.map_or(if step > 0 { low } else { high }, clip);
    let stop = stop.map_or(if step > 0 { high } else { low }, clip);
    let mut picked = vec![];
    let mut at = start;
    while if step > 0 { at < stop } else { at > stop } {
        picked.push(at as usize);
        at = at.saturating_add(step);
    }
    picked
}

/// Keys and values in turn, as the machine stacks them.
fn build_map(parts: Rest<Value>) -> Result<Value, Error> {
    let pairs = parts.0.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let map = Value::from_object(pairs.collect::<IndexMap<Value, Value>>());
    weigh(&map)?;
    Ok(map)
}

fn set_attribute(value: Value, target: Value, name: &str) -> Result<Value, Error> {
    match target.downcast_object_ref::<Namespace>() {
        Some(namespace) => namespace.set(name, value).map(|()| Value::from(())),
        None => Err(error(format!("can only assign to namespaces, not {}", target.kind()))),
    }
}
