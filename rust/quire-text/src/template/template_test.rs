//! Expressions with the meaning that Python gives them, and the limits of a rendering.

use super::meter::{charge, metered};
use super::*;

fn limits() -> Limits {
    Limits { work: 1 << 22, output_bytes: 1 << 20, fuel: 100_000, milliseconds: 10_000 }
}

fn input(messages: &str) -> Input<'_> {
    Input {
        messages,
        tools: "",
        documents: "",
        kwargs: "",
        add_generation_prompt: true,
        continue_final_message: false,
        now: Now { year: 2024, month: 2, day: 29, hour: 3, minute: 4, second: 5 },
        // SAFETY: 0 is no budget.
        budget: unsafe { Budget::from_address(0) },
        limits: limits(),
    }
}

const HELLO: &str = r#"[{"role": "user", "content": " Hello "}]"#;

fn render_with(source: &str, input: Input) -> Result<String, String> {
    let template = from_source(source, r#"{"bos_token": "<s>"}"#).map_err(|e| e.0)?;
    template.render(&input).map_err(|e| e.0)
}

fn render(source: &str) -> Result<String, String> {
    render_with(source, Input { kwargs: r#"{"seven": 7, "half": 0.5}"#, ..input(HELLO) })
}

fn refused(source: &str, words: &str) {
    let error = render(source).expect_err(source);
    assert!(error.contains(words), "{source}: {error}");
}

/// Every expression prints what stands beside it.
fn expect_all(table: &[(&str, &str)]) {
    let wrong: Vec<_> = table
        .iter()
        .map(|(expression, expected)| {
            (expression, expected, render(&format!("{{{{ {expression} }}}}")))
        })
        .filter(|(_, expected, shown)| shown.as_deref() != Ok(*expected))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The right column is `str(eval(left))` of CPython 3.11, with seven = 7 and half = 0.5. (Operations
/// on constants alone are folded by minijinja, whose rules for negative divisors differ.)
const EXPRESSIONS: &[(&str, &str)] = &[
    ("seven // 2", "3"),
    ("-seven // 2", "-4"),
    ("seven // -2", "-4"),
    ("-seven % 3", "2"),
    ("seven % -3", "-2"),
    ("(half - 8) % 2", "0.5"),
    (r#"7.0 // 2"#, "3.0"),
    ("seven / 2", "3.5"),
    (r#"2 ** 10"#, "1024"),
    (r#"1e16"#, "1e+16"),
    (r#"1e15 + 0.5"#, "1000000000000000.5"),
    (r#"1e-5"#, "1e-05"),
    (r#"0.0001"#, "0.0001"),
    (r#"0.1 + 0.2"#, "0.30000000000000004"),
    (r#"-0.0"#, "-0.0"),
    (r#"3 * 1.0"#, "3.0"),
    (r#"True + 1"#, "2"),
    (r#"'ab' * 3"#, "ababab"),
    (r#"[1, 'a', None, True, 1.5]"#, "[1, 'a', None, True, 1.5]"),
    (
        r#"{'a': [1, {'b': 'it\'s'}], 'c': "\n\t\\"}"#,
        "{'a': [1, {'b': \"it's\"}], 'c': '\\n\\t\\\\'}",
    ),
    (r#"[1, 2] + [3]"#, "[1, 2, 3]"),
    (r#"'abc'[::-1]"#, "cba"),
    (r#"'abcdef'[1:-1:2]"#, "bd"),
    (r#"[1, 2, 3, 4][-3:]"#, "[2, 3, 4]"),
    (r#"[1, 2, 3, 4][10:-10:-3]"#, "[4, 1]"),
    (r#"'äöü'[1]"#, "ö"),
    (r#"'a' in 'abc'"#, "True"),
    (r#"2 not in [1, 3]"#, "True"),
    (r#"'b' in {'a': 1}"#, "False"),
    (r#"1 < 2"#, "True"),
    (r#"'a' < 'B'"#, "False"),
    (r#"'a,b,,c'.split(',')"#, "['a', 'b', '', 'c']"),
    (r#"' a  b '.split()"#, "['a', 'b']"),
    (r#"'a,b,c'.split(',', 1)"#, "['a', 'b,c']"),
    (r#"'a,b,c'.rsplit(',', 1)"#, "['a,b', 'c']"),
    (r#"'a-b-c'.partition('-')"#, "('a', '-', 'b-c')"),
    (r#"'a-b-c'.rpartition('-')"#, "('a-b', '-', 'c')"),
    (r#"'a\nb\r\nc'.splitlines()"#, "['a', 'b', 'c']"),
    (r#"'xxabxx'.strip('x')"#, "ab"),
    (r#"'xxabxx'.lstrip('x')"#, "abxx"),
    (r#"'abc'.removeprefix('a')"#, "bc"),
    (r#"'abc'.removesuffix('bc')"#, "a"),
    (r#"'abcabc'.replace('b', 'x', 1)"#, "axcabc"),
    (r#"'abcabc'.rfind('b')"#, "4"),
    (r#"'abcabc'.count('bc')"#, "2"),
    (r#"'abc'.startswith(('x', 'a'))"#, "True"),
    (r#"'hello wORLD'.title()"#, "Hello World"),
    (r#"'hello wORLD'.capitalize()"#, "Hello world"),
    (r#"'aB'.swapcase()"#, "Ab"),
    (r#"'7'.zfill(3)"#, "007"),
    (r#"'-7'.zfill(4)"#, "-007"),
    (r#"'a'.center(4, '*')"#, "*a**"),
    (r#"'ab'.ljust(4) + '|'"#, "ab  |"),
    (r#"'ß'.upper()"#, "SS"),
    (r#"'12'.isdigit()"#, "True"),
    (r#"'a1'.isalnum()"#, "True"),
    (r#"'Ab'.isupper()"#, "False"),
    (r#"' \t'.isspace()"#, "True"),
    (r#"'-'.join(['a', 'b'])"#, "a-b"),
    (r#"'%s is %d' % ('x', 3)"#, "x is 3"),
    (r#"'%.2f' % 1.005"#, "1.00"),
    (r#"'{} {1}'.format('a', 'b') if False else 'c'"#, "c"),
    (r#"'{0}-{0}'.format('a')"#, "a-a"),
    (r#"'\u00ad\u200b\x07é'"#, "\u{ad}\u{200b}\u{7}é"),
    (r#"['\u00ad\u200b\x07é😀']"#, "['\\xad\\u200b\\x07é😀']"),
];

#[test]
fn expressions_print_as_in_python() {
    expect_all(EXPRESSIONS);
}

/// Jinja2's own filters, with values from its documentation and from json.dumps.
#[test]
fn filters_give_what_jinja_gives() {
    let table = [
        ("'1_000'|int", "1000"),
        ("'3.9'|int", "3"),
        ("'x'|int(7)", "7"),
        ("'ff'|int(base=16)", "255"),
        ("'2.5'|float", "2.5"),
        ("'x'|float", "0.0"),
        ("42.55|round", "43.0"),
        ("42.55|round(1, 'floor')", "42.5"),
        ("2.5|round", "2.0"),
        ("'hello big-world (x'|title", "Hello Big-World (X"),
        ("'a b, c'|wordcount", "3"),
        ("'<a href=\"x\">'|e", "&lt;a href=&#34;x&#34;&gt;"),
        ("'a b/ü'|urlencode", "a%20b/%C3%BC"),
        ("' x '|trim", "x"),
        ("[3, 1, 2]|sort|join('-')", "1-2-3"),
        ("{'b': 1, 'a': 2}|dictsort", "[('a', 2), ('b', 1)]"),
        ("'a\nb'|indent(2)", "a\n  b"),
        ("[1, 2, 3]|batch(2)|list", "[[1, 2], [3]]"),
        (
            "{'b': [1, 2.0, none, true], 'a': 'ü\"'}|tojson",
            r#"{"b": [1, 2.0, null, true], "a": "ü\""}"#,
        ),
        ("{'b': 1, 'a': 2}|tojson(sort_keys=true)", r#"{"a": 2, "b": 1}"#),
        ("'ü'|tojson(ensure_ascii=true)", r#""\u00fc""#),
        ("[1, {}]|tojson(indent=1)", "[\n 1,\n {}\n]"),
        ("[1, 2]|tojson(separators=(',', ':'))", "[1,2]"),
        ("missing|default('d')", "d"),
        ("''|default('d', true)", "d"),
        ("messages|map(attribute='role')|list", "['user']"),
        ("strftime_now('%Y-%m-%d %H:%M:%S %j %A')", "2024-02-29 03:04:05 060 Thursday"),
        ("bos_token ~ 1 ~ none", "<s>1None"),
        ("range(5, 0, -2)|list", "[5, 3, 1]"),
        ("3 is odd and 'a' is string and missing is undefined", "True"),
    ];
    expect_all(&table);
}

#[test]
fn wrong_operands_are_errors() {
    refused("{{ 1 // 0 }}", "division by zero");
    refused("{{ 1 % 0 }}", "modulo by zero");
    refused("{{ 'a' + 1 }}", "unsupported operand types for +");
    refused("{{ 'abc'[::0] }}", "slice step cannot be zero");
    refused("{{ messages|length in 'abc' }}", "needs a string");
    refused("{{ missing|tojson }}", "not JSON serializable");
    refused("{% set messages.x = 1 %}", "can only assign to namespaces");
    refused("{{ raise_exception('Roles must alternate') }}", "Roles must alternate");
    refused("a\n{{ 1 // 0 }}", "line 2");
}

#[test]
fn work_output_depth_and_instructions_are_bounded() {
    refused(
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "fuel",
    );
    refused("{{ bos_token * 10000000 }}", "too much work");
    refused("{% for i in range(300) %}{{ 'x' * 10000 }}{% endfor %}", "exceeds 1048576 bytes");
    refused("{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}", "nested deeper");
    refused("{{ '%99999d' % 1 }}", "field width");
    refused("{{ range(100001) }}", "Range too big");
    refused("{{ strftime_now('%1000000d') }}", "field widths");
    refused(&"{% if x %}".repeat(5000), "");
    let mut slow = input(HELLO);
    slow.limits = Limits { work: u64::MAX, milliseconds: 0, ..limits() };
    let source = "{% for i in range(20000) %}{% set x = bos_token * 1000 %}{% endfor %}";
    assert_eq!(
        render_with(source, slow).unwrap_err(),
        "the template takes too much processor time (line 1 of the chat template)"
    );
}

#[test]
fn waiting_for_a_processor_is_not_counted() {
    let hurried = Limits { milliseconds: 20, ..limits() };
    // SAFETY: 0 is no budget.
    let budget = unsafe { Budget::from_address(0) };
    let (result, _) = metered(hurried, budget, || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        charge(1 << 17) // looks at the clock
    });
    result.unwrap();
}

#[test]
fn the_final_message_can_be_continued() {
    let talk =
        r#"[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is "}]"#;
    let with = |source: &str| {
        let mut given = input(talk);
        given.continue_final_message = true;
        render_with(source, given)
    };
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
    assert_eq!(with(plain).unwrap(), "<user>2+2?</s><assistant>It is ");
    let trimming = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</s>{% endfor %}";
    assert_eq!(with(trimming).unwrap(), "<user>2+2?</s><assistant>It is");
    assert!(with("{{ messages[0].content }}").unwrap_err().contains("does not appear"));
    assert!(with("x").unwrap_err().contains("reads no \"content\""));
}

#[test]
fn arguments_reach_the_template_but_cannot_replace_the_conversation() {
    let with = |kwargs: &'static str| {
        let mut given = input(HELLO);
        given.kwargs = kwargs;
        render_with("{{ k }}{{ messages|length }}", given)
    };
    assert_eq!(with(r#"{"k": [1, null]}"#).unwrap(), "[1, None]1");
    for name in RESERVED {
        let kwargs: &'static str = format!("{{\"{name}\": []}}").leak();
        assert!(with(kwargs).unwrap_err().contains(name));
    }
    assert!(with("[]").unwrap_err().contains("must be an object"));
}

#[test]
fn null_fields_go_and_reasoning_has_all_its_names() {
    let shown = |message: &str, source: &str| {
        let messages = format!("[{message}]");
        render_with(source, input(&messages)).unwrap()
    };
    let source = "{{ messages[0].content is defined }} {{ messages[0].thinking }} {{ messages[0].reasoning_content }}";
    assert_eq!(shown(r#"{"role": "a", "content": null, "reasoning": "r"}"#, source), "False r r");
}
