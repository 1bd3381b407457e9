//! What clients write, as llguidance wants it: schemas, regular expressions, Lark, GBNF, choices.

use crate::error::{fail, TextError, TextResult};
use crate::gbnf_lark::to_lark;
use crate::schema_keywords::check_keywords;
use crate::structural_tag::{self, SpecialPrefix};
use llguidance::api::TopLevelGrammar;
use serde_json::Value as Json;

const MAX_CHOICES: usize = 10_000;
/// Lark's rules and terminals. One may lead to the next, and the compiler then recurses as deep.
const MAX_DEFINITIONS: usize = 4_000;

/// White space between the parts of JSON.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whitespace {
    /// At each place at most a blank, or a line break and 20 blanks or tabs (llama.cpp's rule). With
    /// more, a model may go on with blanks for the rest of its answer.
    Bounded,
    /// Any amount.
    Flexible,
}

const BOUNDED: &str = r" |\n[ \t]{0,20}";

/// A schema may say itself which white space it wants, in llguidance's words.
pub fn with_whitespace(mut schema: Json, whitespace: Whitespace) -> Json {
    if whitespace == Whitespace::Flexible {
        return schema;
    }
    if schema == Json::Bool(true) {
        schema = serde_json::json!({});
    }
    let options = schema
        .as_object_mut()
        .map(|object| object.entry("x-guidance").or_insert_with(|| serde_json::json!({})));
    if let Some(options) = options.and_then(Json::as_object_mut) {
        if !options.contains_key("whitespace_flexible") {
            options.entry("whitespace_pattern").or_insert_with(|| BOUNDED.into());
        }
    }
    schema
}

pub fn parse_grammar(
    kind: &str,
    source: &str,
    name: &str,
    whitespace: Whitespace,
    special: SpecialPrefix,
) -> TextResult<TopLevelGrammar> {
    match kind {
        "json_object" => {
            let schema = serde_json::json!({"type": "object"});
            Ok(TopLevelGrammar::from_json_schema(with_whitespace(schema, whitespace)))
        }
        "json_schema" => {
            let schema = parse_json(source)?;
            check_keywords(&schema, name)?;
            Ok(TopLevelGrammar::from_json_schema(with_whitespace(schema, whitespace)))
        }
        "regex" => Ok(TopLevelGrammar::from_regex(source)),
        "lark" => {
            check_definitions(source)?;
            check_inline_schemas(source, name)?;
            Ok(TopLevelGrammar::from_lark(source.to_string()))
        }
        "gbnf" => Ok(TopLevelGrammar::from_lark(to_lark(source)?)),
        "choice" => choice_grammar(source),
        "structural_tag" => {
            let lark = structural_tag::to_lark(&parse_json(source)?, name, whitespace, special)?;
            Ok(TopLevelGrammar::from_lark(lark))
        }
        "calls" => calls_grammar(source, name, whitespace),
        _ => fail(format!("unknown kind of grammar: {kind}")),
    }
}

fn parse_json(source: &str) -> TextResult<Json> {
    serde_json::from_str(source).map_err(|e| TextError(format!("the schema is not JSON: {e}")))
}

fn choice_grammar(source: &str) -> TextResult<TopLevelGrammar> {
    let choices: Vec<String> = serde_json::from_str(source)
        .map_err(|e| TextError(format!("choices must be a list of strings: {e}")))?;
    if choices.is_empty() || choices.len() > MAX_CHOICES {
        return fail(format!("there must be 1 to {MAX_CHOICES} choices, not {}", choices.len()));
    }
    let quoted: Vec<String> = choices.iter().map(|c| Json::from(c.as_str()).to_string()).collect();
    // One terminal, whose alternatives become one automaton; as rules they would be 10,000.
    Ok(TopLevelGrammar::from_lark(format!("start: CHOICE\nCHOICE: {}", quoted.join(" | "))))
}

/// What stands around the number of a schema in the text of `calls`. Strings of clients are quoted
/// there, without control characters.
const MARK: char = '\u{1}';

/// {"lark": text, "schemas": [{"name", "schema"}]}: the text names schemas by number, between marks.
fn calls_grammar(source: &str, name: &str, whitespace: Whitespace) -> TextResult<TopLevelGrammar> {
    let mut json = parse_json(source)?;
    let Json::Array(entries) = json["schemas"].take() else {
        return fail("calls have a list of schemas");
    };
    let mut schemas = Vec::new();
    for mut entry in entries {
        check_keywords(&entry["schema"], entry["name"].as_str().unwrap_or(name))?;
        schemas.push(with_whitespace(entry["schema"].take(), whitespace).to_string());
    }
    let mut lark = String::new();
    for (i, piece) in json["lark"].as_str().unwrap_or_default().split(MARK).enumerate() {
        if i % 2 == 0 {
            lark += piece;
            continue;
        }
        let schema = piece.parse::<usize>().ok().and_then(|number| schemas.get(number));
        let Some(schema) = schema else { return fail(format!("there is no schema {piece}")) };
        lark += "%json ";
        lark += schema;
    }
    Ok(TopLevelGrammar::from_lark(lark))
}

/// A definition begins a line with its name, or with what stands before a name.
fn check_definitions(lark: &str) -> TextResult<()> {
    let begins = |c: char| c.is_alphanumeric() || c == '_' || c == '!' || c == '?';
    let lines = lark.split(['\n', '\r']).filter(|line| line.contains(':'));
    let definitions = lines.filter(|line| line.trim_start().starts_with(begins)).count();
    if definitions > MAX_DEFINITIONS {
        return fail(format!("the grammar has more than {MAX_DEFINITIONS} rules"));
    }
    Ok(())
}

/// Lark's `%json {...}` follows the same rules as a schema of its own. In strings and comments it is
/// none, and seldom JSON.
fn check_inline_schemas(lark: &str, name: &str) -> TextResult<()> {
    for (at, mark) in lark.match_indices("%json") {
        let text = &lark[at + mark.len()..];
        if let Some(Ok(schema)) = serde_json::Deserializer::from_str(text).into_iter().next() {
            check_keywords(&schema, &format!("{name}: %json"))?;
        }
    }
    Ok(())
}
