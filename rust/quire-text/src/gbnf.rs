//! GBNF, llama.cpp's form of grammars, read into expressions over characters.

use crate::error::{fail, short, TextResult};
use std::collections::HashMap;

const MAX_REPEAT: usize = 1_000;
const MAX_RULES: usize = 1_000;
/// Of brackets and of repetitions of repetitions.
const MAX_DEPTH: usize = 256;
const MAX_CHAR: u32 = 0x10_FFFF;

#[derive(Clone, Debug)]
pub enum Expr {
    /// One character of these ranges, which are sorted, apart and without surrogates.
    Chars(Vec<(u32, u32)>),
    Seq(Vec<Expr>),
    Alt(Vec<Expr>),
    /// At least, at most.
    Repeat(Box<Expr>, usize, Option<usize>),
    /// By its number.
    Rule(usize),
}

pub struct Gbnf {
    /// The first one is `root`.
    pub rules: Vec<Expr>,
}

/// Sorted, joined, without surrogates; everything else if `negated`.
fn normalise(mut ranges: Vec<(u32, u32)>, negated: bool) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (low, high) in ranges {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    if negated {
        let mut next = 0;
        let mut gaps = Vec::new();
        for (low, high) in joined {
            if low > next {
                gaps.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= MAX_CHAR {
            gaps.push((next, MAX_CHAR));
        }
        joined = gaps;
    }
    joined
        .into_iter()
        .flat_map(|(low, high)| [(low, high.min(0xD7FF)), (low.max(0xE000), high)])
        .filter(|(low, high)| low <= high)
        .collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// `*`, `+` and `?`: one of them behind another is one of them, too.
fn is_simple(least: usize, most: Option<usize>) -> bool {
    least <= 1 && (most.is_none() || (least, most) == (0, Some(1)))
}

struct Reader {
    text: Vec<char>,
    at: usize,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    /// Where a rule was first spoken of.
    places: Vec<usize>,
    rules: Vec<Option<Expr>>,
    depth: usize,
}

pub fn read(source: &str) -> TextResult<Gbnf> {
    let mut reader = Reader {
        text: source.chars().collect(),
        at: 0,
        numbers: HashMap::new(),
        names: Vec::new(),
        places: Vec::new(),
        rules: Vec::new(),
        depth: 0,
    };
    reader.number_of("root", 0);
    reader.skip(true);
    while reader.peek().is_some() {
        reader.rule()?;
        reader.skip(true);
        if reader.rules.len() > MAX_RULES {
            return reader.wrong(reader.at, &format!("more than {MAX_RULES} rules"));
        }
    }
    let mut rules = Vec::new();
    for (i, rule) in reader.rules.iter().enumerate() {
        match rule {
            Some(expr) => rules.push(expr.clone()),
            None if i == 0 => return fail("the GBNF grammar has no rule `root`"),
            None => {
                let name = &reader.names[i];
                return reader
                    .wrong(reader.places[i], &format!("there is no rule `{}`", short(name)));
            }
        }
    }
    Ok(Gbnf { rules })
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c))
    }

    fn wrong<T>(&self, at: usize, what: &str) -> TextResult<T> {
        let before = &self.text[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&c| c == '\n').count();
        let column = 1 + before.iter().rev().take_while(|&&c| c != '\n').count();
        fail(format!("GBNF grammar, line {line}, column {column}: {what}"))
    }

    /// Blanks and comments; line ends too if a rule may go on behind them.
    fn skip(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else if c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn number_of(&mut self, name: &str, place: usize) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.numbers.insert(name.to_string(), self.rules.len());
        self.names.push(name.to_string());
        self.places.push(place);
        self.rules.push(None);
        self.rules.len() - 1
    }

    fn name(&mut self) -> TextResult<String> {
        let start = self.at;
        while self.peek().is_some_and(is_name) {
            self.at += 1;
        }
        if self.at == start {
            return self.wrong(start, "a name is missing here");
        }
        Ok(self.text[start..self.at].iter().collect())
    }

    fn rule(&mut self) -> TextResult<()> {
        let place = self.at;
        let name = self.name()?;
        self.skip(false);
        if !self.starts_with("::=") {
            return self.wrong(self.at, "`::=` is missing here; Lark is not GBNF");
        }
        self.at += 3;
        self.skip(true);
        let number = self.number_of(&name, place);
        if self.rules[number].is_some() {
            return self.wrong(place, &format!("there is a rule `{}` already", short(&name)));
        }
        let body = self.alternatives(false)?;
        self.rules[number] = Some(body);
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(c) => self.wrong(self.at, &format!("`{c}` cannot be here")),
        }
    }

    fn alternatives(&mut self, nested: bool) -> TextResult<Expr> {
        let mut all = vec![self.sequence(nested)?];
        while self.at_bar() {
            self.at += 1;
            self.skip(true);
            all.push(self.sequence(nested)?);
        }
        let count = all.len();
        all.retain(|expr| !matches!(expr, Expr::Seq(items) if items.is_empty()));
        let has_empty = all.len() < count;
        let expr = match all.len() {
            0 => Expr::Seq(Vec::new()),
            1 => all.remove(0),
            _ => Expr::Alt(all),
        };
        let may_be_left_out = has_empty && !matches!(&expr, Expr::Seq(items) if items.is_empty());
        Ok(if may_be_left_out { Expr::Repeat(Box::new(expr), 0, Some(1)) } else { expr })
    }

    /// A bar may begin a line.
    fn at_bar(&mut self) -> bool {
        let end = self.at;
        self.skip(true);
        let found = self.peek() == Some('|');
        if !found {
            self.at = end;
        }
        found
    }

    fn sequence(&mut self, nested: bool) -> TextResult<Expr> {
        let mut items = Vec::new();
        while let Some(c) = self.peek() {
            let item = match c {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Expr::Chars(normalise(Vec::new(), true))
                }
                '(' => {
                    let place = self.at;
                    self.at += 1;
                    self.skip(true);
                    let inner = self.deeper(place, 1, |reader| reader.alternatives(true))?;
                    if self.peek() != Some(')') {
                        return self.wrong(place, "this `(` is not closed");
                    }
                    self.at += 1;
                    inner
                }
                _ if is_name(c) => {
                    let place = self.at;
                    let name = self.name()?;
                    Expr::Rule(self.number_of(&name, place))
                }
                _ => break,
            };
            items.push(self.repeated(item)?);
            self.skip(nested);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Expr::Seq(items) })
    }

    fn deeper<T>(
        &mut self,
        place: usize,
        levels: usize,
        read: impl FnOnce(&mut Self) -> TextResult<T>,
    ) -> TextResult<T> {
        if self.depth + levels > MAX_DEPTH {
            return self.wrong(place, &format!("nested deeper than {MAX_DEPTH}"));
        }
        self.depth += levels;
        let result = read(self);
        self.depth -= levels;
        result
    }

    /// With what stands behind it: `*`, `+`, `?`, `{2}`, `{2,}`, `{2,5}`.
    fn repeated(&mut self, mut item: Expr) -> TextResult<Expr> {
        let mut levels = 0;
        loop {
            self.skip(false);
            let place = self.at;
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.bounds()?,
                _ => return Ok(item),
            };
            self.at += 1;
            item = match item {
                Expr::Repeat(inner, inner_least, inner_most)
                    if is_simple(least, most) && is_simple(inner_least, inner_most) =>
                {
                    Expr::Repeat(inner, least * inner_least, most.and(inner_most))
                }
                item => {
                    levels += 1;
                    self.deeper(place, levels, |_| Ok(()))?;
                    Expr::Repeat(Box::new(item), least, most)
                }
            };
        }
    }

    /// Up to the closing brace.
    fn bounds(&mut self) -> TextResult<(usize, Option<usize>)> {
        let place = self.at;
        let rest = &self.text[place + 1..];
        let Some(length) = rest.iter().take(40).position(|&c| c == '}') else {
            return self.wrong(place, "this `{` is not closed");
        };
        let text: String = rest[..length].iter().filter(|&&c| c != ' ').collect();
        let (low, high) = text.split_once(',').unwrap_or((&text, &text));
        let least = if low.is_empty() { Ok(0) } else { low.parse::<usize>() };
        let most = if high.is_empty() { Ok(MAX_REPEAT) } else { high.parse::<usize>() };
        match (least, most) {
            (Ok(least), Ok(most)) if least <= most && most <= MAX_REPEAT => {
                self.at = place + 1 + length;
                Ok((least, if high.is_empty() { None } else { Some(most) }))
            }
            _ => self.wrong(place, &format!("bounds must be ascending and at most {MAX_REPEAT}")),
        }
    }

    fn literal(&mut self) -> TextResult<Expr> {
        let place = self.at;
        self.at += 1;
        let mut items = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.wrong(place, "this string is not closed"),
                Some('"') => break,
                _ => {
                    let c = self.character()?;
                    items.push(Expr::Chars(normalise(vec![(c, c)], false)));
                }
            }
        }
        self.at += 1;
        Ok(Expr::Seq(items))
    }

    fn class(&mut self) -> TextResult<Expr> {
        let place = self.at;
        self.at += 1;
        let negated = self.peek() == Some('^');
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.wrong(place, "this `[` is not closed"),
                Some(']') => break,
                _ => {}
            }
            let low = self.character()?;
            let is_range = self.peek() == Some('-') && self.text.get(self.at + 1) != Some(&']');
            let high = if is_range {
                self.at += 1;
                self.character()?
            } else {
                low
            };
            if high < low {
                return self.wrong(self.at, "a range must ascend");
            }
            ranges.push((low, high));
        }
        self.at += 1;
        let chars = normalise(ranges, negated);
        if chars.is_empty() {
            return self.wrong(place, "this class has no characters");
        }
        Ok(Expr::Chars(chars))
    }

    fn character(&mut self) -> TextResult<u32> {
        let Some(c) = self.peek() else {
            return self.wrong(self.at, "a character is missing here");
        };
        self.at += 1;
        if c != '\\' {
            return Ok(c as u32);
        }
        let place = self.at - 1;
        let Some(kind) = self.peek() else {
            return self.wrong(place, "a character is missing behind this `\\`");
        };
        self.at += 1;
        let digits = match kind {
            't' => return Ok(9),
            'n' => return Ok(10),
            'r' => return Ok(13),
            '\\' | '"' | '[' | ']' | '-' | '^' => return Ok(kind as u32),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.wrong(place, "this escape is not known"),
        };
        let text: String = self.text[self.at..].iter().take(digits).collect();
        self.at += digits;
        match u32::from_str_radix(&text, 16) {
            Ok(code) if text.len() == digits && char::from_u32(code).is_some() => Ok(code),
            _ => self.wrong(place, "this escape needs hexadecimal digits of a character"),
        }
    }
}
