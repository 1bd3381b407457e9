//! Filters, tests and functions that templates may use. Built-in ones are wrapped so that they pay
//! for what they read and return plain lists; those whose result can outgrow their input are ours.

use super::meter::{charge, error, raise, settle, weigh};
use super::namespace::Namespace;
use super::python::{str_of, Tuple};
use super::{json, scalars, strftime, string_methods};
use indexmap::IndexMap;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{filters, format_filter, tests, Environment, Error, FormatStyle, State, Value};

/// The longest field width in a format string, and of `indent`, `batch` and `slice`.
const MAX_WIDTH: i64 = 10_000;

pub fn register(env: &mut Environment<'static>) {
    register_wrapped(env);
    register_tests(env);
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", |value: Value| str_of(&value));
    env.add_filter("trim", scalars::trim);
    env.add_filter("join", join);
    env.add_filter("replace", |s: Value, args: Rest<Value>| {
        let s = str_of(&s)?;
        charge(s.len())?;
        string_methods::replace(&s, &args.0)
    });
    env.add_filter("capitalize", |s: Value| {
        Ok::<_, Error>(string_methods::capitalize(&str_of(&s)?))
    });
    env.add_filter("format", |s: &str, args: Rest<Value>| {
        check_format(s, &args.0)?;
        format_filter(FormatStyle::Printf, s, &args.0)
    });
    env.add_filter("indent", indent);
    env.add_filter("title", scalars::title);
    env.add_filter("int", scalars::int);
    env.add_filter("float", scalars::float);
    env.add_filter("round", scalars::round);
    env.add_filter("wordcount", scalars::wordcount);
    env.add_filter("e", scalars::escape);
    env.add_filter("escape", scalars::escape);
    env.add_function("range", range);
    env.add_function("dict", dict);
    env.add_function("namespace", namespace);
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("strftime_now", strftime::now);
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        let message = str_of(&message)?;
        raise(message.clone());
        Err(error(message))
    });
}

fn register_wrapped(env: &mut Environment<'static>) {
    let mut add = |name: &'static str, filter: Value| {
        env.add_filter(name, move |state: &State, args: Rest<Value>| {
            for value in &args.0 {
                weigh(value)?;
                charge(value.as_str().map_or(0, str::len))?;
            }
            settle(filter.call(state, &args.0)?)
        });
    };
    macro_rules! builtin {
        ($($name:literal => $filter:expr),* $(,)?) => {
            $(add($name, Value::from_function($filter));)*
        };
    }
    builtin! {
        "abs" => filters::abs, "attr" => filters::attr, "bool" => filters::bool,
        "count" => length, "d" => filters::default, "default" => filters::default,
        "dictsort" => dictsort,
        "first" => first, "groupby" => filters::groupby,
        "last" => last,
        "length" => length, "list" => list, "lower" => lower,
        "map" => filters::map, "max" => filters::max, "min" => filters::min,
        "reject" => filters::reject, "rejectattr" => filters::rejectattr,
        "reverse" => filters::reverse, "safe" => filters::safe,
        "select" => filters::select, "selectattr" => filters::selectattr, "sort" => filters::sort,
        "sum" => filters::sum, "unique" => filters::unique,
        "upper" => upper, "items" => items, "urlencode" => scalars::urlencode, "batch" => batch, "slice" => slice,
    }
}

fn register_tests(env: &mut Environment<'static>) {
    let mut add = |name: &'static str, test: Value| {
        env.add_test(name, move |state: &State, args: Rest<Value>| {
            // `x is defined` looks at no contents; only comparisons of two values do.
            if args.0.len() > 1 {
                args.0.iter().try_for_each(weigh)?;
            }
            charge(args.0.first().and_then(Value::as_str).map_or(0, str::len) / 16)?;
            test.call(state, &args.0).map(|v| v.is_true())
        });
    };
    macro_rules! builtin {
        ($($name:literal => $test:expr),* $(,)?) => {
            $(add($name, Value::from_function($test));)*
        };
    }
    builtin! {
        "boolean" => tests::is_boolean, "callable" => is_callable, "defined" => tests::is_defined,
        "divisibleby" => tests::is_divisibleby, "eq" => tests::is_eq, "equalto" => tests::is_eq,
        "==" => tests::is_eq, "even" => tests::is_even, "false" => tests::is_false,
        "filter" => tests::is_filter, "float" => tests::is_float, "ge" => tests::is_ge,
        ">=" => tests::is_ge, "gt" => tests::is_gt, "greaterthan" => tests::is_gt,
        ">" => tests::is_gt, "in" => tests::is_in, "integer" => tests::is_integer,
        "iterable" => is_iterable, "le" => tests::is_le, "<=" => tests::is_le,
        "lower" => tests::is_lower, "lt" => tests::is_lt, "lessthan" => tests::is_lt,
        "<" => tests::is_lt, "mapping" => tests::is_mapping, "ne" => tests::is_ne,
        "!=" => tests::is_ne, "none" => tests::is_none, "number" => tests::is_number,
        "odd" => tests::is_odd, "sameas" => tests::is_sameas, "sequence" => is_sequence,
        "string" => tests::is_string, "test" => tests::is_test, "true" => tests::is_true,
        "undefined" => tests::is_undefined, "upper" => tests::is_upper,
    }
}

fn is_callable(value: Value) -> bool {
    value.kind() == ValueKind::Plain
}

/// Jinja's test asks for len() and indexing, which strings, dicts and what is undefined have too.
fn is_sequence(value: &Value) -> bool {
    let kinds = [ValueKind::Seq, ValueKind::String, ValueKind::Map, ValueKind::Undefined];
    kinds.contains(&value.kind())
}

/// What is undefined is an empty list, as Python's len() and iter() see it; None is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && tests::is_iterable(value)
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    filters::length(value)
}

fn first(value: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(value);
    }
    filters::first(&value)
}

fn last(value: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(value);
    }
    filters::last(value)
}

fn list(state: &State, value: Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(error("None is not iterable"));
    }
    filters::list(state, value)
}

/// Of anything's text, as Python writes it.
fn upper(value: Value) -> Result<String, Error> {
    Ok(str_of(&value)?.to_uppercase())
}

fn lower(value: Value) -> Result<String, Error> {
    Ok(str_of(&value)?.to_lowercase())
}

fn join(values: Value, separator: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let separator: Option<Value> = separator.or(kwargs.get("d")?);
    let attribute: Option<Value> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let separator = separator.map_or(Ok(String::new()), |s| str_of(&s))?;
    let Some(attribute) = attribute else { return string_methods::join(&separator, &values) };
    let picked =
        values.try_iter()?.map(|v| v.get_item(&attribute)).collect::<Result<Vec<_>, _>>()?;
    string_methods::join(&separator, &Value::from(picked))
}

/// Refuses widths that would turn a short format string into megabytes.
pub fn check_format(format: &str, args: &[Value]) -> Result<(), Error> {
    let mut run = 0;
    for byte in format.bytes() {
        run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        if run > 4 {
            return Err(error("a field width in a format string is too large"));
        }
    }
    // `%*d` and `{:{}}` take the width from an argument.
    if format.contains('*') || format.contains(":{") {
        return Err(error("field widths from arguments are not supported"));
    }
    let fields = format.bytes().filter(|b| matches!(b, b'%' | b'{')).count();
    let longest =
        args.iter().map(|v| str_of(v).map(|s| s.len())).try_fold(0, |m, n| n.map(|n| m.max(n)))?;
    charge(format.len() + fields.saturating_mul(longest.max(MAX_WIDTH as usize)))
}

fn width_of(value: &Value, default: i64) -> Result<i64, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok(default);
    }
    value
        .as_i64()
        .filter(|n| (0..=MAX_WIDTH).contains(n))
        .ok_or_else(|| error(format!("a width must be from 0 to {MAX_WIDTH}")))
}

/// `indent(s, width=4, first=False, blank=False)`; the width may be a string.
fn indent(value: Value, args: Rest<Value>) -> Result<String, Error> {
    let (width, first, blank, kwargs): (Option<Value>, Option<bool>, Option<bool>, Kwargs) =
        from_args(&args.0)?;
    let width: Value = width.or(kwargs.get("width")?).unwrap_or(Value::UNDEFINED);
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let pad = match width.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(width_of(&width, 4)? as usize),
    };
    let text = str_of(&value)? + "\n";
    charge(text.len())?;
    let lines = string_methods::lines(&text, false);
    charge(pad.len().saturating_mul(lines.len()))?;
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 && (blank || !line.is_empty())) || (i == 0 && first) {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn tuples(pairs: Value) -> Result<Value, Error> {
    let tuple = |pair: Value| Ok(Tuple::of(pair.try_iter()?.collect()));
    Ok(pairs.try_iter()?.map(tuple).collect::<Result<Vec<_>, Error>>()?.into())
}

fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    tuples(filters::items(value)?)
}

fn dictsort(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    tuples(filters::dictsort(value, kwargs)?)
}

fn batch(state: &State, value: Value, count: Value, fill: Option<Value>) -> Result<Value, Error> {
    filters::batch(state, value, width_of(&count, 1)? as usize, fill)
}

fn slice(state: &State, value: Value, count: Value, fill: Option<Value>) -> Result<Value, Error> {
    filters::slice(state, value, width_of(&count, 1)? as usize, fill)
}

fn range(a: i64, b: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = b.map_or((0, a), |b| (a, b));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(error("range() arg 3 must not be zero"));
    }
    let span = if step > 0 { stop as i128 - start as i128 } else { start as i128 - stop as i128 };
    let count = (span.max(0) as u128).div_ceil(step.unsigned_abs() as u128);
    // Jinja2's sandbox has the same limit.
    if count > 100_000 {
        return Err(error("Range too big. The sandbox blocks ranges larger than 100000."));
    }
    charge(count as usize)?;
    Ok((0..count as i64).map(|i| Value::from(start + i * step)).collect())
}

fn dict(source: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = vec![];
    if let Some(source) = source {
        weigh(&source)?;
        for key in source.try_iter()? {
            pairs.push(match source.kind() {
                ValueKind::Map => (key.clone(), source.get_item(&key)?),
                _ => (key.get_item_by_index(0)?, key.get_item_by_index(1)?),
            });
        }
    }
    for name in kwargs.args() {
        pairs.push((Value::from(name), kwargs.get(name)?));
    }
    settle(Value::from_object(pairs.into_iter().collect::<IndexMap<Value, Value>>()))
}

fn namespace(source: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let namespace = Namespace::default();
    if let Some(source) = source {
        for key in source.try_iter()? {
            namespace.set(&str_of(&key)?, source.get_item(&key)?)?;
        }
    }
    for name in kwargs.args() {
        namespace.set(name, kwargs.get(name)?)?;
    }
    Ok(Value::from_object(namespace))
}
