//! Constrained generation: which tokens may follow, from llguidance.

use crate::allowance::within;
use crate::big_stack::{bracket_depth, on_big_stack};
use crate::budget::Cancellation;
use crate::cpu_watch::CpuWatch;
use crate::error::{cut, fail, utf8, TextError, TextResult};
use crate::grammar_source::{parse_grammar, Whitespace};
use crate::meter::{request_limit, Meter};
use crate::prelude::{Place, Prelude, Step};
use crate::schema_overlaps::placed;
use crate::tokenizer::TextTokenizer;
use llguidance::api::{GrammarInit, StopReason, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::{Grammar, ParserStats};
use llguidance::{CancellationHandle, ParserFactory, TokenParser};
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};

/// Limits on what a client may send, and on what compiling it may take. Ordinary schemas take some
/// milliseconds and a few MiB.
const COMPILE_BYTES: usize = 64 << 20;
const COMPILE_CPU: Duration = Duration::from_secs(1);
const MAX_NESTING: usize = 256;
const MAX_ERROR_BYTES: usize = 1_000;
const MAX_SOURCE_BYTES: usize = 1 << 20;
const MAX_RULES_BYTES: usize = 256 << 10; // of schemas and Lark grammars, which become rules

/// Of the automaton that a request's masks build up: one or two kB each. An object of 50 properties
/// has some hundreds after 300 tokens.
const MAX_LEXER_STATES: usize = 20_000;

/// What is held beside the tables that the library measures itself, in bytes: of an Earley item and a
/// row (their lists may be twice as long as they are full), a token taken in, a state with its
/// scratch lists, a lexer state's sets, a symbol and a lexeme of the rules; and how often the source
/// is kept. Measured (`MemoryIsCounted` in grammar_limits_test.cpp).
const ITEM_BYTES: usize = 2 * 8;
const ROW_BYTES: usize = 2 * 120;
const TAKEN_BYTES: usize = 64;
const STATE_BYTES: usize = 16 << 10;
const MASKS_OF_STATE: usize = 3;
const STATE_SET_BYTES: usize = 200;
const SYMBOL_BYTES: usize = 600;
const LEXEME_BYTES: usize = 700;
const SOURCE_COPIES: usize = 6;

/// CPU time for one mask, or for taking in one token.
const MASK_CPU: Duration = Duration::from_millis(50);

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
    watch: CpuWatch,
    vocab_size: usize,
    eos: Vec<TokenId>,
    whitespace: Whitespace,
}

pub fn new_factory(
    tokenizer: &TextTokenizer,
    eos_ids: &[i32],
    whitespace: Whitespace,
) -> TextResult<Factory> {
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
    Factory::new(&words, eos, whitespace)
}

impl Factory {
    /// `words[i]`: the bytes of token i.
    pub fn new(
        words: &[Vec<u8>],
        eos: Vec<TokenId>,
        whitespace: Whitespace,
    ) -> TextResult<Factory> {
        let info = TokRxInfo::new(words.len() as u32, eos[0]);
        let env: TokEnv =
            Arc::new(VocabEnv { trie: TokTrie::from(&info, words).with_eos_tokens(&eos) });
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut parsers = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(text_error)?;
        parsers.quiet();
        // Error texts reach clients: no parser dumps in them.
        parsers.limits_mut().verbose_errors = false;
        parsers.limits_mut().max_lexer_states = MAX_LEXER_STATES;
        let watch = CpuWatch::start().map_err(|e| TextError(format!("cannot watch: {e}")))?;
        Ok(Factory { parsers, watch, vocab_size: words.len(), eos, whitespace })
    }

    /// `kind`: json_schema, json_object, regex, lark, gbnf, structural_tag or choice (a JSON array of strings). `name`:
    /// what errors call the source.
    #[cfg(test)]
    pub fn compile(&self, kind: &str, source: &[u8], name: &[u8]) -> TextResult<GrammarState> {
        self.compile_after(kind, source, name, b"", Cancellation::NEVER)
    }

    /// `prelude`: what comes before it (Prelude::parse).
    pub fn compile_after(
        &self,
        kind: &str,
        source: &[u8],
        name: &[u8],
        prelude: &[u8],
        cancellation: Cancellation,
    ) -> TextResult<GrammarState> {
        let source = utf8(source, "the grammar")?;
        let prelude = Prelude::parse(utf8(prelude, "what comes before the grammar")?)?;
        let name = utf8(name, "the grammar's name")?;
        let has_rules =
            matches!(kind, "json_schema" | "lark" | "gbnf" | "structural_tag" | "calls");
        let limit = if has_rules { MAX_RULES_BYTES } else { MAX_SOURCE_BYTES };
        if source.len() > limit {
            return fail(format!("the grammar is longer than {limit} bytes"));
        }
        if bracket_depth(source) > MAX_NESTING {
            return fail(format!("the grammar is nested deeper than {MAX_NESTING}"));
        }
        let compile = || {
            let special = |text: &str| self.special_prefix(text);
            let grammar = parse_grammar(kind, source, name, self.whitespace, &special)?;
            let created = self.create_parser(grammar);
            let (mut parser, rules) = created.map_err(|e| match kind {
                "json_schema" => of_source(kind, placed(e, source, name)),
                _ => of_source(kind, e),
            })?;
            parser.start_without_prompt();
            Ok((parser, rules))
        };
        let (mut parser, rules) = on_big_stack("grammar", || {
            within("the grammar", COMPILE_BYTES, COMPILE_CPU, cancellation, compile)
        })?;
        let cancel = parser.enable_cancellation();
        let meter = Arc::new(Meter::new(rules + SOURCE_COPIES * source.len()));
        let place = Place::new(Arc::new(prelude));
        let pristine = place.begins_later().then(|| parser.clone());
        let mut state = GrammarState {
            parser,
            pristine,
            place,
            cancel,
            meter,
            item_bytes: 0,
            ahead_bytes: 0,
            forked: 0,
        };
        state.measure(self.vocab_size);
        Ok(state)
    }

    /// The longest special token that the text begins with, and its bytes. No other token spells it.
    fn special_prefix(&self, text: &str) -> Option<(TokenId, usize)> {
        let trie = self.parsers.tok_env().tok_trie();
        let mut node = trie.child_at_byte(trie.root(), TokTrie::SPECIAL_TOKEN_MARKER)?;
        let mut longest = None;
        for (i, byte) in text.bytes().enumerate() {
            match trie.child_at_byte(node, byte) {
                Some(child) => node = child,
                None => break,
            }
            if let Some(id) = node.token_id() {
                longest = Some((id, i + 1));
            }
        }
        longest
    }

    /// The library follows the first byte of each lexeme without a limit, which takes minutes and
    /// gigabytes for some intersections and complements. So this does the same within the limit
    /// first.
    fn create_parser(&self, grammar: TopLevelGrammar) -> TextResult<(TokenParser, usize)> {
        let mut limits = self.parsers.limits().clone();
        let env = Some(self.parsers.tok_env().clone());
        let (grammar, lexer) = GrammarInit::Serialized(grammar)
            .to_internal(env, limits.clone())
            .map_err(text_error)?;
        let mut with_slices = lexer.clone();
        with_slices.add_extra_lexemes(&self.parsers.extra_lexemes());
        let mut automaton = with_slices.to_regex_vec(&mut limits).map_err(text_error)?;
        automaton.set_fuel(limits.initial_lexer_fuel);
        let start = automaton.initial_state(&with_slices.all_lexemes());
        for byte in 0..=u8::MAX {
            automaton.transition(start, byte);
        }
        if automaton.has_error() {
            return fail("the regular expressions are too complex");
        }
        let bytes = bytes_of_rules(&grammar, &with_slices);
        drop((automaton, with_slices));
        let init = GrammarInit::Internal(grammar, lexer);
        let parser = self.parsers.create_parser_from_init_default(init).map_err(text_error)?;
        Ok((parser, bytes))
    }

    pub fn fill_mask(&self, state: &mut GrammarState, words: &mut [u32]) -> TextResult<()> {
        words.fill(0);
        let mask = self.metered(state, GrammarState::mask)?;
        let mask = mask.as_slice();
        let used = self.vocab_size.div_ceil(32);
        if words.len() < used {
            return fail(format!("the mask holds {} words, {used} are needed", words.len()));
        }
        words[..used].copy_from_slice(&mask[..used]);
        if !self.vocab_size.is_multiple_of(32) {
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
            return Ok(self.eos.contains(&token));
        }
        state.meter.tokens.fetch_add(1, Ordering::Relaxed);
        self.metered(state, |state| state.take(token))
    }

    /// Runs one operation within what the request has left, and adds what it took.
    fn metered<T>(
        &self,
        state: &mut GrammarState,
        operation: impl FnOnce(&mut GrammarState) -> TextResult<T>,
    ) -> TextResult<T> {
        if let Some(reason) = state.meter.failure.get() {
            return fail(reason);
        }
        let left = state.meter.left();
        if left.is_zero() {
            return fail(request_limit());
        }
        let cancel = state.cancel.clone();
        let before = state.parser.parser_stats().clone();
        let (result, spent) = self.watch.run(left.min(MASK_CPU), cancel, || operation(state));
        state.meter.add(spent);
        state.count_ahead_since(&before);
        if result.is_err() || state.cancel.is_cancelled() {
            state.keep_items_since(&before); // what was cut short is not taken back
        }
        state.measure(self.vocab_size);
        let reason = if spent >= MASK_CPU {
            format!(
                "the grammar takes too long: one mask took more than {} ms of CPU time",
                MASK_CPU.as_millis()
            )
        } else if state.cancel.is_cancelled() {
            request_limit()
        } else {
            match result {
                Ok(value) => return Ok(value),
                Err(error) => error.0,
            }
        };
        fail(state.meter.failure.get_or_init(|| reason))
    }
}

/// What a compiled grammar holds beside its tables.
fn bytes_of_rules(grammar: &Grammar, lexer: &LexerSpec) -> usize {
    let (symbols, lexemes, nodes) =
        (grammar.num_symbols(), lexer.lexemes.len(), lexer.regex_builder.exprset().num_bytes());
    symbols * SYMBOL_BYTES + lexemes * LEXEME_BYTES + 3 * nodes
}

/// Errors quote the grammar that was compiled, which for some kinds is not what the client wrote.
fn of_source(kind: &str, error: TextError) -> TextError {
    let is_own = matches!(kind, "gbnf" | "structural_tag" | "calls" | "choice");
    let first = error.0.lines().next().unwrap_or_default();
    let text = if is_own { first } else { error.0.as_str() };
    TextError(cut(text, MAX_ERROR_BYTES))
}

fn text_error(error: impl Display) -> TextError {
    let text = error.to_string();
    // A limit of the library that is an assertion. Its text has a backtrace.
    if text.starts_with("panic: ") {
        return TextError("the grammar is too large".into());
    }
    // A name of the library's, alone.
    if text.ends_with("NoExtensionBias") {
        return TextError("no answer fits the grammar".into());
    }
    TextError(text)
}

pub struct GrammarState {
    parser: TokenParser,
    /// The grammar at its beginning, if it begins in the middle of an answer.
    pristine: Option<TokenParser>,
    place: Place,
    cancel: CancellationHandle,
    meter: Arc<Meter>,
    item_bytes: usize,  // of the tokens so far, in this state
    ahead_bytes: usize, // of the lists' room for the rows that a mask looks ahead
    forked: usize,      // what this state has added to the meter's
}

impl GrammarState {
    fn mask(&mut self) -> TextResult<SimpleVob> {
        let env = self.parser.token_env.clone();
        let parser = &mut self.parser;
        self.place.mask(env.tok_trie(), || {
            if parser.stop_reason() == StopReason::NotStopped {
                return mask_of(parser);
            }
            Ok(env.tok_trie().eos_token_set())
        })
    }

    fn take(&mut self, token: TokenId) -> TextResult<bool> {
        if !self.place.has_prelude() {
            return self.take_in_grammar(token);
        }
        let env = self.parser.token_env.clone();
        let before = self.place.clone();
        let parser = &mut self.parser;
        let allowed = || allows(parser, token);
        let taken = match self.place.take(env.tok_trie(), token, allowed)? {
            Step::Taken => true,
            Step::Refused => false,
            Step::ToGrammar => self.take_in_grammar(token)?,
            Step::Begins(rest) => {
                self.begin(&env.tok_trie().greedy_tokenize(&rest))?;
                true
            }
        };
        if !taken {
            self.place = before;
        } else if self.is_stopped() && self.place.end_grammar() {
            self.begin_anew();
        }
        Ok(taken)
    }

    /// The grammar begins in the middle of a token, if it allows the rest of that.
    fn begin(&mut self, rest: &[TokenId]) -> TextResult<()> {
        for &token in rest {
            if !self.take_in_grammar(token)? {
                self.begin_anew();
                return Ok(());
            }
        }
        self.place.begin_grammar();
        Ok(())
    }

    fn begin_anew(&mut self) {
        if let Some(pristine) = &self.pristine {
            self.parser = pristine.clone();
        }
    }

    fn take_in_grammar(&mut self, token: TokenId) -> TextResult<bool> {
        if !allows(&mut self.parser, token)? {
            return Ok(false);
        }
        // What the mask and the check above made is gone again; this stays.
        let before = self.parser.parser_stats().clone();
        self.parser.consume_token(token).map_err(text_error)?;
        self.parser.check_stop().map_err(text_error)?;
        self.item_bytes += TAKEN_BYTES;
        self.keep_items_since(&before);
        Ok(true)
    }

    fn keep_items_since(&mut self, before: &ParserStats) {
        let made = self.parser.parser_stats().delta(before);
        self.item_bytes += made.all_items * ITEM_BYTES + made.rows * ROW_BYTES;
    }

    /// A mask looks as many rows ahead as a token has bytes. They are gone afterwards, but the lists
    /// keep their room. Rows grow as they follow each other: one is taken for twice their mean.
    fn count_ahead_since(&mut self, before: &ParserStats) {
        let made = self.parser.parser_stats().delta(before);
        let rows = made.rows.min(self.parser.token_env.tok_trie().max_token_len());
        let row_items = 2 * made.all_items.div_ceil(made.rows.max(1));
        let items = made.all_items.min(rows * row_items);
        self.ahead_bytes = self.ahead_bytes.max(items * ITEM_BYTES);
    }

    /// The grammar is complete and nothing but eos may follow.
    pub fn is_stopped(&self) -> bool {
        let ended = self.place.in_grammar() && self.parser.stop_reason() != StopReason::NotStopped;
        self.meter.failure.get().is_some() || ended
    }

    /// eos is among the allowed tokens.
    pub fn is_accepting(&mut self) -> bool {
        if !self.place.in_grammar() {
            return self.meter.failure.get().is_some() || self.place.may_end();
        }
        self.is_stopped() || self.parser.is_accepting()
    }

    /// What the forks of one state share: the tables that their masks build up, one at a time, the
    /// CPU time that they may take, and the error that ends them all.
    pub fn fork(&self) -> GrammarState {
        let (parser, cancel) = (self.parser.clone(), self.cancel.clone());
        let meter = self.meter.clone();
        meter.forks.fetch_add(self.forked, Ordering::Relaxed);
        GrammarState {
            parser,
            pristine: self.pristine.clone(),
            place: self.place.clone(),
            cancel,
            meter,
            item_bytes: self.item_bytes,
            ahead_bytes: self.ahead_bytes,
            forked: self.forked,
        }
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    fn measure(&mut self, vocab_size: usize) {
        let states = 1 + usize::from(self.pristine.is_some());
        let items = self.item_bytes + self.ahead_bytes;
        let own = states * (STATE_BYTES + MASKS_OF_STATE * vocab_size / 8) + items;
        self.meter.forks.fetch_add(own, Ordering::Relaxed);
        self.meter.forks.fetch_sub(self.forked, Ordering::Relaxed);
        self.forked = own;
        let tables = self.parser.parser.lexer_stats();
        // The sets of lexemes that belong to a state are not in `num_bytes`.
        let of_states = tables.num_states * (STATE_SET_BYTES + tables.num_regexps / 8);
        self.meter.tables.store(tables.num_bytes * 3 / 2 + of_states, Ordering::Relaxed);
    }
}

// A grammar may name the token that ends answers, also by a range of ids. Such a token would end the
// answer in the middle of the grammar, so it counts only where the answer may end.

fn mask_of(parser: &mut TokenParser) -> TextResult<SimpleVob> {
    let mut mask = parser.compute_mask().map_err(text_error)?;
    let env = parser.token_env.clone();
    let eos = env.tok_trie().eos_tokens();
    if eos.iter().any(|&id| mask.is_allowed(id)) && !parser.is_accepting() {
        eos.iter().for_each(|&id| mask.disallow_token(id));
    }
    Ok(mask)
}

fn allows(parser: &mut TokenParser, token: TokenId) -> TextResult<bool> {
    let ends = parser.token_env.tok_trie().eos_tokens().contains(&token);
    Ok((!ends || parser.is_accepting()) && parser.validate_token(token).map_err(text_error)?)
}

impl Drop for GrammarState {
    fn drop(&mut self) {
        self.meter.forks.fetch_sub(self.forked, Ordering::Relaxed);
    }
}
