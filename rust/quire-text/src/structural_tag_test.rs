//! Structural tags over single bytes and one special token: which texts they allow.

use crate::grammar::{Factory, GrammarState};
use crate::grammar_source::Whitespace;
use serde_json::{json, Value as Json};

const EOS: i32 = 256;
const CALL: i32 = 257;
const SPELLED: &str = "<call>"; // the special token's text

fn factory() -> Factory {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    words.push(b"\xff<eos>".to_vec());
    words.push(b"\xff<call>".to_vec());
    words.push(b"\xff<ca".to_vec()); // begins alike
    Factory::new(&words, vec![EOS as u32], Whitespace::Bounded).unwrap()
}

fn may_end(factory: &Factory, state: &mut GrammarState) -> bool {
    let mut words = vec![0; 9];
    factory.fill_mask(state, &mut words).unwrap();
    words[EOS as usize / 32] >> (EOS % 32) & 1 == 1
}

/// The text's tokens: SPELLED is the special one.
fn tokens(text: &str) -> Vec<i32> {
    let mut ids = Vec::new();
    for (i, piece) in text.split(SPELLED).enumerate() {
        if i > 0 {
            ids.push(CALL);
        }
        ids.extend(piece.bytes().map(i32::from));
    }
    ids
}

/// How many tokens of the text are allowed, and whether it may end after them.
fn taken(source: &Json, text: &str) -> (usize, bool) {
    let factory = factory();
    let mut state = factory.compile("structural_tag", source.to_string().as_bytes(), b"f").unwrap();
    let mut words = vec![0; 9];
    for (i, &id) in tokens(text).iter().enumerate() {
        factory.fill_mask(&mut state, &mut words).unwrap();
        if words[id as usize / 32] >> (id % 32) & 1 == 0 {
            return (i, false);
        }
        assert!(factory.accept(&mut state, id).unwrap());
    }
    let ends = may_end(&factory, &mut state);
    (tokens(text).len(), ends)
}

fn accepts(source: &Json, text: &str) -> bool {
    taken(source, text) == (tokens(text).len(), true)
}

fn refusal(source: Json) -> String {
    let source = source.to_string();
    factory()
        .compile("structural_tag", source.as_bytes(), b"f")
        .map_or_else(|e| e.0, |_| String::new())
}

fn format(format: Json) -> Json {
    json!({"type": "structural_tag", "format": format})
}

fn number_tag(begin: &str, end: &str) -> Json {
    let content = json!({"type": "json_schema", "json_schema": {"type": "integer"}});
    json!({"type": "tag", "begin": begin, "content": content, "end": end})
}

#[test]
fn triggers_begin_tags_wherever_they_stand() {
    let old = json!({"type": "structural_tag", "triggers": ["<f="], "structures": [
        {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": "</f>"}]});
    let new = format(json!({"type": "triggered_tags", "triggers": ["<f="], "tags": [
        number_tag("<f=a>", "</f>"),
        {"type": "tag", "begin": "<f=b>", "end": "</f>",
         "content": {"type": "json_schema", "json_schema": {"type": "boolean"}}}]}));
    for source in [&old, &new] {
        for text in [
            "",
            "any < text",
            "<f=a>1</f>",
            "x\ny <f=b>true</f> z <f=a>-20</f>\u{e9}",
            "<<f=a>7</f><",
        ] {
            assert!(accepts(source, text), "{text}");
        }
        assert_eq!(taken(source, "x <f=c"), (5, false));
        assert_eq!(taken(source, "<f=a>true"), (5, false));
        assert_eq!(taken(source, "<f=b>true</f> <f=b>1"), (19, false));
        assert_eq!(taken(source, "<f=a>1"), (6, false));
    }
}

#[test]
fn triggered_tags_may_have_to_come_and_may_be_the_last() {
    let with = |key: &str| {
        let mut tags =
            json!({"type": "triggered_tags", "triggers": ["<"], "tags": [number_tag("<", ">")]});
        tags[key] = true.into();
        format(tags)
    };
    let least = with("at_least_one");
    assert_eq!(taken(&least, "words"), (5, false));
    assert!(accepts(&least, "a <1>") && accepts(&least, "a <1> b <2> c"));
    let one = with("stop_after_first");
    assert!(accepts(&one, "words") && accepts(&one, "a <1>"));
    assert_eq!(taken(&one, "a <1> b"), (5, false));
}

#[test]
fn special_tokens_are_tokens() {
    let source = format(json!({"type": "triggered_tags", "triggers": [SPELLED], "tags": [
        number_tag("<call>n=", "<call>")]}));
    assert!(accepts(&source, "a <call>n=5<call> b"));
    assert_eq!(taken(&source, "<call>x"), (1, false));
    assert_eq!(taken(&source, "<call>n=5 "), (4, false));
    let until = format(
        json!({"type": "tag", "begin": "[", "content": {"type": "any_text"}, "end": SPELLED}),
    );
    assert!(accepts(&until, "[free] text<call>"));
    assert_eq!(taken(&until, "x"), (0, false));
}

#[test]
fn formats_stand_in_each_other() {
    let source = format(json!({"type": "sequence", "elements": [
        {"type": "const_string", "value": "a/\"\n\\"},
        {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]/x\\/"}, number_tag("(", ")")]},
        {"type": "tags_with_separator", "separator": ", ", "tags": [number_tag("<", ">")]},
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"},
        {"type": "any_text"}]}));
    assert!(accepts(&source, "a/\"\n\\7/x/<t>any</</t> more"));
    assert!(accepts(&source, "a/\"\n\\(12)<3>, <4><t></t>"));
    assert_eq!(taken(&source, "a/\"\n\\7/x/<3>x"), (12, false));
    assert_eq!(taken(&source, "a/\"\n\\(12)x"), (9, false));
    let some = format(json!({"type": "tags_with_separator", "separator": "", "at_least_one": true,
        "tags": [number_tag("<", ">")]}));
    assert_eq!(taken(&some, ""), (0, false));
    assert!(accepts(&some, "<1><2>"));
}

#[test]
fn what_cannot_be_is_refused_by_its_place() {
    let any = json!({"type": "any_text"});
    let cases = [
        (json!([]), "f must be an object"),
        (
            format(json!({"type": "qwen_xml_parameter", "json_schema": {}})),
            "f.format.type: \"qwen_xml_parameter\" is not supported",
        ),
        (
            format(json!({"type": "any_text", "excludes": ["x"]})),
            "f.format.excludes is not supported",
        ),
        (
            format(json!({"type": "sequence", "elements": [any, any]})),
            "f.format.elements[0]: any_text must be the last of all, or a tag's content",
        ),
        (
            format(json!({"type": "sequence", "elements": []})),
            "f.format.elements must be a list that is not empty",
        ),
        (
            format(json!({"type": "tag", "begin": "<", "content": any, "end": ""})),
            "f.format: any text needs an end",
        ),
        (
            format(
                json!({"type": "triggered_tags", "triggers": ["<g"], "tags": [number_tag("<f", ">")]}),
            ),
            "f.format: no trigger is what the tag \"<f\" begins with",
        ),
        (
            format(
                json!({"type": "triggered_tags", "triggers": ["<f", "<"], "tags": [number_tag("<f", ">")]}),
            ),
            "f.format: no tag begins with \"<f\"",
        ),
        (
            format(json!({"type": "json_schema", "json_schema": {"not": {}}})),
            "f.format.json_schema.not: the keyword `not` is not supported",
        ),
        (
            json!({"type": "structural_tag", "triggers": ["<"], "structures": [{"begin": "<", "end": ">", "scheme": 1}]}),
            "f.structures[0].scheme is not supported",
        ),
        (json!({"type": "structural_tag"}), "f.triggers is required"),
    ];
    for (source, expected) in cases {
        assert_eq!(refusal(source), expected);
    }
}

#[test]
fn lark_in_texts_stays_text() {
    let evil = "\"/ x: \"y\"\n%json {}\u{1}0\u{1} <[3]>";
    let source = format(json!({"type": "const_string", "value": evil}));
    assert!(accepts(&source, evil));
    let source = format(json!({"type": "regex", "pattern": "a\n/b"}));
    assert!(accepts(&source, "a\n/b"));
}
