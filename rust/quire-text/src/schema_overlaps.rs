//! Where in a JSON schema alternatives meet that the compiler cannot hold apart: it does not say, or
//! names an option that clients do not have.

use crate::error::{short, TextError};
use serde_json::Value as Json;

/// Of a schema with more such keywords the first ones are named.
const MOST_PLACES: usize = 4;

/// The paths of all members `keyword` whose value `is_it`, "; "-separated in an error.
fn places(
    schema: &Json,
    path: &str,
    keyword: &str,
    is_it: &dyn Fn(&Json) -> bool,
    found: &mut Vec<String>,
) {
    match schema {
        Json::Object(members) => {
            for (name, value) in members {
                let place = format!("{path}.{}", short(name));
                if name == keyword && is_it(value) {
                    found.push(place.clone());
                }
                places(value, &place, keyword, is_it, found);
            }
        }
        Json::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                places(value, &format!("{path}[{i}]"), keyword, is_it, found);
            }
        }
        _ => {}
    }
}

/// The compiler's error about the schema `source`, which the client knows as `name`, with its place.
pub fn placed(error: TextError, source: &str, name: &str) -> TextError {
    let is_one_of = error.0.contains("coerce_one_of");
    if !is_one_of && !error.0.contains("patternProperty regexes") {
        return error;
    }
    let Ok(schema) = serde_json::from_str::<Json>(source) else { return error };
    // The two patterns stand in the text.
    let has_both = |patterns: &Json| {
        let named = patterns.as_object().into_iter().flat_map(|all| all.keys());
        named.filter(|pattern| error.0.contains(&format!("/{pattern}/"))).count() >= 2
    };
    let mut found = Vec::new();
    let why = if is_one_of {
        places(&schema, name, "oneOf", &Json::is_array, &mut found);
        "two schemas of a `oneOf` may accept the same value, which is not supported; `anyOf` allows it"
    } else {
        places(&schema, name, "patternProperties", &has_both, &mut found);
        "two patterns may match the same name, which is not supported"
    };
    found.truncate(MOST_PLACES);
    if found.is_empty() {
        found.push(name.to_string());
    }
    TextError(format!("{}: {why}", found.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(text: &str, schema: Json) -> String {
        placed(TextError(text.into()), &schema.to_string(), "s").0
    }

    #[test]
    fn the_place_is_named() {
        let one_of = "oneOf constraints are not supported. Enable 'coerce_one_of' option";
        let overlap = json!({"properties": {"a": {"items": [{"oneOf": [{}, {}]}]}}});
        assert!(message(one_of, overlap).starts_with("s.properties.a.items[0].oneOf: two schemas"));
        let two = json!({"oneOf": [{"oneOf": [{}]}]});
        assert!(message(one_of, two).starts_with("s.oneOf or s.oneOf[0].oneOf: two schemas"));
        let regexes = "patternProperty regexes /^a/ and /a$/ are not disjoint";
        let patterns = json!({"items": {"patternProperties": {"^a": {}, "a$": {}, "^b": {}}},
            "patternProperties": {"^a": {}}});
        let told = message(regexes, patterns);
        assert!(told.starts_with("s.items.patternProperties: two patterns may match"), "{told}");
        assert_eq!(message("something else", json!({"oneOf": []})), "something else");
    }
}
