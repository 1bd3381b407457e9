//! Whether lexemes that take as much text as they can allow the same texts as the rules they are in.

use crate::allowance::step;
use crate::gbnf::{Expr, Gbnf};
use std::collections::HashSet;

/// A rule whose plain parts are lexemes.
pub enum Node {
    Lexeme(usize),
    Rule(usize),
    Seq(Vec<Node>),
    Alt(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

/// Of the automaton of all lexemes, and of the work on it. Beyond them: not safe.
const MAX_STATES: usize = 20_000;
const MAX_SETS: usize = 2_000;
const MAX_STEPS: usize = 3_000_000;

/// Bytes that a character may begin with.
#[derive(Clone, Copy, PartialEq, Default)]
struct Bytes([u64; 4]);

impl Bytes {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }
    fn add_all(&mut self, other: &Bytes) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }
    fn add_range(&mut self, low: u32, high: u32) {
        for byte in first_byte(low)..=first_byte(high) {
            self.add(byte);
        }
    }
    fn meets(&self, other: &Bytes) -> bool {
        self.0.iter().zip(other.0).any(|(mine, theirs)| mine & theirs != 0)
    }
}

fn first_byte(code: u32) -> u8 {
    let mut buffer = [0; 4];
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    c.encode_utf8(&mut buffer).as_bytes()[0]
}

#[derive(Default)]
struct State {
    free: Vec<usize>,
    step: Option<(Vec<(u32, u32)>, usize)>,
    ends: Option<usize>, // lexeme
}

/// Thompson's construction.
struct Automaton<'a> {
    gbnf: &'a Gbnf,
    states: Vec<State>,
    parts: usize, // of expressions
}

impl Automaton<'_> {
    fn new_state(&mut self) -> usize {
        self.states.push(State::default());
        self.states.len() - 1
    }

    /// From `from` to the state that is returned. None: too large.
    fn add(&mut self, expr: &Expr, from: usize) -> Option<usize> {
        self.parts += 1;
        if self.parts > MAX_STATES || self.states.len() > MAX_STATES {
            return None;
        }
        match expr {
            Expr::Chars(ranges) => {
                let to = self.new_state();
                let begin = self.new_state();
                self.states[from].free.push(begin);
                self.states[begin].step = Some((ranges.clone(), to));
                Some(to)
            }
            Expr::Rule(i) => {
                let gbnf = self.gbnf;
                self.add(&gbnf.rules[*i], from)
            }
            Expr::Seq(all) => all.iter().try_fold(from, |at, one| self.add(one, at)),
            Expr::Alt(all) => {
                let to = self.new_state();
                for one in all {
                    let begin = self.new_state();
                    self.states[from].free.push(begin);
                    let end = self.add(one, begin)?;
                    self.states[end].free.push(to);
                }
                Some(to)
            }
            Expr::Repeat(inner, least, most) => {
                let mut at = from;
                for _ in 0..*least {
                    at = self.add(inner, at)?;
                }
                let to = self.new_state();
                self.states[at].free.push(to);
                for _ in *least..most.unwrap_or(least + 1) {
                    let begin = self.new_state();
                    self.states[at].free.push(begin);
                    at = self.add(inner, begin)?;
                    self.states[at].free.push(to);
                    if most.is_none() {
                        self.states[at].free.push(begin);
                    }
                }
                Some(to)
            }
        }
    }

    /// With all states that are reached without a character.
    fn closed(&self, mut set: Vec<usize>) -> Vec<usize> {
        let mut seen: HashSet<usize> = set.iter().copied().collect();
        let mut at = 0;
        while at < set.len() {
            for &next in &self.states[set[at]].free {
                if seen.insert(next) {
                    set.push(next);
                }
            }
            at += 1;
        }
        set.sort_unstable();
        set
    }

    fn next_bytes(&self, set: &[usize]) -> Bytes {
        let mut bytes = Bytes::default();
        for (ranges, _) in set.iter().filter_map(|&i| self.states[i].step.as_ref()) {
            for &(low, high) in ranges {
                bytes.add_range(low, high);
            }
        }
        bytes
    }
}

/// What may come first, and next.
struct Follow {
    first_of_lexeme: Vec<Bytes>,
    lexeme_is_empty: Vec<bool>,
    first_of_rule: Vec<Bytes>,
    rule_is_empty: Vec<bool>,
    after_lexeme: Vec<Bytes>,
    after_rule: Vec<Bytes>,
}

impl Follow {
    fn first(&self, node: &Node) -> (Bytes, bool) {
        step();
        match node {
            Node::Lexeme(i) => (self.first_of_lexeme[*i], self.lexeme_is_empty[*i]),
            Node::Rule(i) => (self.first_of_rule[*i], self.rule_is_empty[*i]),
            Node::Repeat(inner, least, _) => {
                let (bytes, empty) = self.first(inner);
                (bytes, empty || *least == 0)
            }
            Node::Alt(all) => all.iter().fold((Bytes::default(), false), |(mut sum, any), one| {
                let (bytes, empty) = self.first(one);
                sum.add_all(&bytes);
                (sum, any || empty)
            }),
            Node::Seq(all) => {
                let mut sum = Bytes::default();
                for one in all {
                    let (bytes, empty) = self.first(one);
                    sum.add_all(&bytes);
                    if !empty {
                        return (sum, false);
                    }
                }
                (sum, true)
            }
        }
    }

    fn pass_down(&mut self, node: &Node, after: Bytes) {
        step();
        match node {
            Node::Lexeme(i) => self.after_lexeme[*i].add_all(&after),
            Node::Rule(i) => self.after_rule[*i].add_all(&after),
            Node::Alt(all) => all.iter().for_each(|one| self.pass_down(one, after)),
            Node::Repeat(inner, _, most) => {
                let mut behind = after;
                if *most != Some(1) {
                    behind.add_all(&self.first(inner).0);
                }
                self.pass_down(inner, behind);
            }
            Node::Seq(all) => {
                let mut behind = after;
                for one in all.iter().rev() {
                    self.pass_down(one, behind);
                    let (bytes, empty) = self.first(one);
                    if !empty {
                        behind = Bytes::default();
                    }
                    behind.add_all(&bytes);
                }
            }
        }
    }

    fn settle(&mut self, nodes: &[Option<Node>]) {
        loop {
            let before = (self.first_of_rule.clone(), self.rule_is_empty.clone());
            for (i, node) in nodes.iter().enumerate() {
                if let Some(node) = node {
                    (self.first_of_rule[i], self.rule_is_empty[i]) = self.first(node);
                }
            }
            if before == (self.first_of_rule.clone(), self.rule_is_empty.clone()) {
                break;
            }
        }
        loop {
            let before = (self.after_rule.clone(), self.after_lexeme.clone());
            for (i, node) in nodes.iter().enumerate() {
                if let Some(node) = node {
                    self.pass_down(node, self.after_rule[i]);
                }
            }
            if before == (self.after_rule.clone(), self.after_lexeme.clone()) {
                break;
            }
        }
    }
}

/// A lexeme that is complete may not go on with a byte that may also come after it, whichever lexeme
/// would take it: the lexer would go on, and the rule would be lost.
pub fn is_safe(gbnf: &Gbnf, nodes: &[Option<Node>], lexemes: &[Expr]) -> bool {
    if matches!(nodes.first(), Some(Some(Node::Lexeme(_)))) && nodes.iter().flatten().count() == 1 {
        return true; // nothing comes after it
    }
    let mut automaton = Automaton { gbnf, states: Vec::new(), parts: 0 };
    let start = automaton.new_state();
    let mut follow = Follow {
        first_of_lexeme: Vec::new(),
        lexeme_is_empty: Vec::new(),
        first_of_rule: vec![Bytes::default(); nodes.len()],
        rule_is_empty: vec![false; nodes.len()],
        after_lexeme: vec![Bytes::default(); lexemes.len()],
        after_rule: vec![Bytes::default(); nodes.len()],
    };
    for (i, expr) in lexemes.iter().enumerate() {
        let begin = automaton.new_state();
        automaton.states[start].free.push(begin);
        let Some(end) = automaton.add(expr, begin) else {
            return false;
        };
        automaton.states[end].ends = Some(i);
        let first = automaton.closed(vec![begin]);
        follow.first_of_lexeme.push(automaton.next_bytes(&first));
        follow.lexeme_is_empty.push(first.contains(&end));
    }
    follow.settle(nodes);
    no_greed(&automaton, start, &follow.after_lexeme)
}

/// Walks through the sets of states that texts lead to.
fn no_greed(automaton: &Automaton, start: usize, after: &[Bytes]) -> bool {
    // Characters between two edges are treated alike.
    let steps = automaton.states.iter().filter_map(|state| state.step.as_ref());
    let mut edges: Vec<u32> = steps
        .flat_map(|(ranges, _)| ranges.iter().flat_map(|&(low, high)| [low, high + 1]))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let first = automaton.closed(vec![start]);
    let mut seen = HashSet::from([first.clone()]);
    let mut waiting = vec![first];
    let mut steps = 0;
    let mut is_first = true;
    while let Some(set) = waiting.pop() {
        let bytes = automaton.next_bytes(&set);
        let clash = |&i: &usize| automaton.states[i].ends.is_some_and(|l| after[l].meets(&bytes));
        // Before the first character nothing has been matched.
        if !std::mem::replace(&mut is_first, false) && set.iter().any(clash) {
            return false;
        }
        let moves: Vec<_> = set.iter().filter_map(|&i| automaton.states[i].step.as_ref()).collect();
        for &edge in &edges {
            step();
            steps += moves.len() + 1;
            let holds = |ranges: &[(u32, u32)]| {
                let at = ranges.partition_point(|&(_, high)| high < edge);
                at < ranges.len() && ranges[at].0 <= edge
            };
            let next: Vec<usize> =
                moves.iter().filter(|(ranges, _)| holds(ranges)).map(|(_, to)| *to).collect();
            if next.is_empty() {
                continue;
            }
            let next = automaton.closed(next);
            steps += next.len();
            if steps > MAX_STEPS || seen.len() > MAX_SETS {
                return false;
            }
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    true
}
