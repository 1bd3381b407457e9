//! The numbers in a JSON schema: those that the compiler cannot read, or would read as others, are
//! refused by their path.

use crate::error::{fail, TextResult};
use crate::schema_divisors::why_no_divisor;
use crate::schema_keywords::may_be;
use serde_json::{Map, Value as Json};

/// The compiler computes in double precision: integers beyond that would become others.
const LARGEST: f64 = 9_007_199_254_740_992.0; // 2^53
/// What a repetition in a regular expression can count.
const MAX_LENGTH: u64 = u32::MAX as u64;
const INEXACT: &str = "integers from 2^53 on are not supported";

/// Values of which an answer may be one.
pub fn check_values(members: &Map<String, Json>, path: &str) -> TextResult<()> {
    fn is_inexact(value: &Json) -> bool {
        match value {
            Json::Number(number) => {
                let size = number.as_f64().map_or(0.0, f64::abs);
                size >= LARGEST && size.fract() == 0.0 && size < 1e40
            }
            Json::Array(values) => values.iter().any(is_inexact),
            Json::Object(members) => members.values().any(is_inexact),
            _ => false,
        }
    }
    for name in ["const", "enum"] {
        if members.get(name).is_some_and(is_inexact) {
            return fail(format!("{path}.{name}: {INEXACT}"));
        }
    }
    Ok(())
}

/// Bounds of numbers. What `exclusiveMinimum` and `exclusiveMaximum` may be, too, is draft 4's.
fn why_no_bound(name: &str, value: &Json) -> Option<&'static str> {
    if value.is_boolean() && name.starts_with("exclusive") {
        return None;
    }
    match value.as_f64().map(f64::abs) {
        None => Some("it must be a number"),
        Some(size) => (size >= LARGEST).then_some(INEXACT),
    }
}

fn why_no_count(value: &Json, most: u64) -> Option<&'static str> {
    match value.as_u64() {
        Some(count) => (count > most).then_some("it is too large"),
        None if value.as_f64().is_some_and(|number| number >= LARGEST) => Some("it is too large"),
        None => Some("it must be an integer from 0 on"),
    }
}

/// The compiler names no place, and reads them only where a value may be of their type.
pub fn check_numbers(members: &Map<String, Json>, path: &str) -> TextResult<()> {
    let may_be = |wanted: &str| may_be(members, wanted);
    let is_numeric = may_be("number") || may_be("integer");
    for (name, value) in members {
        let why = match name.as_str() {
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" if is_numeric => {
                why_no_bound(name, value)
            }
            "multipleOf" if is_numeric => why_no_divisor(value),
            "minLength" | "maxLength" if may_be("string") => why_no_count(value, MAX_LENGTH),
            "minItems" | "maxItems" if may_be("array") => why_no_count(value, u64::MAX),
            "minProperties" | "maxProperties" if may_be("object") => why_no_count(value, u64::MAX),
            _ => None,
        };
        if let Some(why) = why {
            return fail(format!("{path}.{name}: {why}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_keywords::refusal;
    use serde_json::json;

    #[test]
    fn numbers_are_named_with_their_path() {
        let large = json!(1u64 << 40);
        for name in
            ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]
        {
            let refused = |value: &Json, why: &str| {
                let schema = json!({"properties": {"a": {name: value}}});
                assert_eq!(refusal(schema), format!("s.properties.a.{name}: {why}"), "{value}");
            };
            refused(&json!(1e300), "it is too large");
            let is_length = name.ends_with("Length");
            for value in [large.clone(), json!(1u64 << 32), json!(u64::MAX)] {
                if is_length {
                    refused(&value, "it is too large");
                } else {
                    assert_eq!(refusal(json!({name: value})), "");
                }
            }
            for value in [json!(-1), json!(2.5), json!("3"), json!(null), json!(true), json!([])] {
                refused(&value, "it must be an integer from 0 on");
            }
            assert_eq!(refusal(json!({name: u32::MAX})), "");
            assert_eq!(refusal(json!({name: 0})), "");
        }
        for name in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"] {
            let refused = |value: Json, why: &str| {
                assert_eq!(refusal(json!({name: value})), format!("s.{name}: {why}"), "{value}");
            };
            let is_divisor = name == "multipleOf";
            refused(json!("5"), "it must be a number");
            refused(json!(null), "it must be a number");
            for value in [json!(1e300), json!(-1e308), json!(1u64 << 53)] {
                refused(value, if is_divisor { "it has too many digits" } else { INEXACT });
            }
            assert_eq!(refusal(json!({name: u32::MAX / 11})), "");
            assert_eq!(refusal(json!({name: 0.01})), "");
        }
        for (schema, why) in [
            (json!({"multipleOf": 1e-300}), "s.multipleOf: it has too many digits"),
            (json!({"multipleOf": 0}), "s.multipleOf: it must not be 0"),
            (json!({"multipleOf": -0.0}), "s.multipleOf: it must not be 0"),
            (json!({"multipleOf": true}), "s.multipleOf: it must be a number"),
            (json!({"exclusiveMinimum": true, "minimum": 1}), ""),
            // Of other types: nobody reads them.
            (json!({"type": "string", "minimum": null, "maxItems": large}), ""),
            (json!({"type": ["integer", "null"], "maxLength": large, "maxProperties": -1}), ""),
            (
                json!({"type": ["null", "string"], "maxLength": large}),
                "s.maxLength: it is too large",
            ),
            (
                json!({"type": "integer", "maximum": 1e19}),
                "s.maximum: integers from 2^53 on are not supported",
            ),
        ] {
            assert_eq!(refusal(schema), why);
        }
    }
}
