//! Filters of one text or number.

use super::meter::charge;
use super::python::{is_space, str_of};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, Value};

/// Jinja's title: words begin after spaces, hyphens and opening brackets.
pub fn title(value: Value) -> Result<String, Error> {
    let text = str_of(&value)?;
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        match inside {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        inside = !(is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<'));
    }
    Ok(out)
}

/// `int(value, default=0)`: of the text or number; the default where it is neither.
pub fn int(value: Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default: Option<Value> = default.or(kwargs.get("default")?);
    let base: u32 = kwargs.get::<Option<u32>>("base")?.unwrap_or(10);
    let text = str_of(&value)?;
    let text = text.trim_matches(is_space);
    let parsed = match value.kind() {
        ValueKind::Bool => Some(value.is_true() as i128),
        _ if (2..=36).contains(&base) => i128::from_str_radix(&text.replace('_', ""), base).ok(),
        _ => None,
    };
    let parsed =
        parsed.or_else(|| text.parse::<f64>().ok().filter(|x| x.is_finite()).map(|x| x as i128));
    Ok(match parsed {
        Some(n) => i64::try_from(n).map_or_else(|_| Value::from(n), Value::from),
        None => default.unwrap_or_else(|| Value::from(0)),
    })
}

pub fn float(value: Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default: Option<Value> = default.or(kwargs.get("default")?);
    let text = match value.kind() {
        ValueKind::Bool => (value.is_true() as i32).to_string(),
        _ => str_of(&value)?,
    };
    let parsed = text.trim_matches(is_space).parse::<f64>().ok();
    Ok(parsed.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from))
}

/// `round(value, precision=0, method="common")`; "common" rounds halves to even, as Python does.
pub fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<&str>,
    kwargs: Kwargs,
) -> Result<f64, Error> {
    let precision = precision.or(kwargs.get("precision")?).unwrap_or(0).clamp(-300, 300);
    let method: &str = method.or(kwargs.get("method")?).unwrap_or("common");
    let x = f64::try_from(value)?;
    let scale = 10f64.powi(precision);
    Ok(match method {
        "ceil" => (x * scale).ceil() / scale,
        "floor" => (x * scale).floor() / scale,
        _ if precision < 0 => (x * scale).round_ties_even() / scale,
        _ => format!("{x:.*}", precision as usize).parse().unwrap_or(x),
    })
}

pub fn wordcount(value: Value) -> Result<usize, Error> {
    let text = str_of(&value)?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    Ok(text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count())
}

pub fn escape(value: Value) -> Result<Value, Error> {
    let text = str_of(&value)?;
    if value.is_safe() {
        return Ok(value);
    }
    charge(text.len())?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    Ok(Value::from_safe_string(out))
}

pub fn urlencode(value: &Value) -> Result<String, Error> {
    let text = str_of(value)?;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(out)
}

pub fn trim(value: Value, chars: Option<&str>) -> Result<String, Error> {
    let text = str_of(&value)?;
    charge(text.len().saturating_mul(1 + chars.map_or(0, |c| c.len() / 8)))?;
    let text = text.trim_matches(|c| chars.map_or(is_space(c), |set| set.contains(c)));
    Ok(text.to_string())
}
