//! Grammars over single bytes: what they allow, what they cost, what ends them.

use crate::grammar::{Factory, GrammarState};
use crate::grammar_source::Whitespace;
use std::time::{Duration, Instant};

const EOS: u32 = 256;
const AMBIGUOUS: &[u8] = b"start: e\ne: e e e e | e e e | e e | T\nT: /[a-z]/\n";

fn factory() -> Factory {
    factory_with(Whitespace::Bounded)
}

fn factory_with(whitespace: Whitespace) -> Factory {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    words.push(b"\xff<eos>".to_vec());
    Factory::new(&words, vec![EOS], whitespace).unwrap()
}

fn allowed(factory: &Factory, state: &mut GrammarState) -> Vec<i32> {
    let mut words = vec![0; 9];
    factory.fill_mask(state, &mut words).unwrap();
    (0..257).filter(|id| words[id / 32] >> (id % 32) & 1 == 1).map(|id| id as i32).collect()
}

fn feed(factory: &Factory, state: &mut GrammarState, text: &str) {
    for byte in text.bytes() {
        assert!(factory.accept(state, i32::from(byte)).unwrap(), "{text}");
    }
}

fn refusal(kind: &str, source: &[u8]) -> String {
    factory().compile(kind, source, b"name").map_or_else(|e| e.0, |_| String::new())
}

#[test]
fn choices_may_begin_alike_and_hold_any_character() {
    let factory = factory();
    let source = r#"["a/b", "a/b\\n \"c\"", "\u00e9"]"#;
    let mut state = factory.compile("choice", source.as_bytes(), b"").unwrap();
    assert_eq!(allowed(&factory, &mut state), vec![i32::from(b'a'), 0xc3]);
    feed(&factory, &mut state, "a/b");
    assert_eq!(allowed(&factory, &mut state), vec![i32::from(b'\\'), EOS as i32]);
    feed(&factory, &mut state, "\\n \"c\"");
    assert!(state.is_stopped());
    assert_eq!(allowed(&factory, &mut state), vec![EOS as i32]);
}

#[test]
fn a_fork_goes_its_own_way_on_the_same_account() {
    let factory = factory();
    let mut first = factory.compile("regex", b"ab|ac", b"").unwrap();
    feed(&factory, &mut first, "a");
    let mut second = first.fork();
    feed(&factory, &mut first, "b");
    assert!(first.is_stopped() && !second.is_stopped());
    feed(&factory, &mut second, "c");
    assert!(second.is_stopped());
    assert!(std::ptr::eq(first.meter(), second.meter()));
}

#[test]
fn a_mask_that_takes_too_long_is_cancelled() {
    let factory = factory();
    let mut state = factory.compile("lark", AMBIGUOUS, b"").unwrap();
    let mut words = vec![0; 9];
    let mut step = || -> Result<bool, crate::error::TextError> {
        factory.fill_mask(&mut state, &mut words)?;
        factory.accept(&mut state, i32::from(b'a'))
    };
    let error = (0..300).find_map(|_| step().err()).expect("it becomes slow");
    assert!(error.0.contains("the grammar takes too long"), "{}", error.0);
}

#[test]
fn what_cannot_be_cancelled_is_refused() {
    let complements = b"start: A\nA: /.*a.{12}/ & ~/.*b.{13}/ & ~/.*c.{14}/ & ~/.*d.{9}/\n";
    assert_eq!(refusal("lark", complements), "the regular expressions are too complex");
    assert!(refusal("lark", &vec![b'a'; (256 << 10) + 1]).contains("longer than 262144 bytes"));
    assert!(refusal("regex", &vec![b'a'; (1 << 20) + 1]).contains("longer than 1048576 bytes"));
    assert!(refusal("regex", "(".repeat(300).as_bytes()).contains("nested deeper than 256"));
}

#[test]
fn a_grammar_that_nothing_fits_is_refused() {
    let factory = factory();
    for (kind, source) in
        [("regex", r"[^\s\S]"), ("lark", "start: start"), ("json_schema", r##"{"$ref": "#"}"##)]
    {
        let mut state = factory.compile(kind, source.as_bytes(), b"name").unwrap();
        let refused = factory.fill_mask(&mut state, &mut [0; 9]).unwrap_err();
        assert_eq!(refused.0, "no answer fits the grammar");
    }
}

#[test]
fn lark_has_a_limit_of_rules() {
    let chain = |rules: usize| {
        let links = (1..rules).map(|i| format!("A{}:A{i}\n", i - 1)).collect::<String>();
        format!("start: A0\n{links}A{}: \"x\"\n", rules - 1)
    };
    assert_eq!(refusal("lark", chain(3_999).as_bytes()), "");
    let error = refusal("lark", chain(4_000).as_bytes());
    assert_eq!(error, "the grammar has more than 4000 rules");
}

#[test]
fn errors_are_short() {
    let deep = format!("start: {}{}", "(".repeat(200) + &"\"a\" ".repeat(9_000), ")".repeat(200));
    let error = refusal("lark", deep.as_bytes());
    assert!(!error.is_empty() && error.len() <= 1_003, "{error}");
}

#[test]
fn the_formats_are_the_compilers() {
    for name in crate::schema_keywords::FORMATS {
        let schema = format!(r#"{{"type": "string", "format": "{name}"}}"#);
        assert_eq!(refusal("json_schema", schema.as_bytes()), "");
    }
}

#[test]
fn errors_about_keywords_begin_with_the_name() {
    let error = refusal("json_schema", br#"{"not": {}}"#);
    assert_eq!(error, "name.not: the keyword `not` is not supported");
}

fn object(first: usize, properties: usize) -> String {
    let list: Vec<String> =
        (first..first + properties).map(|i| format!(r#""p{i}": {{"type": "string"}}"#)).collect();
    format!(r#""type": "object", "properties": {{{}}}"#, list.join(","))
}

#[test]
fn objects_whose_first_mask_would_be_too_large_are_refused() {
    for (properties, expected) in [(498, ""), (499, "name: an object with more than 498")] {
        let schema = format!("{{{}}}", object(0, properties));
        let factory = factory();
        let compiled = factory.compile("json_schema", schema.as_bytes(), b"name");
        let error = compiled.map_or_else(
            |e| e.0,
            |mut state| {
                feed(&factory, &mut state, "{");
                assert!(allowed(&factory, &mut state).contains(&i32::from(b'"')));
                String::new()
            },
        );
        assert!(error.starts_with(expected) && error.is_empty() == expected.is_empty(), "{error}");
    }
}

#[test]
fn what_is_merged_counts_each_time() {
    let merges: Vec<String> = (0..50)
        .map(|i| format!(r##"{{"allOf": [{{"$ref": "#/$defs/a"}}, {{{}}}]}}"##, object(i, 1)))
        .collect();
    let schema =
        format!(r#"{{"$defs": {{"a": {{{}}}}}, "anyOf": [{}]}}"#, object(0, 400), merges.join(","));
    assert_eq!(refusal("json_schema", schema.as_bytes()), "name: more than 4000 properties");
    let parts: Vec<String> = (0..10).map(|i| format!("{{{}}}", object(i * 100, 100))).collect();
    let schema = format!(r#"{{"allOf": [{}]}}"#, parts.join(","));
    assert!(refusal("json_schema", schema.as_bytes()).contains("more than 498"));
    let refs = [r##"{"$ref": "#/$defs/a"}"##; 10].join(",");
    let around = format!(r##"{{"$defs": {{"a": {{"allOf": [{refs}]}}}}, "$ref": "#/$defs/a"}}"##);
    assert!(refusal("json_schema", around.as_bytes()).contains("merge more than"));
}

/// An answer to a hostile request is no longer than it must be.
#[test]
fn errors_carry_a_part_of_long_names() {
    let long = "z".repeat(100_000);
    let named = |keyword: &str, value: &str| format!(r#"{{"{keyword}": {value}}}"#);
    for (kind, source) in [
        ("json_schema", named(&long, "1")),
        ("json_schema", named("$ref", &format!("\"#/$defs/{long}\""))),
        ("json_schema", named("type", &format!("\"{long}\""))),
        ("json_schema", format!(r#"{{"type": "string", "format": "{long}"}}"#)),
        ("json_schema", named("properties", &format!(r#"{{"{long}": {{"{long}": 1}}}}"#))),
        ("json_schema", named("patternProperties", &format!(r#"{{"({long}": {{}}}}"#))),
        ("gbnf", format!("root ::= {long}")),
        ("gbnf", format!("root ::= \"a\"\n{long} ::= \"a\"\n{long} ::= \"b\"")),
        ("structural_tag", format!(r#"{{"format": {{"type": "any_text"}}, "{long}": 1}}"#)),
        ("structural_tag", format!(r#"{{"format": {{"type": "{long}"}}}}"#)),
    ] {
        let error = refusal(kind, source.as_bytes());
        assert!(error.len() < 1_000, "{kind}: {}", error.len());
        assert!(error.contains("zzz"), "{error}");
    }
}

/// The compiler names an option that clients do not have.
#[test]
fn overlapping_alternatives_are_named_by_their_path() {
    let schema = r#"{"properties": {"a": {"oneOf": [{"type": "object"}, {"properties": {}}]}}}"#;
    let error = refusal("json_schema", schema.as_bytes());
    assert!(error.contains(".properties.a.oneOf: two schemas of a `oneOf` may"), "{error}");
    let schema = r#"{"items": {"patternProperties": {"^a": {}, "a$": {}}}}"#;
    let error = refusal("json_schema", schema.as_bytes());
    assert!(error.contains(".items.patternProperties: two patterns may match"), "{error}");
}

/// Each took seconds or gigabytes.
#[test]
fn compilation_ends_at_its_limits() {
    let list = |item: &str, times: usize| vec![item; times].join(",");
    let merge = r##"{"$ref": "#/$defs/a", "allOf": [{"$ref": "#/$defs/any"}]}"##;
    let of = |a: String, times| {
        let parts = list(merge, times);
        format!(r#"{{"$defs": {{"a": {a}, "any": {{}}}}, "anyOf": [{parts}]}}"#)
    };
    let numbers = (0..40_000).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let enums = format!(
        r#"{{"oneOf": [{{"enum": [{}]}}, {{"enum": [{}]}}, {{"const": null}}, {{"const": null}}]}}"#,
        list("1", 10_000),
        list("\"\"", 10_000)
    );
    let patterns = (0..100).map(|i| format!(r#""^p{i:04}": true"#)).collect::<Vec<_>>().join(",");
    let types = format!(
        r#"{{"type": [{}], "patternProperties": {{{patterns}}}}}"#,
        list("\"object\"", 3000)
    );
    let many_enums = of(format!(r#"{{"enum": [{numbers}]}}"#), 300);
    for (kind, source) in [
        ("regex", r"\w".repeat(500_000)),
        ("regex", r"\W|".repeat(300_000)),
        ("json_schema", many_enums),
        ("json_schema", of(enums, 30)),
        ("json_schema", types),
    ] {
        let start = Instant::now();
        let error = refusal(kind, source.as_bytes());
        assert!(error.starts_with("the grammar takes more than "), "{error}");
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    }
}

#[test]
fn texts_of_clients_name_no_schema() {
    let mark = |number: &str| format!("\\u0001{number}\\u0001");
    let source = |text: &str| {
        format!(
            r#"{{"lark": "start: \"%schema_0%\" {text}", "schemas": [
                {{"name": "a", "schema": {{"const": "%schema_1%"}}}},
                {{"name": "b", "schema": {{"const": "{}"}}}}]}}"#,
            mark("0")
        )
    };
    let factory = factory();
    let both = source(&format!("{} {}", mark("0"), mark("1")));
    let mut state = factory.compile("calls", both.as_bytes(), b"").unwrap();
    feed(&factory, &mut state, "%schema_0%\"%schema_1%\"\"\\u00010\\u0001\"");
    assert!(state.is_accepting());
    for bad in [mark("2"), mark("x"), mark("")] {
        assert!(refusal("calls", source(&bad).as_bytes()).starts_with("there is no schema"));
    }
}

#[test]
fn schemas_within_lark_follow_the_same_rules() {
    let bad = r#"start: "a" %json {"type": "string", "maxLenght": 3}"#;
    let wanted = "name: %json.maxLenght: the keyword `maxLenght` is not supported";
    assert_eq!(refusal("lark", bad.as_bytes()), wanted);
    for fine in [r#"start: "%json {x}" %json {"type": "string"}"#, "start: \"%json\""] {
        assert_eq!(refusal("lark", fine.as_bytes()), "");
    }
}

#[test]
fn memory_is_counted_for_each_fork_and_given_back() {
    let factory = factory();
    let rules: Vec<String> = (0..500).map(|i| format!("r{i}: \"Q\"\n")).collect();
    let names: Vec<String> = (0..500).map(|i| format!("r{i}+")).collect();
    let source = format!("start: {}\n{}", names.join(" | "), rules.concat());
    let mut state = factory.compile("lark", source.as_bytes(), b"").unwrap();
    let first = state.meter().bytes();
    feed(&factory, &mut state, &"Q".repeat(100));
    // 500 items of 8 bytes at least for each token.
    let grown = state.meter().bytes();
    assert!(grown >= first + 100 * 500 * 8, "{first} {grown}");
    let fork = state.fork();
    assert!(fork.meter().bytes() >= grown + 100 * 500 * 8);
    drop(fork);
    assert_eq!(state.meter().bytes(), grown);
}

#[test]
fn the_token_that_ends_answers_counts_only_where_one_may_end() {
    let factory = factory();
    let grammars: [&[u8]; 3] = [
        b"start: e\ne: <[256]> e | T\nT: /[a-z]+/",
        b"start: e\ne: <[100-256]> e | T\nT: /[a-z]+/",
        b"start: g \"!\"\ng[stop=\"\"]: /[a-z]*/",
    ];
    for source in grammars {
        let mut state = factory.compile("lark", source, b"").unwrap();
        let eos = EOS as i32;
        for letter in ["", "a", "b"] {
            feed(&factory, &mut state, letter);
            let ends = allowed(&factory, &mut state).contains(&eos);
            assert_eq!(ends, state.is_accepting(), "{letter:?} {source:?}");
            assert_eq!(ends, factory.accept(&mut state.fork(), eos).unwrap());
        }
    }
}

#[test]
fn a_text_up_to_the_end_of_the_answer_may_end() {
    let factory = factory();
    let mut state = factory.compile("lark", b"start: g\ng[stop=\"\"]: /[a-z]*/", b"").unwrap();
    feed(&factory, &mut state, "ab");
    assert!(state.is_accepting());
    assert!(allowed(&factory, &mut state).contains(&(EOS as i32)));
}

fn follows(factory: &Factory, schema: &str, text: &str, next: u8) -> bool {
    let mut state = factory.compile("json_schema", schema.as_bytes(), b"").unwrap();
    feed(factory, &mut state, text);
    factory.accept(&mut state, i32::from(next)).unwrap()
}

#[test]
fn white_space_in_json_is_bounded_unless_it_is_asked_for() {
    const OBJECT: &str =
        r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
    let bounded = factory();
    let indent = " ".repeat(20);
    let broken = format!("{{\n{indent}");
    for schema in [OBJECT, "true", r#"{"type": "object"}"#] {
        for (text, next, allowed) in
            [("{", b' ', true), ("{ ", b' ', false), ("{ ", b'\n', false), ("{\n", b'\n', false)]
        {
            assert_eq!(follows(&bounded, schema, text, next), allowed, "{schema} {text:?}");
        }
        assert!(follows(&bounded, schema, &broken, b'"'));
        assert!(!follows(&bounded, schema, &broken, b' '));
    }
    assert!(follows(&bounded, OBJECT, "{\"a\" : ", b'1'));
    let mut objects = bounded.compile("json_object", b"", b"").unwrap();
    feed(&bounded, &mut objects, "{ ");
    assert!(!bounded.accept(&mut objects, i32::from(b' ')).unwrap());

    let flexible = factory_with(Whitespace::Flexible);
    assert!(follows(&flexible, OBJECT, &format!("{{{}", " \n\t".repeat(30)), b' '));
    let own = OBJECT.replacen('{', r#"{"x-guidance": {"whitespace_flexible": true}, "#, 1);
    assert!(follows(&bounded, &own, "{    ", b' '));
}

/// Whether the whole text is an answer.
fn accepts(factory: &Factory, schema: &str, text: &str) -> bool {
    let mut state = factory.compile("json_schema", schema.as_bytes(), b"s").unwrap();
    let mut bytes = text.bytes();
    bytes.all(|byte| factory.accept(&mut state, i32::from(byte)).unwrap())
        && allowed(factory, &mut state).contains(&(EOS as i32))
}

#[test]
fn multiples_are_those_of_the_divisor() {
    let factory = factory();
    for (divisor, numbers) in [
        (400_000_000u64, vec![400_000_000u64, 1_200_000_000, 4_000_000_000, 4_100_000_000, 100]),
        (10_000_000, vec![10_000_000, 70_000_000, 1_000_000, 4_294_967_296]),
        (6, vec![6, 7, 123_456, 123_457]),
    ] {
        let schema = format!(r#"{{"type": "integer", "multipleOf": {divisor}}}"#);
        for number in numbers {
            let is_multiple = number % divisor == 0;
            let text = number.to_string();
            assert_eq!(accepts(&factory, &schema, &text), is_multiple, "{number} of {divisor}");
        }
    }
}

#[test]
fn merged_multiples_are_those_of_both() {
    let factory = factory();
    for (a, b) in [(6u64, 10), (250, 40), (20_000, 50_000), (1 << 5, 1 << 10), (16, 625)] {
        let schema = format!(
            r#"{{"type": "integer", "allOf": [{{"multipleOf": {a}}}, {{"multipleOf": {b}}}]}}"#
        );
        for number in [a, b, a * b, a * b * 3, a * b + 1, a * b / 2, a * 2, 120] {
            let is_multiple = number % a == 0 && number % b == 0;
            let text = number.to_string();
            assert_eq!(accepts(&factory, &schema, &text), is_multiple, "{number} of {a} and {b}");
        }
    }
}
