//! GBNF as Lark for llguidance. Its rules speak of characters; llguidance's parser of lexemes, each of
//! which takes as much text as it can. What is not recursive becomes a lexeme, because characters as
//! lexemes would make masks a hundred times slower; but only if a lexeme's greed cannot change what is
//! allowed. If it could, every character is a lexeme of its own.

use crate::allowance::step;
use crate::error::TextResult;
use crate::gbnf::{read, Expr, Gbnf};
use crate::gbnf_greed::{is_safe, Node};
use serde_json::Value as Json;

/// Whether a rule comes back to itself, or speaks of one that does.
fn recursive_rules(gbnf: &Gbnf) -> Vec<bool> {
    // A rule that only speaks of plain ones is plain: from the leaves up, until nothing changes.
    let mut recursive = vec![true; gbnf.rules.len()];
    loop {
        let mut changed = false;
        for (i, rule) in gbnf.rules.iter().enumerate() {
            if recursive[i] && !mentions(rule, &recursive) {
                recursive[i] = false;
                changed = true;
            }
        }
        if !changed {
            return recursive;
        }
    }
}

fn mentions(expr: &Expr, marked: &[bool]) -> bool {
    step();
    match expr {
        Expr::Chars(_) => false,
        Expr::Seq(all) | Expr::Alt(all) => all.iter().any(|one| mentions(one, marked)),
        Expr::Repeat(inner, ..) => mentions(inner, marked),
        Expr::Rule(i) => marked[*i],
    }
}

/// What becomes one lexeme.
#[derive(Clone, Copy, PartialEq)]
enum Lexemes {
    /// Neighbours that are not recursive.
    Runs,
    /// Each part that is not recursive.
    Parts,
    Characters,
}

struct Writer<'a> {
    gbnf: &'a Gbnf,
    recursive: &'a [bool],
    size: Lexemes,
    lexemes: Vec<Expr>,
}

impl Writer<'_> {
    fn lexeme(&mut self, expr: Expr) -> Node {
        self.lexemes.push(expr);
        Node::Lexeme(self.lexemes.len() - 1)
    }

    fn is_lexeme(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Chars(_) => true,
            Expr::Seq(all) if all.is_empty() => false,
            _ => self.size != Lexemes::Characters && !mentions(expr, self.recursive),
        }
    }

    fn node(&mut self, expr: &Expr) -> Node {
        if self.is_lexeme(expr) {
            return self.lexeme(expr.clone());
        }
        match expr {
            Expr::Chars(_) => unreachable!("a character is a lexeme"),
            Expr::Rule(i) => Node::Rule(*i),
            Expr::Alt(all) => Node::Alt(all.iter().map(|one| self.node(one)).collect()),
            Expr::Repeat(inner, least, most) => {
                Node::Repeat(Box::new(self.node(inner)), *least, *most)
            }
            Expr::Seq(all) => {
                let mut nodes = Vec::new();
                let mut run = Vec::new();
                for one in all {
                    if self.size == Lexemes::Runs && self.is_lexeme(one) {
                        run.push(one.clone());
                        continue;
                    }
                    if !run.is_empty() {
                        nodes.push(self.lexeme(Expr::Seq(std::mem::take(&mut run))));
                    }
                    nodes.push(self.node(one));
                }
                if !run.is_empty() {
                    nodes.push(self.lexeme(Expr::Seq(run)));
                }
                Node::Seq(nodes)
            }
        }
    }

    /// Rules that are written as such: all, or those that lexemes do not hold.
    fn nodes(&mut self) -> Vec<Option<Node>> {
        let gbnf = self.gbnf;
        let needs = |i: usize| i == 0 || self.size == Lexemes::Characters || self.recursive[i];
        let wanted: Vec<bool> = (0..gbnf.rules.len()).map(needs).collect();
        let rules = gbnf.rules.iter().zip(wanted);
        rules.map(|(rule, wanted)| wanted.then(|| self.node(rule))).collect()
    }
}

fn append_repeat(out: &mut String, least: usize, most: Option<usize>) {
    match (least, most) {
        (0, None) => out.push('*'),
        (1, None) => out.push('+'),
        (0, Some(1)) => out.push('?'),
        (_, None) => *out += &format!("{{{least},}}"),
        (_, Some(most)) => *out += &format!("{{{least},{most}}}"),
    }
}

fn only_character(expr: &Expr) -> Option<char> {
    match expr {
        Expr::Chars(ranges) if ranges.len() == 1 && ranges[0].0 == ranges[0].1 => {
            char::from_u32(ranges[0].0)
        }
        _ => None,
    }
}

/// Brackets within brackets that llguidance reads in one rule or terminal, with some to spare.
const MAX_BRACKETS: usize = 16;

/// Lark text. What is nested deeper than MAX_BRACKETS becomes a rule or terminal of its own.
#[derive(Default)]
struct Lark {
    text: String,
    depth: usize,
    names: usize,
    more: String, // their lines
}

impl Lark {
    fn push(&mut self, text: &str) {
        self.text += text;
    }

    /// What `write` appends, in brackets. `letter`: what the name of a line of its own begins with.
    fn in_brackets(&mut self, letter: &str, write: impl FnOnce(&mut Lark)) {
        if self.depth < MAX_BRACKETS {
            self.depth += 1;
            self.text.push('(');
            write(self);
            self.text.push(')');
            self.depth -= 1;
            return;
        }
        let outer = std::mem::take(&mut self.text);
        let depth = std::mem::take(&mut self.depth);
        write(self);
        let inner = std::mem::replace(&mut self.text, outer);
        self.depth = depth;
        let name = format!("{letter}_{}", self.names);
        self.names += 1;
        self.more += &format!("{name}: {inner}\n");
        self.text += &name;
    }

    fn regex(&mut self, expr: &Expr) {
        match expr {
            Expr::Chars(ranges) => {
                if let Some(c) = only_character(expr) {
                    return self.push(&Json::from(c.to_string()).to_string());
                }
                self.push("/[");
                for (low, high) in ranges {
                    self.push(&format!("\\x{{{low:X}}}-\\x{{{high:X}}}"));
                }
                self.push("]/");
            }
            Expr::Rule(i) => self.push(&format!("R_{i}")),
            Expr::Repeat(inner, least, most) => {
                self.in_brackets("X", |lark| lark.regex(inner));
                append_repeat(&mut self.text, *least, *most);
            }
            Expr::Seq(all) if all.is_empty() => self.push("\"\""),
            Expr::Seq(all) => {
                if let Some(text) = all.iter().map(only_character).collect::<Option<String>>() {
                    return self.push(&Json::from(text).to_string());
                }
                self.list("X", all, " ", Lark::regex);
            }
            Expr::Alt(all) => self.list("X", all, " | ", Lark::regex),
        }
    }

    /// `empty`: which lexemes may be empty.
    fn node(&mut self, node: &Node, empty: &[bool]) {
        match node {
            // No lexeme is empty.
            Node::Lexeme(i) => self.push(&format!("L_{i}{}", if empty[*i] { "?" } else { "" })),
            Node::Rule(i) => self.push(&format!("r_{i}")),
            Node::Repeat(inner, least, most) => {
                self.in_brackets("x", |lark| lark.node(inner, empty));
                append_repeat(&mut self.text, *least, *most);
            }
            Node::Seq(all) if all.is_empty() => self.push("\"\""),
            Node::Seq(all) => self.list("x", all, " ", |lark, one| lark.node(one, empty)),
            Node::Alt(all) => self.list("x", all, " | ", |lark, one| lark.node(one, empty)),
        }
    }

    fn list<T>(&mut self, letter: &str, all: &[T], between: &str, one: impl Fn(&mut Lark, &T)) {
        self.in_brackets(letter, |lark| {
            for (i, item) in all.iter().enumerate() {
                lark.push(if i > 0 { between } else { "" });
                one(lark, item);
            }
        });
    }
}

fn may_be_empty(expr: &Expr, rules: &[bool]) -> bool {
    step();
    match expr {
        Expr::Chars(_) => false,
        Expr::Seq(all) => all.iter().all(|one| may_be_empty(one, rules)),
        Expr::Alt(all) => all.iter().any(|one| may_be_empty(one, rules)),
        Expr::Repeat(inner, least, _) => *least == 0 || may_be_empty(inner, rules),
        Expr::Rule(i) => rules[*i],
    }
}

fn empty_rules(gbnf: &Gbnf) -> Vec<bool> {
    let mut empty = vec![false; gbnf.rules.len()];
    loop {
        let next: Vec<bool> = gbnf.rules.iter().map(|rule| may_be_empty(rule, &empty)).collect();
        if next == empty {
            return empty;
        }
        empty = next;
    }
}

fn write(gbnf: &Gbnf, recursive: &[bool], nodes: &[Option<Node>], lexemes: &[Expr]) -> String {
    let rules = empty_rules(gbnf);
    let empty: Vec<bool> = lexemes.iter().map(|expr| may_be_empty(expr, &rules)).collect();
    let mut out = Lark { text: "start: r_0\n".to_string(), ..Lark::default() };
    for (i, node) in nodes.iter().enumerate() {
        if let Some(node) = node {
            out.push(&format!("r_{i}: "));
            out.node(node, &empty);
            out.push("\n");
        }
    }
    for (i, expr) in lexemes.iter().enumerate() {
        out.push(&format!("L_{i}: "));
        out.regex(expr);
        out.push(if empty[i] { " & /(?s:.+)/\n" } else { "\n" });
    }
    for (i, rule) in gbnf.rules.iter().enumerate() {
        if !recursive[i] {
            out.push(&format!("R_{i}: "));
            out.regex(rule);
            out.push("\n");
        }
    }
    out.text + &out.more
}

pub fn to_lark(source: &str) -> TextResult<String> {
    let gbnf = read(source)?;
    let recursive = recursive_rules(&gbnf);
    for size in [Lexemes::Runs, Lexemes::Parts, Lexemes::Characters] {
        let mut writer = Writer { gbnf: &gbnf, recursive: &recursive, size, lexemes: Vec::new() };
        let nodes = writer.nodes();
        let lexemes = writer.lexemes;
        if size == Lexemes::Characters || is_safe(&gbnf, &nodes, &lexemes) {
            return Ok(write(&gbnf, &recursive, &nodes, &lexemes));
        }
    }
    unreachable!("by characters everything is written")
}
