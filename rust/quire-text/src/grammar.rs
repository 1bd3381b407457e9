//! Constrained generation: which tokens may follow, from llguidance.

use crate::big_stack::{bracket_depth, on_big_stack};
use crate::error::{fail, utf8, TextError, TextResult};
use crate::tokenizer::TextTokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value as Json;
use std::sync::Arc;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Default limits on what a client may send (a schema, a regex, a grammar).
const MAX_NESTING: usize = 256;
const MAX_SOURCE_BYTES: usize = 1 << 20;
const MAX_CHOICES: usize = 10_000;

/// The vocabulary as llguidance wants it.
struct VocabEnv {
    trie: TokTrie,
}

impl TokenizerEnv for VocabEnv {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(s)
    }
    /// Every spelling of an allowed text is allowed: the model chooses how to split forced text,
    /// so its distribution is only cut, never steered to our idea of a canonical split.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

pub struct Factory {
    parsers: ParserFactory,
    vocab_size: usize,
    eos: Vec<TokenId>,
}

pub fn new_factory(tokenizer: &TextTokenizer, eos_ids: &[i32]) -> TextResult<Factory> {
    let vocab_size = tokenizer.vocab_size();
    let in_vocab = |id: &&i32| **id >= 0 && (**id as usize) < vocab_size;
    let eos: Vec<TokenId> = eos_ids.iter().filter(in_vocab).map(|&id| id as TokenId).collect();
    if eos.is_empty() {
        return fail("grammars need an end-of-sequence token that is in the vocabulary");
    }
    let words: Vec<Vec<u8>> = (0..vocab_size)
        .map(|id| {
            // The marker keeps control tokens out of every text: a grammar can only reach them by
            // name. An eos inside a string would end the answer in the middle of it.
            if tokenizer.is_special(id) || eos.contains(&(id as TokenId)) {
                let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                word.extend(tokenizer.token(id).unwrap_or_default().bytes());
                word
            } else {
                tokenizer.token_bytes(id)
            }
        })
        .collect();
    let info = TokRxInfo::new(vocab_size as u32, eos[0]);
    let env: TokEnv =
        Arc::new(VocabEnv { trie: TokTrie::from(&info, &words).with_eos_tokens(&eos) });
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    let mut parsers = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
        .map_err(|e| TextError(e.to_string()))?;
    parsers.quiet();
    // Error texts reach clients: no parser dumps in them.
    parsers.limits_mut().verbose_errors = false;
    Ok(Factory { parsers, vocab_size, eos })
}

impl Factory {
    /// `kind`: json_schema, json_object, regex, lark or choice (a JSON array of strings).
    pub fn compile(&self, kind: &str, source: &[u8]) -> TextResult<GrammarState> {
        let source = utf8(source, "the grammar")?;
        if source.len() > MAX_SOURCE_BYTES {
            return fail(format!("the grammar is longer than {MAX_SOURCE_BYTES} bytes"));
        }
        if bracket_depth(source) > MAX_NESTING {
            return fail(format!("the grammar is nested deeper than {MAX_NESTING}"));
        }
        let matcher = on_big_stack("grammar", || {
            let grammar = parse_grammar(kind, source)?;
            let parser = self.parsers.create_parser(grammar);
            let matcher = Matcher::new(parser);
            match matcher.get_error() {
                Some(reason) => fail(reason),
                None => Ok(matcher),
            }
        })?;
        Ok(GrammarState { matcher, eos_after_stop: 0 })
    }

    pub fn fill_mask(&self, state: &mut GrammarState, words: &mut [u32]) -> TextResult<()> {
        words.fill(0);
        let mask = state.matcher.compute_mask_or_eos().map_err(|e| TextError(e.to_string()))?;
        let mask = mask.as_slice();
        let used = self.vocab_size.div_ceil(32);
        if words.len() < used {
            return fail(format!("the mask holds {} words, {used} are needed", words.len()));
        }
        words[..used].copy_from_slice(&mask[..used]);
        if self.vocab_size % 32 != 0 {
            words[used - 1] &= (1u32 << (self.vocab_size % 32)) - 1;
        }
        Ok(())
    }

    /// False, with the state unchanged, where the grammar does not allow `token`.
    pub fn accept(&self, state: &mut GrammarState, token: i32) -> TextResult<bool> {
        if token < 0 || token as usize >= self.vocab_size {
            return Ok(false);
        }
        let token = token as TokenId;
        if state.is_stopped() {
            let is_eos = self.eos.contains(&token);
            state.eos_after_stop += is_eos as usize;
            return Ok(is_eos);
        }
        let taken = state.matcher.try_consume_tokens(&[token]);
        taken.map(|count| count == 1).map_err(|e| TextError(e.to_string()))
    }
}

fn parse_grammar(kind: &str, source: &str) -> TextResult<TopLevelGrammar> {
    match kind {
        "json_object" => {
            Ok(TopLevelGrammar::from_json_schema(serde_json::json!({"type": "object"})))
        }
        "json_schema" => parse_json(source).map(TopLevelGrammar::from_json_schema),
        "regex" => Ok(TopLevelGrammar::from_regex(source)),
        "lark" => Ok(TopLevelGrammar::from_lark(source.to_string())),
        "choice" => choice_grammar(source),
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
    Ok(TopLevelGrammar::from_lark(format!("start: {}", quoted.join(" | "))))
}

pub struct GrammarState {
    matcher: Matcher,
    /// The matcher takes no token once it has stopped; an eos taken then is only counted.
    eos_after_stop: usize,
}

impl GrammarState {
    /// The grammar is complete and nothing but eos may follow.
    pub fn is_stopped(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// eos is among the allowed tokens.
    pub fn is_accepting(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }

    pub fn rollback(&mut self, tokens: usize) -> TextResult<()> {
        let from_end = tokens.min(self.eos_after_stop);
        self.matcher.rollback(tokens - from_end).map_err(|e| TextError(e.to_string()))?;
        self.eos_after_stop -= from_end;
        Ok(())
    }

    pub fn fork(&self) -> GrammarState {
        GrammarState { matcher: self.matcher.deep_clone(), eos_after_stop: self.eos_after_stop }
    }
}
