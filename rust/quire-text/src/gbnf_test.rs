//! GBNF: what it allows, character by character, and where its errors are.

use crate::gbnf::{read, Expr, Gbnf};
use crate::gbnf_lark::to_lark;
use crate::grammar::Factory;
use crate::grammar_source::Whitespace;
use std::collections::BTreeSet;

const EOS: u32 = 256;
const JSON: &str = r##"
root   ::= object   # as llama.cpp's json.gbnf
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

ws ::= | " " | "\n" [ \t]{0,20}
"##;

fn factory() -> Factory {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    words.push(b"\xff<eos>".to_vec());
    Factory::new(&words, vec![EOS], Whitespace::Bounded).unwrap()
}

/// Whether the grammar allows the whole text, and an end behind it.
fn allows(factory: &Factory, source: &str, text: &str) -> bool {
    let compiled = factory.compile("gbnf", source.as_bytes(), b"grammar");
    let mut state = compiled.unwrap_or_else(|e| panic!("{}\n{source}", e.0));
    for byte in text.bytes() {
        let mut words = vec![0; 9];
        factory.fill_mask(&mut state, &mut words).unwrap();
        let masked = words[usize::from(byte) / 32] >> (byte % 32) & 1 == 1;
        assert_eq!(factory.accept(&mut state, i32::from(byte)).unwrap(), masked, "{source}{text}");
        if !masked {
            return false;
        }
    }
    let mut words = vec![0; 9];
    factory.fill_mask(&mut state, &mut words).unwrap();
    words[8] & 1 == 1
}

fn check(source: &str, yes: &[&str], no: &[&str]) {
    let factory = factory();
    for text in yes {
        assert!(allows(&factory, source, text), "{source}\nshould allow {text:?}");
    }
    for text in no {
        assert!(!allows(&factory, source, text), "{source}\nshould not allow {text:?}");
    }
}

#[test]
fn json_is_read_and_its_strings_are_lexemes() {
    check(
        JSON,
        &["{}", "{ \"a\": [1, -2.5e+1, \"x\\n\\u00e9 é\"],\"b\":null }", "{\n \"a\":{\"b\":{}}}"],
        &["[]", "{\"a\":1", "{\"a\" 1}", "{'a':1}", "{\"a\":tru}", "{\"a\":\"\\x\"}", "{}{}"],
    );
    let lark = to_lark(JSON).unwrap();
    assert!(lark.matches("\nL_").count() < 25, "{lark}"); // by characters it has more than 40
}

#[test]
fn literals_classes_repeats_and_comments() {
    check("root ::= \"a\" | \"bc\"", &["a", "bc"], &["b", "ab", ""]);
    check("root ::= [a-c0]+ [^a-z] .", &["a0bX\u{e9}", "c-\u{1f642}"], &["aab", "X1", "c--x"]);
    check("root ::= \"x\"{2} \"y\"{1,} \"z\"{0,2}?", &["xxy", "xxyyzz"], &["xy", "xx", "xxyzzz"]);
    check("root ::= \"\\x41\\u00e9\\U0001F642\\n\\\"\\\\\"", &["A\u{e9}\u{1f642}\n\"\\"], &["A"]);
    check("root ::= [\\]\\[\\-x]+ # a comment | \"y\"\n", &["[-x]"], &["y", ""]);
    check("root ::= a-1 b_2\na-1 ::= \"1\"\n | \"2\"\nb_2 ::= |\"b\"", &["1", "2b"], &["b", "12"]);
    check("root ::= \"\"", &[""], &["a"]);
    check("root ::= (\"a\"\n  | \"b\"\n)*", &["", "abba"], &["c"]);
}

/// Lexemes take as much as they can, rules do not: these are all about the difference.
#[test]
fn greed_changes_nothing() {
    let nested = "root ::= \"(\" root \")\" | word \"x\" | [a-z] \"1\"\nword ::= [a-z]+\n";
    check(nested, &["abx", "(abx)", "((axx))", "a1"], &["abc", "x", "(abx", "ab1"]);
    let keyword =
        "root ::= \"if\" tail | name\ntail ::= [a-z] tail | \"!\"\nname ::= [a-z]+ \";\"\n";
    check(keyword, &["ifa!", "ifab!", "if!", "ifab;", "i;"], &["ia!", "if", "ifab"]);
    // Two characters that begin with the same byte.
    let bytes = "root ::= \"\u{e9}\"+ end\nend ::= \"\u{e8}\" end | \".\"\n";
    check(bytes, &["\u{e9}.", "\u{e9}\u{e9}\u{e8}."], &["\u{e8}.", "\u{e9}"]);
    let ends = "root ::= open root open | \"c\"\nopen ::= [a-b]? \n";
    check(ends, &["c", "ac", "acb", "abca"], &["ab", "acd", "cc"]);
}

#[test]
fn errors_name_line_and_column() {
    for (source, place, what) in [
        ("root ::= \"a", "line 1, column 10", "not closed"),
        ("\nroot ::= [a", "line 2, column 10", "not closed"),
        ("root ::= (\"a\"", "line 1, column 10", "not closed"),
        ("root ::= x\n", "line 1, column 10", "no rule `x`"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1", "already"),
        ("root ::= \"\\q\"", "line 1, column 11", "escape"),
        ("root ::= \"\\x4\"", "line 1, column 11", "escape"),
        ("root ::= \"\\ud800\"", "line 1, column 11", "escape"),
        ("root ::= [b-a]", "line 1, column 14", "ascend"),
        ("root ::= []", "line 1, column 10", "no characters"),
        ("root ::= \"a\"{5,2}", "line 1, column 13", "bounds"),
        ("root ::= \"a\"{9999}", "line 1, column 13", "bounds"),
        ("root ::= \"a\" )", "line 1, column 14", "cannot be here"),
        ("root ::= <think>", "line 1, column 10", "cannot be here"),
        ("start: \"a\"", "line 1, column 6", "Lark"),
    ] {
        let error = to_lark(source).unwrap_err().0;
        assert!(error.contains(place) && error.contains(what), "{source}: {error}");
    }
    assert!(to_lark("a ::= \"b\"").unwrap_err().0.contains("no rule `root`"));
    let many: String = (0..2000).map(|i| format!("r{i} ::= \"a\"\n")).collect();
    assert!(to_lark(&many).unwrap_err().0.contains("more than 1000 rules"));
}

/// Each rule twice the one below: only the names are short.
#[test]
fn what_grows_without_bounds_is_not_expanded() {
    let mut source = String::from("root ::= \"(\" root \")\" | r0 \".\"\n");
    for i in 0..60 {
        source += &format!("r{i} ::= r{} r{}\n", i + 1, i + 1);
    }
    source += "r60 ::= \"a\"?\n";
    let start = std::time::Instant::now();
    assert!(to_lark(&source).is_ok());
    assert!(start.elapsed().as_secs() < 120, "expanding it would never end");
}

/// Where a text that begins at `at` may end, by the definition.
fn ends(gbnf: &Gbnf, expr: &Expr, text: &[u8], at: usize) -> BTreeSet<usize> {
    let all = |starts: &BTreeSet<usize>, expr: &Expr| -> BTreeSet<usize> {
        starts.iter().flat_map(|&start| ends(gbnf, expr, text, start)).collect()
    };
    match expr {
        Expr::Chars(ranges) => {
            let fits = |c: u8| ranges.iter().any(|r| r.0 <= u32::from(c) && u32::from(c) <= r.1);
            text.get(at).filter(|&&c| fits(c)).map(|_| at + 1).into_iter().collect()
        }
        Expr::Rule(i) => ends(gbnf, &gbnf.rules[*i], text, at),
        Expr::Seq(parts) => {
            parts.iter().fold(BTreeSet::from([at]), |starts, one| all(&starts, one))
        }
        Expr::Alt(parts) => parts.iter().flat_map(|one| ends(gbnf, one, text, at)).collect(),
        Expr::Repeat(inner, least, most) => {
            let mut reached = BTreeSet::from([at]);
            let mut found = if *least == 0 { reached.clone() } else { BTreeSet::new() };
            for count in 1..=most.unwrap_or(least + text.len()) {
                reached = all(&reached, inner);
                if count >= *least {
                    found.extend(&reached);
                }
            }
            found
        }
    }
}

/// Small grammars over two letters, in which lexemes get into each other's way: every short text is
/// allowed exactly if the definition says so.
#[test]
fn random_grammars_allow_what_the_definition_does() {
    let mut seed = 7u32;
    let mut pick = |n: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % n
    };
    const PLAIN: [&str; 9] =
        ["\"a\"", "\"b\"", "\"ab\"", "[ab]", "\"a\"*", "[ab]+", "p", "q?", "(\"ba\" | p)"];
    let texts: Vec<String> = (0..5)
        .flat_map(|n| (0..1usize << n).map(move |bits| (n, bits)))
        .map(|(n, bits)| (0..n).map(|i| if bits >> i & 1 == 1 { 'b' } else { 'a' }).collect())
        .collect();
    let factory = factory();
    for _ in 0..60 {
        let mut plain = || PLAIN[pick(PLAIN.len())];
        let source = format!(
            "root ::= {} {} | {} \"a\" root {} | {} \"b\" (root | {})\np ::= \"b\" \"a\"?\nq ::= \"a\" | \"bb\"\n",
            plain(), plain(), plain(), plain(), plain(), plain()
        );
        let gbnf = read(&source).unwrap();
        for text in &texts {
            let expected = ends(&gbnf, &gbnf.rules[0], text.as_bytes(), 0).contains(&text.len());
            assert_eq!(allows(&factory, &source, text), expected, "{source}{text:?}");
        }
    }
}

#[test]
fn suffixes_of_suffixes_are_one() {
    for (suffixes, texts) in [
        ("??", ["", "a", ""]),
        ("+?", ["", "a", "aa"]),
        ("?+", ["", "a", "aa"]),
        ("*+?", ["", "a", "aa"]),
    ] {
        let source = format!("root ::= \"a\"{suffixes}");
        assert!(texts.iter().all(|text| allows(&factory(), &source, text)), "{source}");
    }
    assert!(!allows(&factory(), "root ::= \"a\"??", "aa"));
    assert!(!allows(&factory(), "root ::= \"a\"++", ""));
    assert!(allows(&factory(), "root ::= \"a\"{2}{2}?", "aaaa"));
    assert!(!allows(&factory(), "root ::= \"a\"{2}{2}?", "aa"));
}

#[test]
fn deep_nesting_works_up_to_its_limit() {
    let nested = |depth: usize, inner: &str| {
        format!("root ::= {}{inner}{}", "(\"a\" ".repeat(depth), ")?".repeat(depth))
    };
    for inner in ["\"b\"", "(\"b\" root)?"] {
        let source = nested(200, inner);
        assert!(allows(&factory(), &source, "aaa"), "{inner}");
        assert!(allows(&factory(), &source, &("a".repeat(200) + "b")), "{inner}");
        assert!(!allows(&factory(), &source, "aab"), "{inner}");
    }
    let error = factory().compile("gbnf", nested(257, "\"b\"").as_bytes(), b"").err().unwrap().0;
    assert!(error.contains("nested deeper than 256"), "{error}");
    let suffixes = "root ::= \"a\" root".to_string() + &"{1,2}".repeat(300);
    let error = factory().compile("gbnf", suffixes.as_bytes(), b"").err().unwrap().0;
    assert!(error.contains("nested deeper than 256"), "{error}");
}

#[test]
fn hostile_rules_end_at_the_compilers_limits() {
    // Each round over the rules settles one more of them.
    let rules: String =
        (0..990).map(|i| format!("r{i} ::= {}r{}\n", ".".repeat(200), i + 1)).collect();
    let source = format!("root ::= r0 | \"x\" root \"y\"\n{rules}r990 ::= \"z\"\n");
    let many = "root ::= \"a\" root".to_string() + &"?".repeat(262_000);
    for source in [source, many] {
        let start = std::time::Instant::now();
        let result = factory().compile("gbnf", source.as_bytes(), b"");
        assert!(start.elapsed().as_secs() < 120, "the limit is one second of CPU time");
        if let Err(error) = result {
            // Which limit is the first depends on how fast the machine is.
            let limits = ["more than 1000 ms of CPU time", "more than 64 MiB of memory"];
            assert!(limits.iter().any(|limit| error.0.contains(limit)), "{}", error.0);
        }
    }
}
