//! Which keywords of a JSON schema are honoured. Those that are not are refused by their path: an
//! answer that breaks a rule which the client has written down would be worse than an error.

use crate::error::{fail, short, TextResult};
use crate::schema_divisors::{check_merged, may_overflow};
use crate::schema_numbers::{check_numbers, check_values};
use crate::schema_shapes::{check_options, check_shapes};
use serde_json::{Map, Value as Json};

/// What the value of a keyword is.
#[derive(Clone, Copy)]
enum Holds {
    /// No schema: a number, a string, a list of values.
    Data,
    Schema,
    /// One schema, or a list of them.
    SchemaOrList,
    List,
    /// An object whose values are schemas, by names that the client chose.
    Named,
}

fn keyword(name: &str) -> Option<Holds> {
    Some(match name {
        "type" | "const" | "enum" | "$ref" | "format" | "pattern" | "minLength" | "maxLength"
        | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
        | "minItems" | "maxItems" | "required" | "minProperties" | "maxProperties" => Holds::Data,
        "properties" | "patternProperties" | "$defs" | "definitions" => Holds::Named,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => Holds::List,
        "items" => Holds::SchemaOrList,
        "additionalItems" | "additionalProperties" => Holds::Schema,
        // Names of schemas.
        "$schema" | "$id" | "id" | "$anchor" => Holds::Data,
        // Annotations, which no answer can break. The last two are OpenAPI's.
        "title" | "description" | "default" | "examples" | "$comment" | "deprecated"
        | "readOnly" | "writeOnly" | "example" | "discriminator" => Holds::Data,
        _ if name.starts_with("x-") => Holds::Data,
        _ => return None,
    })
}

/// What `type` and `format` may be. (The compiler's format "unknown" would allow anything.)
const TYPES: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
pub const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// In a whole schema. Compilation compares every two patterns, and every two properties of an
/// object that need not be there; with more than 498 of these its first mask would be refused.
/// `allOf`, and `anyOf` beside properties, merge their parts: what they merge counts each time. So
/// compilation takes half a second at most.
const MAX_PROPERTIES: usize = 4000;
const MAX_OPTIONAL: usize = 498; // in one object
const MAX_PATTERN_PROPERTIES: usize = 100;
/// Schemas looked at to count what is merged.
pub const MAX_LOOKS: usize = 20_000;
const MAX_MERGE_DEPTH: usize = 16;

struct Counts<'a> {
    root: &'a Json,
    properties: usize,
    optional: usize, // in one object
    patterns: usize,
    looks: usize,
    divisors_may_overflow: bool,
}

impl Counts<'_> {
    /// The properties of an object, with those merged into it, and how many of them it requires.
    fn merged(&mut self, schema: &Json, depth: usize) -> (usize, usize) {
        self.looks += 1;
        if depth > MAX_MERGE_DEPTH || self.looks > MAX_LOOKS {
            return (0, 0);
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        let required = schema.get("required").and_then(Json::as_array);
        let is_property = |name: &&Json| match (properties, name.as_str()) {
            (Some(properties), Some(name)) => properties.contains_key(name),
            _ => false,
        };
        let mut sum = (
            properties.map_or(0, Map::len),
            required.map_or(0, |names| names.iter().filter(is_property).count()),
        );
        let target = schema.get("$ref").and_then(Json::as_str).and_then(|name| {
            let root = self.root;
            root.pointer(name.strip_prefix('#')?)
        });
        let parts = schema.get("allOf").and_then(Json::as_array);
        for part in parts.into_iter().flatten().chain(target) {
            let (all, required) = self.merged(part, depth + 1);
            sum = (sum.0.saturating_add(all), sum.1.saturating_add(required));
        }
        sum
    }

    fn add_object(&mut self, schema: &Map<String, Json>, value: &Json) {
        let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array());
        let times = alternatives.map(Vec::len).product::<usize>().max(1);
        let merges = schema.contains_key("allOf") || times > 1;
        if !merges && !schema.contains_key("properties") {
            return;
        }
        let (all, required) = self.merged(value, 0);
        self.optional = self.optional.max(all.saturating_sub(required));
        if merges {
            self.properties = self.properties.saturating_add(all.saturating_mul(times));
        }
    }

    fn add(&mut self, keyword: &str, number: usize) {
        match keyword {
            "properties" => self.properties += number,
            "patternProperties" => self.patterns += number,
            _ => {}
        }
    }
}

/// `path`: the schema's place in the request, for errors. Recursion is as deep as the schema is
/// nested, which the caller bounds.
pub fn check_keywords(schema: &Json, path: &str) -> TextResult<()> {
    let mut counts = Counts {
        root: schema,
        properties: 0,
        optional: 0,
        patterns: 0,
        looks: 0,
        divisors_may_overflow: may_overflow(schema),
    };
    check(schema, path, &mut counts)?;
    check_options(schema, path)?;
    if counts.properties > MAX_PROPERTIES {
        return fail(format!("{path}: more than {MAX_PROPERTIES} properties"));
    }
    if counts.optional > MAX_OPTIONAL {
        return fail(format!(
            "{path}: an object with more than {MAX_OPTIONAL} properties that are not `required`"
        ));
    }
    if counts.looks > MAX_LOOKS {
        return fail(format!("{path}: `allOf` and `$ref` merge more than {MAX_LOOKS} schemas"));
    }
    if counts.patterns > MAX_PATTERN_PROPERTIES {
        return fail(format!("{path}: more than {MAX_PATTERN_PROPERTIES} patternProperties"));
    }
    Ok(())
}

/// The compiler follows the draft that `$schema` names, and ignores what that does not know.
fn check_draft(members: &Map<String, Json>, path: &str, root: &Json) -> TextResult<()> {
    let draft = root.get("$schema").and_then(Json::as_str).unwrap_or_default();
    let draft = short(draft);
    if draft.contains("draft-03") || draft.contains("draft-04") {
        return fail(format!("{path}.$schema: {draft:?} is not supported"));
    }
    let is_older = draft.contains("draft-0") || draft.contains("2019-09");
    if members.contains_key("prefixItems") && members.contains_key("additionalItems") {
        return fail(format!("{path}.additionalItems: not beside `prefixItems`"));
    }
    if is_older && members.contains_key("prefixItems") {
        return fail(format!("{path}.prefixItems: {draft:?} does not have this keyword"));
    }
    Ok(())
}

/// Whether a reference names the whole schema, or a place in it where a schema stands: all of these
/// are checked. (What the compiler would make of other places, and of other documents, is unknown.)
fn is_schema_place(root: &Json, reference: &str) -> bool {
    let Some(path) = reference.strip_prefix('#') else { return false };
    let mut names = path.split('/');
    if names.next() != Some("") {
        return false;
    }
    let mut place = root;
    while let Some(name) = names.next() {
        let (Some(value), Some(holds)) = (place.get(name), keyword(name)) else { return false };
        let inner = match (holds, value) {
            (Holds::Data, _) => None,
            (Holds::Schema, _) | (Holds::SchemaOrList, Json::Object(_) | Json::Bool(_)) => {
                Some(value)
            }
            (Holds::Named, _) => names.next().and_then(|name| value.get(name)),
            (Holds::List | Holds::SchemaOrList, _) => {
                names.next().and_then(|name| value.get(name.parse::<usize>().ok()?))
            }
        };
        let Some(inner) = inner else { return false };
        place = inner;
    }
    true
}

/// Its types, if it says any.
fn types_of(members: &Map<String, Json>) -> &[Json] {
    match members.get("type") {
        Some(Json::Array(types)) => types.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}

/// Whether a value may be of this type, as far as `type` says.
pub fn may_be(members: &Map<String, Json>, wanted: &str) -> bool {
    let types = types_of(members);
    types.is_empty() || types.iter().any(|name| name == wanted)
}

/// The compiler does not say where it met a type or a format that it does not know.
fn check_types(members: &Map<String, Json>, path: &str) -> TextResult<()> {
    for name in types_of(members) {
        if !name.as_str().is_some_and(|name| TYPES.contains(&name)) {
            return fail(format!(
                "{path}.type: the type {} is not supported",
                short(&name.to_string())
            ));
        }
    }
    // A format of numbers is an annotation.
    match members.get("format") {
        Some(format) if may_be(members, "string") => match format.as_str() {
            Some(name) if FORMATS.contains(&name) => Ok(()),
            _ => fail(format!(
                "{path}.format: the format {} is not supported",
                short(&format.to_string())
            )),
        },
        _ => Ok(()),
    }
}

/// The schemas that are the value of a keyword, or part of it.
pub fn schemas_in<'a>(name: &str, value: &'a Json) -> Vec<&'a Json> {
    match (keyword(name), value) {
        (Some(Holds::Schema | Holds::SchemaOrList), Json::Object(_)) => vec![value],
        (Some(Holds::List | Holds::SchemaOrList), Json::Array(schemas)) => schemas.iter().collect(),
        (Some(Holds::Named), Json::Object(schemas)) => schemas.values().collect(),
        _ => Vec::new(),
    }
}

fn check(schema: &Json, path: &str, counts: &mut Counts) -> TextResult<()> {
    let members = match schema {
        Json::Object(members) => members,
        Json::Bool(_) => return Ok(()),
        _ => return fail(format!("{path}: a schema must be an object, true or false")),
    };
    counts.add_object(members, schema);
    check_types(members, path)?;
    check_draft(members, path, counts.root)?;
    check_values(members, path)?;
    check_numbers(members, path)?;
    check_shapes(members, path)?;
    if let Some(reference) = members.get("$ref").and_then(Json::as_str) {
        if !is_schema_place(counts.root, reference) {
            return fail(format!(
                "{path}.$ref: {:?} is no schema within this one",
                short(reference)
            ));
        }
    }
    for (name, value) in members {
        check_keyword(name, value, &format!("{path}.{}", short(name)), counts)?;
    }
    if counts.divisors_may_overflow {
        check_merged(schema, members, path, counts.root, &mut counts.looks)?;
    }
    Ok(())
}

fn check_keyword(name: &str, value: &Json, path: &str, counts: &mut Counts) -> TextResult<()> {
    let Some(holds) = keyword(name) else {
        return fail(format!("{path}: the keyword `{}` is not supported", short(name)));
    };
    match (holds, value) {
        (Holds::Data, _) => {}
        (Holds::List | Holds::SchemaOrList, Json::Array(schemas)) => {
            for (i, schema) in schemas.iter().enumerate() {
                check(schema, &format!("{path}[{i}]"), counts)?;
            }
        }
        (Holds::Named, Json::Object(schemas)) => {
            counts.add(name, schemas.len());
            for (name, schema) in schemas {
                check(schema, &format!("{path}.{}", short(name)), counts)?;
            }
        }
        (Holds::List, _) => return fail(format!("{path}: it must be a list of schemas")),
        (Holds::Named, _) => {
            return fail(format!("{path}: it must be an object whose members are schemas"))
        }
        (Holds::Schema | Holds::SchemaOrList, _) => check(value, path, counts)?,
    }
    Ok(())
}

/// What `check_keywords` says of a schema that is called "s"; empty if nothing. For tests.
#[cfg(test)]
pub fn refusal(schema: Json) -> String {
    check_keywords(&schema, "s").map_or_else(|e| e.0, |()| String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keywords_that_are_not_honoured_are_named_with_their_path() {
        let bad = json!({"contentEncoding": "base64"});
        for (schema, place) in [
            (bad.clone(), "s"),
            (json!({"properties": {"a": bad}}), "s.properties.a"),
            (json!({"patternProperties": {"^a": bad}}), "s.patternProperties.^a"),
            (json!({"$defs": {"d": bad}}), "s.$defs.d"),
            (json!({"anyOf": [true, bad]}), "s.anyOf[1]"),
            (json!({"items": bad}), "s.items"),
            (json!({"items": [{}, bad]}), "s.items[1]"),
            (json!({"prefixItems": [bad]}), "s.prefixItems[0]"),
            (json!({"additionalProperties": bad}), "s.additionalProperties"),
            (json!({"allOf": [{"oneOf": [{"items": bad}]}]}), "s.allOf[0].oneOf[0].items"),
        ] {
            let message = refusal(schema);
            let wanted = "the keyword `contentEncoding` is not supported";
            assert_eq!(message, format!("{place}.contentEncoding: {wanted}"));
        }
        for name in
            ["not", "if", "dependentRequired", "uniqueItems", "contains", "nullable", "typo"]
        {
            let message = refusal(json!({ name: true }));
            assert_eq!(message, format!("s.{name}: the keyword `{name}` is not supported"));
        }
    }

    #[test]
    fn types_and_formats_are_named_with_their_path() {
        let refused = |schema: Json, wanted: &str| assert_eq!(refusal(schema), wanted);
        refused(
            json!({"properties": {"a": {"type": "string", "format": "zork"}}}),
            "s.properties.a.format: the format \"zork\" is not supported",
        );
        refused(json!({"items": {"format": 5}}), "s.items.format: the format 5 is not supported");
        refused(
            json!({"anyOf": [{"type": ["null", "zork"]}]}),
            "s.anyOf[0].type: the type \"zork\" is not supported",
        );
        for fine in [
            json!({"type": "integer", "format": "int32"}),
            json!({"type": ["number", "null"], "format": "double"}),
            json!({"type": ["string", "null"], "format": "uuid"}),
        ] {
            assert_eq!(refusal(fine), "");
        }
    }

    #[test]
    fn what_the_compiler_would_change_is_refused() {
        let large = "integers from 2^53 on are not supported";
        for (schema, wanted) in [
            (
                json!({"prefixItems": [true], "additionalItems": false}),
                "s.additionalItems: not beside `prefixItems`".into(),
            ),
            (json!({"const": 9_007_199_254_740_993u64}), format!("s.const: {large}")),
            (json!({"enum": [1, u64::MAX]}), format!("s.enum: {large}")),
            (json!({"const": {"a": [i64::MIN]}}), format!("s.const: {large}")),
            (json!({"items": {"maximum": 1e20}}), format!("s.items.maximum: {large}")),
            (
                json!({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}),
                "s.$schema: \"http://json-schema.org/draft-04/schema#\" is not supported".into(),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {
                    "prefixItems": [true]}}),
                "s.items.prefixItems: \"http://json-schema.org/draft-07/schema#\" does not have this \
                 keyword"
                    .into(),
            ),
        ] {
            assert_eq!(refusal(schema), wanted);
        }
        for fine in [
            json!({"const": 9_007_199_254_740_991u64, "minimum": -1.5, "maximum": 1e15}),
            json!({"const": 1e308, "enum": [1e40]}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{}]}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [true]}),
            json!({"items": [true], "additionalItems": false}),
        ] {
            assert_eq!(refusal(fine), "");
        }
    }

    #[test]
    fn references_lead_to_schemas() {
        let document = |reference: &str| {
            json!({
                "$ref": reference, "x-a": {"type": "string"}, "enum": [{"type": "string"}],
                "$defs": {"a/b": {}, "é": {"items": {"type": "string"}}},
                "properties": {"p": {"anyOf": [{"prefixItems": [{}]}]}},
            })
        };
        for fine in [
            "#",
            "#/$defs/é",
            "#/$defs/é/items",
            "#/properties/p",
            "#/properties/p/anyOf/0",
            "#/properties/p/anyOf/0/prefixItems/0",
        ] {
            assert_eq!(refusal(document(fine)), "", "{fine}");
        }
        for bad in [
            "",
            "a",
            "#a",
            "#/x-a",
            "#/enum/0",
            "#/$defs",
            "#/$defs/none",
            "#/properties",
            "#/properties/p/anyOf",
            "#/properties/p/anyOf/1",
            "other.json#/a",
            "#/$defs/é/",
            "#/$defs/a~1b", // which the compiler does not read
        ] {
            let wanted = format!("s.$ref: {bad:?} is no schema within this one");
            assert_eq!(refusal(document(bad)), wanted, "{bad}");
        }
    }

    #[test]
    fn properties_are_counted_through_the_whole_schema() {
        let object = |keyword: &str, from: usize, to: usize| {
            let members = (from..to).map(|i| (format!("p{i}"), json!(true)));
            json!({ keyword: members.collect::<serde_json::Map<_, _>>() })
        };
        for (keyword, limit) in [("properties", 4000), ("patternProperties", 100)] {
            let parts = |n: usize| {
                let ends = (0..n).step_by(400).map(|i| object(keyword, i, n.min(i + 400)));
                json!({ "anyOf": ends.collect::<Vec<_>>() })
            };
            assert_eq!(refusal(parts(limit)), "");
            assert_eq!(refusal(parts(limit + 1)), format!("s: more than {limit} {keyword}"));
        }
    }

    #[test]
    fn annotations_and_data_are_not_looked_into() {
        let all = json!({
            "title": "t", "description": "d", "default": {"not": 1}, "examples": [{"not": 1}],
            "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": false,
            "x-order": {"not": 1}, "enum": [{"not": 1}], "const": {"not": 1}, "$schema": "x",
            "properties": {"not": {"type": "string"}, "if": true}, "items": false,
            "additionalProperties": false, "required": ["not"]
        });
        assert_eq!(refusal(all), "");
        assert_eq!(refusal(json!(true)), "");
    }
}
