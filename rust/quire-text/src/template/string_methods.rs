//! The methods of Python's str.

use super::filters::check_format;
use super::meter::{charge, error};
use super::python::{is_space, str_of, Tuple};
use minijinja::value::{from_args, Kwargs};
use minijinja::{format_filter, Error, FormatStyle, Value};

/// None: str has no such method.
pub fn call(s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "upper" => s.to_uppercase().into(),
        "lower" => s.to_lowercase().into(),
        "capitalize" => capitalize(s).into(),
        "title" => title(s).into(),
        "swapcase" => swapcase(s).into(),
        "strip" | "lstrip" | "rstrip" => strip(s, method, args)?,
        "split" | "rsplit" => split(s, method == "rsplit", args)?,
        "splitlines" => splitlines(s, args)?,
        "partition" | "rpartition" => partition(s, method, args)?,
        "startswith" | "endswith" => affix(s, method == "startswith", args)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            s.strip_prefix(prefix).unwrap_or(s).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            s.strip_suffix(suffix).unwrap_or(s).into()
        }
        "replace" => replace(s, args)?,
        "find" | "rfind" | "index" | "rindex" | "count" => search(s, method, args)?,
        "center" | "ljust" | "rjust" | "zfill" => pad(s, method, args)?,
        "join" => {
            let (values,): (&Value,) = from_args(args)?;
            if values.try_iter()?.any(|v| v.as_str().is_none()) {
                return Err(error("join: expected only strings"));
            }
            join(s, values)?
        }
        "format" => {
            check_format(s, args)?;
            format_filter(FormatStyle::StrFormat, s, args)?.into()
        }
        _ if method.starts_with("is") => return Ok(classify(s, method).map(Value::from)),
        _ => return Ok(None),
    }))
}

pub fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or(String::new(), |c| {
        c.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase()
    })
}

fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        match inside {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        inside = c.is_alphabetic();
    }
    out
}

fn swapcase(s: &str) -> String {
    let swap = |c: char| match c.is_uppercase() {
        true => c.to_lowercase().collect::<String>(),
        false => c.to_uppercase().collect(),
    };
    s.chars().map(swap).collect()
}

fn strip(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    charge(s.len().saturating_mul(chars.map_or(0, |c| c.len() / 8)))?;
    let matches = |c: char| chars.map_or(is_space(c), |set| set.contains(c));
    Ok(Value::from(match method {
        "strip" => s.trim_matches(matches),
        "lstrip" => s.trim_start_matches(matches),
        _ => s.trim_end_matches(matches),
    }))
}

fn split(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (sep, max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let sep: Option<Value> = sep.or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let max: i64 = max.or(kwargs.get("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let parts = if max < 0 { usize::MAX } else { max as usize + 1 };
    let text = |v: &str| Value::from(v);
    let Some(sep) = sep else { return Ok(split_space(s, from_right, parts).into()) };
    let sep = sep.as_str().filter(|sep| !sep.is_empty()).ok_or_else(|| error("bad separator"))?;
    Ok(Value::from(if from_right {
        let mut list: Vec<Value> = s.rsplitn(parts, sep).map(text).collect();
        list.reverse();
        list
    } else {
        s.splitn(parts, sep).map(text).collect()
    }))
}

fn split_space(s: &str, from_right: bool, parts: usize) -> Vec<Value> {
    let mut list = vec![];
    let mut rest =
        if from_right { s.trim_end_matches(is_space) } else { s.trim_start_matches(is_space) };
    while !rest.is_empty() {
        if list.len() + 1 == parts {
            let last = if from_right { rest } else { rest.trim_end_matches(|_| false) };
            list.push(Value::from(last));
            break;
        }
        if from_right {
            let cut = rest
                .rfind(is_space)
                .map_or(0, |i| i + rest[i..].chars().next().map_or(0, char::len_utf8));
            list.push(Value::from(&rest[cut..]));
            rest = rest[..cut].trim_end_matches(is_space);
        } else {
            let cut = rest.find(is_space).unwrap_or(rest.len());
            list.push(Value::from(&rest[..cut]));
            rest = rest[cut..].trim_start_matches(is_space);
        }
    }
    if from_right {
        list.reverse();
    }
    list
}

fn splitlines(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
    Ok(lines(s, keep).into_iter().map(Value::from).collect())
}

/// The lines of `s` by Python's rules, with their ends where `keep` says so.
pub fn lines(s: &str, keep: bool) -> Vec<&str> {
    let is_break = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = vec![];
    let mut rest = s;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let ending = match &rest[end..] {
            tail if tail.starts_with("\r\n") => 2,
            tail => tail.chars().next().map_or(0, char::len_utf8),
        };
        lines.push(&rest[..if keep { end + ending } else { end }]);
        rest = &rest[end + ending..];
    }
    lines
}

fn partition(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    let parts = match method {
        "partition" => s.split_once(sep).map_or([s, "", ""], |(a, b)| [a, sep, b]),
        _ => s.rsplit_once(sep).map_or(["", "", s], |(a, b)| [a, sep, b]),
    };
    Ok(Tuple::of(parts.map(Value::from).to_vec()))
}

fn affix(s: &str, front: bool, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&Value,) = from_args(args)?;
    let matches = |v: &Value| match v.as_str() {
        Some(affix) if front => Ok(s.starts_with(affix)),
        Some(affix) => Ok(s.ends_with(affix)),
        None => Err(error(format!("expected a string, not {}", v.kind()))),
    };
    if what.as_str().is_some() {
        return matches(what).map(Value::from);
    }
    for v in what.try_iter()? {
        if matches(&v)? {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

pub fn replace(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
    let limit = count.filter(|&n| n >= 0).map_or(usize::MAX, |n| n as usize);
    let hits = if old.is_empty() { s.chars().count() + 1 } else { s.matches(old).count() };
    charge(hits.min(limit).saturating_mul(new.len()))?;
    Ok(Value::from(s.replacen(old, new, limit.min(hits))))
}

fn search(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    if method == "count" {
        let empty = what.is_empty();
        return Ok(Value::from(if empty {
            s.chars().count() + 1
        } else {
            s.matches(what).count()
        }));
    }
    let at = if method.starts_with('r') { s.rfind(what) } else { s.find(what) };
    match at {
        Some(byte) => Ok(Value::from(s[..byte].chars().count())),
        None if method.ends_with("index") => Err(error("substring not found")),
        None => Ok(Value::from(-1)),
    }
}

fn pad(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let missing = (width.max(0) as usize).saturating_sub(s.chars().count());
    charge(missing.saturating_mul(4))?;
    let fill = if method == "zfill" { "0" } else { fill.unwrap_or(" ") };
    if fill.chars().count() != 1 {
        return Err(error("the fill character must be exactly one character long"));
    }
    // CPython's rule for where the odd space goes.
    let left = match method {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width as usize & 1),
        _ => missing,
    };
    let (left, right) = (fill.repeat(left), fill.repeat(missing - left));
    if method == "zfill" && s.starts_with(['+', '-']) {
        return Ok(Value::from(format!("{}{left}{}", &s[..1], &s[1..])));
    }
    Ok(Value::from(format!("{left}{s}{right}")))
}

pub fn join(separator: &str, values: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for (i, value) in values.try_iter()?.enumerate() {
        if i > 0 {
            charge(separator.len())?;
            out.push_str(separator);
        }
        let part = str_of(&value)?;
        out.push_str(&part);
    }
    Ok(Value::from(out))
}

fn classify(s: &str, method: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !s.is_empty() && s.chars().all(test);
    // A cased text has at least one cased letter and none of the other case.
    let cased = |this: fn(char) -> bool, other: fn(char) -> bool| {
        s.chars().any(this) && !s.chars().any(other)
    };
    Some(match method {
        "isspace" => all(is_space),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isdecimal" => all(|c| {
            c.is_ascii_digit() || (c.is_numeric() && c.is_alphanumeric() && !c.is_alphabetic())
        }),
        "isnumeric" => all(char::is_numeric),
        "isascii" => s.is_ascii(),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        _ => return None,
    })
}
