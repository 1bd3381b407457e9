//! Python's `str()` and `repr()` of template values, and its idea of white space.

use super::meter::charge_output;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, Value};
use std::sync::Arc;

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str(value)`; paid for as output. What a template prints.
pub fn str_of(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => {
            charge_output(text.len())?;
            out.push_str(text);
        }
        None if value.is_undefined() => {}
        None => repr_into(&mut out, value)?,
    }
    Ok(out)
}

fn repr_into(out: &mut String, value: &Value) -> Result<(), Error> {
    let before = out.len();
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::String => repr_str(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::Seq | ValueKind::Iterable => return repr_seq(out, value),
        ValueKind::Map => return repr_map(out, value),
        // Display of anything else is short and holds no other values.
        ValueKind::Bool | ValueKind::Bytes => out.push_str(&value.to_string()),
        _ => out.push_str("<object>"),
    }
    charge_output(out.len() - before)
}

/// A Python tuple: a list that prints with parentheses.
#[derive(Debug)]
pub struct Tuple(Vec<Value>);

impl Tuple {
    pub fn of(items: Vec<Value>) -> Value {
        Value::from_object(Tuple(items))
    }
}

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

fn repr_seq(out: &mut String, value: &Value) -> Result<(), Error> {
    let tuple = value.downcast_object_ref::<Tuple>();
    out.push(if tuple.is_some() { '(' } else { '[' });
    for (i, item) in value.try_iter()?.enumerate() {
        charge_output(2)?;
        if i > 0 {
            out.push_str(", ");
        }
        repr_into(out, &item)?;
    }
    out.push_str(match tuple {
        Some(tuple) if tuple.0.len() == 1 => ",)",
        Some(_) => ")",
        None => "]",
    });
    Ok(())
}

fn repr_map(out: &mut String, value: &Value) -> Result<(), Error> {
    out.push('{');
    for (i, key) in value.try_iter()?.enumerate() {
        charge_output(4)?;
        if i > 0 {
            out.push_str(", ");
        }
        repr_into(out, &key)?;
        out.push_str(": ");
        repr_into(out, &value.get_item(&key)?)?;
    }
    out.push('}');
    Ok(())
}

pub fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Python's shortest float: plain for exponents -4..15, `1e+16` style beyond.
pub fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "nan"
        } else if x > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_string();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = x.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

fn repr_str(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            _ => match c as u32 {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ 0..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// An approximation of `str.isprintable`: control, separator, private and format characters of the
/// common blocks are escaped, unassigned code points are not told apart.
fn is_printable(c: char) -> bool {
    if c == ' ' {
        return true;
    }
    !(c.is_control()
        || c.is_whitespace()
        || matches!(c as u32,
            0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F
            | 0x202A..=0x202E | 0x2060..=0x206F | 0xE000..=0xF8FF | 0xFEFF | 0xFFF0..=0xFFFB
            | 0xFFFE | 0xFFFF | 0xE0000..=0xE0FFF | 0xF0000..=0x10FFFF))
}
