//! `json.dumps` as transformers gives it to templates under the name `tojson`.

use super::meter::{charge_output, error, MAX_DEPTH};
use super::python;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{Error, Value};

struct Style {
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub fn tojson(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let (ensure_ascii, indent, separators, sort_keys, kwargs): (
        Option<bool>,
        Option<Value>,
        Option<Value>,
        Option<bool>,
        Kwargs,
    ) = from_args(&args.0)?;
    let by_name = |name: &str, given: Option<Value>| -> Result<Option<Value>, Error> {
        Ok(given.or(kwargs.get(name)?).filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let indent = match by_name("indent", indent)? {
        Some(v) if v.as_str().is_some() => v.as_str().map(str::to_string),
        Some(v) => Some(" ".repeat(v.as_i64().unwrap_or(0).clamp(0, 64) as usize)),
        None => None,
    };
    let plain_comma = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match by_name("separators", separators)? {
        Some(pair) => {
            let part = |i| Ok::<_, Error>(pair.get_item_by_index(i)?.to_string());
            (part(0)?, part(1)?)
        }
        None => (plain_comma.to_string(), ": ".to_string()),
    };
    let flag = |name: &str, given: Option<bool>| -> Result<bool, Error> {
        Ok(given.or(kwargs.get(name)?).unwrap_or(false))
    };
    let style = Style {
        ascii: flag("ensure_ascii", ensure_ascii)?,
        indent,
        item_separator,
        key_separator,
        sort_keys: flag("sort_keys", sort_keys)?,
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(Value::from(out))
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(error("tojson: nested too deep"));
        }
        let before = out.len();
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&json_number(value)),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => return self.list(out, value, depth),
            ValueKind::Map => return self.map(out, value, depth),
            ValueKind::Undefined => {
                return Err(error("Object of type Undefined is not JSON serializable"))
            }
            kind => return Err(error(format!("Object of type {kind} is not JSON serializable"))),
        }
        charge_output(out.len() - before)
    }

    fn list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut empty = true;
        for item in value.try_iter()? {
            out.push_str(if empty { "[" } else { &self.item_separator });
            empty = false;
            self.new_line(out, depth + 1)?;
            self.write(out, &item, depth + 1)?;
        }
        self.close(out, empty, "[]", depth)
    }

    fn map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        let mut empty = true;
        for key in keys {
            out.push_str(if empty { "{" } else { &self.item_separator });
            empty = false;
            self.new_line(out, depth + 1)?;
            let before = out.len();
            match key.kind() {
                ValueKind::String => self.string(out, key.as_str().unwrap_or_default()),
                ValueKind::None => out.push_str("\"null\""),
                ValueKind::Bool => self.string(out, if key.is_true() { "true" } else { "false" }),
                ValueKind::Number => self.string(out, &json_number(&key)),
                kind => return Err(error(format!("a JSON key cannot be a {kind}"))),
            }
            out.push_str(&self.key_separator);
            charge_output(out.len() - before)?;
            self.write(out, &value.get_item(&key)?, depth + 1)?;
        }
        self.close(out, empty, "{}", depth)
    }

    fn new_line(&self, out: &mut String, depth: usize) -> Result<(), Error> {
        let width = self.indent.as_ref().map_or(0, |i| 1 + i.len() * depth);
        charge_output(width + self.item_separator.len())?;
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    }

    fn close(&self, out: &mut String, empty: bool, pair: &str, depth: usize) -> Result<(), Error> {
        if empty {
            out.push_str(pair);
            return charge_output(2);
        }
        self.new_line(out, depth)?;
        out.push_str(&pair[1..]);
        Ok(())
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", c as u32)),
                '\x7f'.. if self.ascii => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(c),
            }
        }
        out.push('"');
    }
}

fn json_number(value: &Value) -> String {
    match python::number(value).as_str() {
        "nan" => "NaN".to_string(),
        "inf" => "Infinity".to_string(),
        "-inf" => "-Infinity".to_string(),
        finite => finite.to_string(),
    }
}
