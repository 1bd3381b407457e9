//! What a model writes before its grammar begins: its thoughts, or text until it calls a tool.

use crate::error::{fail, TextError, TextResult};
use serde_json::Value as Json;
use std::sync::Arc;
use toktrie::{SimpleVob, TokTrie, TokenId};

/// Line ends that a model may put after its thoughts, or, where no grammar waits, before them.
const MAX_BLANKS: u8 = 2;

#[derive(Default)]
pub struct Thinking {
    open: Vec<TokenId>,
    close: Vec<TokenId>,
    close_text: Vec<u8>,
    starts_open: bool,
    budget: Option<usize>, // tokens
}

struct Trigger {
    text: Vec<u8>,
    /// The grammar begins with it.
    is_kept: bool,
}

/// What comes before the grammar, and whether there is one at all.
#[derive(Default)]
pub struct Prelude {
    thinking: Option<Thinking>,
    /// The grammar begins after the first of these texts. None: at once.
    triggers: Vec<Trigger>,
    /// What follows the grammar's text is free again, up to the next trigger.
    repeats: bool,
    /// The answer may not end before a trigger has come.
    required: bool,
    /// There is no grammar: after the thinking everything may come.
    free: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// So many of the opener's tokens are there.
    Opening(usize),
    /// So many tokens; with those of the closer that are there if it is forced.
    Thinking(usize, usize),
    Searching,
    Free,
    Grammar,
}

/// Where one answer is.
#[derive(Clone)]
pub struct Place {
    prelude: Arc<Prelude>,
    phase: Phase,
    blanks: u8,
    window: Vec<u8>,
}

/// What becomes of a token.
#[derive(PartialEq, Debug)]
pub enum Step {
    Taken,
    Refused,
    /// It belongs to the grammar.
    ToGrammar,
    /// The grammar begins, with these bytes, if it allows them.
    Begins(Vec<u8>),
}

fn ids(json: &Json) -> TextResult<Vec<TokenId>> {
    serde_json::from_value(json.clone()).map_err(|e| TextError(format!("not token ids: {e}")))
}

impl Prelude {
    /// {"thinking": {"open": [ids], "close": [ids], "close_text", "starts_open", "budget"},
    /// "triggers": [texts], "kept_triggers": [texts], "repeats", "free"}; an empty text: none.
    pub fn parse(source: &str) -> TextResult<Prelude> {
        if source.is_empty() {
            return Ok(Prelude::default());
        }
        let json: Json = serde_json::from_str(source).map_err(|e| TextError(e.to_string()))?;
        let flag = |json: &Json, name: &str| json[name].as_bool().unwrap_or(false);
        let mut prelude = Prelude { repeats: flag(&json, "repeats"), ..Prelude::default() };
        prelude.free = flag(&json, "free");
        prelude.required = flag(&json, "required");
        for (name, is_kept) in [("triggers", false), ("kept_triggers", true)] {
            for text in json[name].as_array().into_iter().flatten() {
                let text = text.as_str().unwrap_or_default().as_bytes().to_vec();
                prelude.triggers.push(Trigger { text, is_kept });
            }
        }
        if let Some(thinking) = json.get("thinking").filter(|thinking| thinking.is_object()) {
            let thinking = Thinking {
                open: ids(&thinking["open"])?,
                close: ids(&thinking["close"])?,
                close_text: thinking["close_text"].as_str().unwrap_or_default().as_bytes().to_vec(),
                starts_open: flag(thinking, "starts_open"),
                budget: thinking["budget"].as_u64().map(|n| n as usize),
            };
            if thinking.open.is_empty() || thinking.close.is_empty() {
                return fail("reasoning needs markers of at least one token");
            }
            prelude.thinking = Some(thinking);
        }
        Ok(prelude)
    }

    fn after_thinking(&self) -> Phase {
        match (self.free, self.triggers.is_empty()) {
            (true, _) => Phase::Free,
            (false, false) => Phase::Searching,
            (false, true) => Phase::Grammar,
        }
    }
}

/// Without the marker that keeps special tokens out of grammars' texts.
fn bytes_of(trie: &TokTrie, token: TokenId) -> &[u8] {
    let bytes = trie.token(token);
    bytes.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]).unwrap_or(bytes)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

impl Place {
    pub fn new(prelude: Arc<Prelude>) -> Place {
        let phase = match &prelude.thinking {
            Some(thinking) if thinking.starts_open => Phase::Thinking(0, 0),
            Some(_) => Phase::Opening(0),
            None => prelude.after_thinking(),
        };
        Place { prelude, phase, blanks: 0, window: Vec::new() }
    }

    pub fn in_grammar(&self) -> bool {
        self.phase == Phase::Grammar
    }

    pub fn has_prelude(&self) -> bool {
        let prelude = &self.prelude;
        prelude.thinking.is_some() || prelude.free || !prelude.triggers.is_empty()
    }

    /// The grammar begins in the middle of the answer.
    pub fn begins_later(&self) -> bool {
        !self.prelude.triggers.is_empty()
    }

    /// The answer may end here. (In the grammar it says so itself.)
    pub fn may_end(&self) -> bool {
        let demanded = self.prelude.required || self.prelude.after_thinking() == Phase::Grammar;
        !demanded && !self.is_forced()
    }

    fn thinking(&self) -> &Thinking {
        self.prelude.thinking.as_ref().expect("a phase of thinking")
    }

    fn is_forced(&self) -> bool {
        match self.phase {
            // What has no grammar goes on as it likes.
            Phase::Opening(taken) => taken > 0 && self.prelude.after_thinking() == Phase::Grammar,
            Phase::Thinking(tokens, taken) => {
                taken > 0 || self.thinking().budget.is_some_and(|budget| tokens >= budget)
            }
            _ => false,
        }
    }

    fn forced(&self) -> Option<TokenId> {
        match self.phase {
            _ if !self.is_forced() => None,
            Phase::Opening(taken) => Some(self.thinking().open[taken]),
            Phase::Thinking(_, taken) => Some(self.thinking().close[taken]),
            _ => None,
        }
    }

    /// The opener, where what would follow it is spent already.
    fn spent_opener(&self) -> Option<TokenId> {
        let thinking = self.prelude.thinking.as_ref()?;
        let is_after = matches!(self.phase, Phase::Free | Phase::Searching);
        let is_spent = is_after && thinking.budget.is_some();
        (is_spent && thinking.open.len() == 1).then(|| thinking.open[0])
    }

    /// Whether line ends may come that belong to nothing.
    fn takes_blanks(&self) -> bool {
        let around_thoughts = self.prelude.thinking.is_some() && self.window.is_empty();
        around_thoughts && self.blanks < MAX_BLANKS && self.phase == Phase::Grammar
    }

    fn is_blank(trie: &TokTrie, token: TokenId) -> bool {
        matches!(trie.token(token), b"\n" | b"\n\n")
    }

    /// Changes the grammar's mask into that of this place. `grammar`: works it out.
    pub fn mask<E>(
        &self,
        trie: &TokTrie,
        grammar: impl FnOnce() -> Result<SimpleVob, E>,
    ) -> Result<SimpleVob, E> {
        if let Some(token) = self.forced() {
            let mut mask = trie.alloc_token_set();
            mask.allow_token(token);
            return Ok(mask);
        }
        let next = match self.phase {
            Phase::Opening(_) => self.prelude.after_thinking(),
            phase => phase,
        };
        let mut mask = match next {
            Phase::Grammar => grammar()?,
            _ => {
                let mut all = trie.alloc_token_set();
                all.set_all(true);
                all
            }
        };
        if next != Phase::Grammar && !self.may_end() {
            mask.sub(&trie.eos_token_set());
        }
        if let Some(opener) = self.spent_opener() {
            mask.disallow_token(opener);
        }
        if matches!(self.phase, Phase::Opening(_)) {
            mask.allow_token(self.thinking().open[0]);
        }
        if next == Phase::Grammar && self.takes_blanks() {
            for token in
                trie.greedy_tokenize(b"\n\n").into_iter().chain(trie.greedy_tokenize(b"\n"))
            {
                if Self::is_blank(trie, token) {
                    mask.allow_token(token);
                }
            }
        }
        Ok(mask)
    }

    /// Whether the token belongs to the opener. One of several tokens may begin as the grammar does:
    /// then it is the grammar's.
    fn opens(
        &self,
        token: TokenId,
        allowed: &mut impl FnMut() -> TextResult<bool>,
    ) -> TextResult<bool> {
        let Phase::Opening(taken) = self.phase else { return Ok(false) };
        let open = &self.thinking().open;
        if token != open[taken] {
            return Ok(false);
        }
        let may_be_both = taken == 0 && open.len() > 1;
        Ok(!may_be_both || self.prelude.after_thinking() != Phase::Grammar || !allowed()?)
    }

    /// Takes a token in. `allowed`: whether the grammar takes it now.
    pub fn take(
        &mut self,
        trie: &TokTrie,
        token: TokenId,
        mut allowed: impl FnMut() -> TextResult<bool>,
    ) -> TextResult<Step> {
        if let Some(forced) = self.forced() {
            if token != forced {
                return Ok(Step::Refused);
            }
        }
        if self.spent_opener() == Some(token) {
            return Ok(Step::Refused);
        }
        let opens = self.opens(token, &mut allowed)?;
        match self.phase {
            Phase::Opening(taken) if opens => {
                let is_open = taken + 1 == self.thinking().open.len();
                self.phase =
                    if is_open { Phase::Thinking(0, 0) } else { Phase::Opening(taken + 1) };
                self.blanks = 0;
                Ok(Step::Taken)
            }
            Phase::Opening(taken) => {
                let next = self.prelude.after_thinking();
                for i in 0..taken {
                    self.window.extend_from_slice(bytes_of(trie, self.thinking().open[i]));
                }
                let blank = taken == 0 && Self::is_blank(trie, token) && self.blanks < MAX_BLANKS;
                if next != Phase::Grammar && blank {
                    self.blanks += 1;
                    return Ok(Step::Taken);
                }
                self.phase = next;
                self.take_after_thinking(trie, token)
            }
            Phase::Thinking(tokens, taken) => {
                if trie.eos_token_set().is_allowed(token) {
                    return Ok(if self.may_end() { Step::Taken } else { Step::Refused });
                }
                let taken = if self.forced().is_some() { taken + 1 } else { 0 };
                self.window.extend_from_slice(bytes_of(trie, token));
                let thinking = self.thinking();
                let is_closed = taken == thinking.close.len()
                    || find(&self.window, &thinking.close_text).is_some();
                let keep = thinking.close_text.len();
                self.phase = Phase::Thinking(tokens + 1, taken);
                if is_closed {
                    self.window.clear();
                    self.phase = self.prelude.after_thinking();
                } else if self.window.len() > keep {
                    self.window.drain(..self.window.len() - keep);
                }
                Ok(Step::Taken)
            }
            Phase::Grammar if self.takes_blanks() && Self::is_blank(trie, token) && !allowed()? => {
                self.blanks += 1;
                Ok(Step::Taken)
            }
            _ => self.take_after_thinking(trie, token),
        }
    }

    fn take_after_thinking(&mut self, trie: &TokTrie, token: TokenId) -> TextResult<Step> {
        match self.phase {
            Phase::Searching => {
                self.window.extend_from_slice(bytes_of(trie, token));
                for Trigger { text, is_kept } in &self.prelude.triggers {
                    if let Some(at) = find(&self.window, text) {
                        let begin = if *is_kept { at } else { at + text.len() };
                        let rest = self.window[begin..].to_vec();
                        self.window.clear();
                        return Ok(Step::Begins(rest));
                    }
                }
                let lengths = self.prelude.triggers.iter().map(|trigger| trigger.text.len());
                let keep = lengths.max().unwrap_or(0);
                if self.window.len() > keep {
                    self.window.drain(..self.window.len() - keep);
                }
                Ok(Step::Taken)
            }
            Phase::Grammar => {
                self.blanks = MAX_BLANKS;
                Ok(Step::ToGrammar)
            }
            _ => Ok(Step::Taken),
        }
    }

    /// After Begins: the grammar has taken the bytes.
    pub fn begin_grammar(&mut self) {
        self.blanks = MAX_BLANKS;
        self.phase = Phase::Grammar;
    }

    /// The grammar is complete. True: it will begin anew.
    pub fn end_grammar(&mut self) -> bool {
        if !self.prelude.repeats {
            return false;
        }
        self.phase = Phase::Searching;
        true
    }
}
