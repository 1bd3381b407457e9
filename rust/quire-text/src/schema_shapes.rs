//! What the values of a JSON schema's keywords must look like. The compiler does not say where it met
//! one that does not.

use crate::error::{fail, short, TextResult};
use crate::schema_keywords::may_be;
use llguidance::derivre::RegexBuilder;
use llguidance::{regex_to_lark, JsonCompileOptions};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

const NO_VALUES: &str = "it must be a list of at least one value";

/// Nothing if the compiler can read it; else why not.
fn why_no_pattern(pattern: &str) -> Option<String> {
    let error = RegexBuilder::new().mk_regex_for_serach(&regex_to_lark(pattern, "dw")).err()?;
    // Of a parser's message the last line says what is wrong; the others draw where.
    let error = error.to_string();
    Some(format!("the pattern is not supported: {}", error.lines().last().unwrap_or_default()))
}

fn why_no_shape(name: &str, value: &Json) -> Option<&'static str> {
    let is_string = value.is_string();
    match (name, value) {
        ("type", Json::Array(types)) => types.is_empty().then_some("it must name a type"),
        ("enum", Json::Array(values)) => values.is_empty().then_some(NO_VALUES),
        ("enum", _) => Some(NO_VALUES),
        ("anyOf" | "oneOf", Json::Array(schemas)) => {
            schemas.is_empty().then_some("it must be a list of at least one schema")
        }
        ("required", Json::Array(names)) => {
            (!names.iter().all(Json::is_string)).then_some("it must be a list of names")
        }
        ("required", _) => Some("it must be a list of names"),
        ("$ref" | "$schema" | "pattern", _) => (!is_string).then_some("it must be a string"),
        _ => None,
    }
}

pub fn check_shapes(members: &Map<String, Json>, path: &str) -> TextResult<()> {
    for (name, value) in members {
        if let Some(why) = why_no_shape(name, value) {
            return fail(format!("{path}.{name}: {why}"));
        }
    }
    let pattern = members.get("pattern").and_then(Json::as_str);
    if let Some(why) = pattern.filter(|_| may_be(members, "string")).and_then(why_no_pattern) {
        return fail(format!("{path}.pattern: {why}"));
    }
    let named = members.get("patternProperties").and_then(Json::as_object);
    for name in named.filter(|_| may_be(members, "object")).into_iter().flat_map(Map::keys) {
        if let Some(why) = why_no_pattern(name) {
            return fail(format!("{path}.patternProperties.{}: {why}", short(name)));
        }
    }
    Ok(())
}

/// llguidance's own options, which a schema may bring along.
pub fn check_options(schema: &Json, path: &str) -> TextResult<()> {
    let Some(options) = schema.get("x-guidance") else { return Ok(()) };
    match JsonCompileOptions::deserialize(options) {
        Ok(_) => Ok(()),
        Err(why) => fail(format!("{path}.x-guidance: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_keywords::refusal;
    use serde_json::json;

    #[test]
    fn values_of_a_wrong_kind_are_named_with_their_path() {
        let any =
            [json!(null), json!(true), json!(5), json!("a"), json!([]), json!([5]), json!({})];
        let schemas = "it must be a list of schemas";
        let named = "it must be an object whose members are schemas";
        let one_schema = "it must be a list of at least one schema";
        let names = "it must be a list of names";
        for (keyword, fine, why) in [
            ("properties", vec![6], named),
            ("patternProperties", vec![6], named),
            ("$defs", vec![6], named),
            ("definitions", vec![6], named),
            ("allOf", vec![4], schemas),
            ("prefixItems", vec![4], schemas),
            ("anyOf", vec![], schemas),
            ("oneOf", vec![], schemas),
            ("required", vec![4], names),
            ("enum", vec![5], NO_VALUES),
            ("$ref", vec![], "it must be a string"),
            ("$schema", vec![3], "it must be a string"),
            ("pattern", vec![3], "it must be a string"),
            ("additionalProperties", vec![1, 6], ""),
            ("items", vec![1, 4, 6], ""),
        ] {
            for (i, value) in any.iter().enumerate() {
                let message = refusal(json!({"items": {keyword: value}}));
                let place = format!("s.items.{keyword}");
                let is_schema_in_list =
                    *value == json!([5]) && (why == schemas || keyword == "items");
                let wanted = match value {
                    _ if fine.contains(&i) => String::new(),
                    _ if is_schema_in_list => {
                        format!("{place}[0]: a schema must be an object, true or false")
                    }
                    _ if why.is_empty() => {
                        format!("{place}: a schema must be an object, true or false")
                    }
                    Json::Array(_) if ["anyOf", "oneOf"].contains(&keyword) => {
                        format!("{place}: {one_schema}")
                    }
                    Json::String(_) if keyword == "$ref" => {
                        format!("{place}: \"a\" is no schema within this one")
                    }
                    _ => format!("{place}: {why}"),
                };
                assert_eq!(message, wanted, "{keyword}: {value}");
            }
        }
        for (value, place) in [(json!(5), "s"), (json!(null), "s"), (json!([]), "s")] {
            assert_eq!(
                refusal(value),
                format!("{place}: a schema must be an object, true or false")
            );
        }
        assert_eq!(refusal(json!({"type": []})), "s.type: it must name a type");
        let member = json!({"properties": {"a": {"$defs": {"d": "x"}}}});
        let wanted = "s.properties.a.$defs.d: a schema must be an object, true or false";
        assert_eq!(refusal(member), wanted);
        assert_eq!(refusal(json!({"required": ["a", 1]})), format!("s.required: {names}"));
    }

    #[test]
    fn patterns_that_cannot_be_read_are_named_with_their_path() {
        for bad in ["(", "[", "a{2", "(?=a)", r"\1", "*", "a{3,2}"] {
            let message = refusal(json!({"properties": {"a": {"pattern": bad}}}));
            let start = "s.properties.a.pattern: the pattern is not supported: ";
            assert!(message.starts_with(start), "{bad}: {message}");
            let message = refusal(json!({"items": {"patternProperties": {bad: true}}}));
            let start = format!("s.items.patternProperties.{bad}: the pattern is not supported: ");
            assert!(message.starts_with(&start), "{bad}: {message}");
            // Nobody reads it.
            assert_eq!(refusal(json!({"type": "integer", "pattern": bad})), "");
        }
        for fine in ["", "a/b", r"^\d{3}-\w+$", "é", "a|b", "[^\"]*", r"\/"] {
            assert_eq!(refusal(json!({"pattern": fine, "patternProperties": {fine: true}})), "");
        }
    }

    #[test]
    fn options_of_the_grammar_are_read() {
        assert_eq!(refusal(json!({"x-guidance": {"whitespace_flexible": false}})), "");
        for bad in [json!(5), json!({"whitespace_flexible": 5}), json!({"typo": true})] {
            let message = refusal(json!({"x-guidance": bad}));
            assert!(message.starts_with("s.x-guidance: "), "{bad}: {message}");
        }
    }
}
