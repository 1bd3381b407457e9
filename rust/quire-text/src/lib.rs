//! Tokenizers, chat templates and grammars behind Quire's `src/text`. C++ sees only what the bridge
//! below declares; every bridged body is guarded so that neither a panic nor a deep recursion can
//! take the server down.

#![feature(alloc_error_hook)]

mod allowance;
mod big_stack;
mod budget;
mod cpu_watch;
mod cuts;
mod error;
#[cfg(test)]
mod error_test;
mod gbnf;
mod gbnf_greed;
mod gbnf_lark;
#[cfg(test)]
mod gbnf_test;
mod grammar;
mod grammar_source;
#[cfg(test)]
mod grammar_test;
mod meter;
mod model_files;
mod pieces;
mod prelude;
mod schema_divisors;
mod schema_keywords;
mod schema_numbers;
mod schema_overlaps;
mod schema_shapes;
mod structural_tag;
#[cfg(test)]
mod structural_tag_test;
mod tekken;
mod template;
mod tokenizer;
mod tokenizer_limits;
mod working_memory;

use budget::{Budget, Cancellation};
use error::{guard, utf8, TextError, TextResult};
use grammar::{Factory, GrammarState};
use grammar_source::Whitespace;
use model_files::ModelFiles;
use std::path::Path;
use template::{ChatTemplates, Input, Limits, Now};
use tokenizer::{Keep, TextTokenizer};
use working_memory::WorkingMemory;

#[global_allocator]
static ALLOCATOR: allowance::Allocator = allowance::Allocator;

#[cxx::bridge(namespace = "quire::text::rs")]
mod ffi {
    /// Everything the C++ side keeps about the vocabulary. Token `i` owns the bytes from
    /// `ends[i - 1]` to `ends[i]` of each blob.
    struct VocabTables {
        rule: u8,
        strip_left: u32,
        strip_char: String,
        tokens: Vec<u8>,
        token_ends: Vec<u64>,
        pieces: Vec<u8>,
        piece_ends: Vec<u64>,
        flags: Vec<u8>,
        first_ids: Vec<i32>,
        first_pieces: Vec<u8>,
        first_ends: Vec<u64>,
    }

    struct Clock {
        year: i32,
        month: i32,
        day: i32,
        hour: i32,
        minute: i32,
        second: i32,
    }

    /// A folder's name; or, if `are_made`, the name of the file that the two texts were made of.
    struct ModelFiles<'a> {
        origin: &'a [u8],
        are_made: bool,
        tokenizer_json: &'a [u8],
        tokenizer_config_json: &'a [u8],
    }

    /// `budget` is the address of a `quire::WorkBudget`, `memory` that of a
    /// `quire::text::WorkingMemory`, or 0.
    struct EncodeOptions {
        add_special: bool,
        keep_first: u64,
        keep_last: u64,
        piece_bytes: u64,
        budget: usize,
        memory: usize,
    }

    struct RenderInput<'a> {
        messages: &'a [u8],
        tools: &'a [u8],
        documents: &'a [u8],
        kwargs: &'a [u8],
        add_generation_prompt: bool,
        continue_final_message: bool,
        now: Clock,
        max_work: u64,
        max_output_bytes: u64,
        max_fuel: u64,
        max_milliseconds: i64,
        budget: usize,
    }

    extern "Rust" {
        type TextTokenizer;
        fn load_tokenizer(files: &ModelFiles) -> Result<Box<TextTokenizer>>;
        fn tables(tokenizer: &TextTokenizer) -> Result<VocabTables>;
        unsafe fn encode(t: &TextTokenizer, text: &[u8], o: EncodeOptions) -> Result<Vec<i32>>;
        fn decode(tokenizer: &TextTokenizer, ids: &[i32], skip_special: bool) -> Result<String>;
        fn token_to_id(tokenizer: &TextTokenizer, token: &[u8]) -> i32;
        fn special_token(tokenizer: &TextTokenizer, name: &[u8]) -> Result<String>;

        type ChatTemplates;
        type FoundTemplates;
        fn find_templates(files: &ModelFiles) -> Result<Box<FoundTemplates>>;
        fn has_templates(found: &FoundTemplates) -> bool;
        fn take_templates(found: Box<FoundTemplates>) -> Result<Box<ChatTemplates>>;
        fn template_from_source(source: &[u8], tokens: &[u8]) -> Result<Box<ChatTemplates>>;
        fn template_source(templates: &ChatTemplates) -> String;
        fn template_reads(templates: &ChatTemplates, variable: &[u8]) -> bool;
        unsafe fn render(templates: &ChatTemplates, input: &RenderInput) -> Result<String>;

        type Factory;
        type GrammarState;
        fn new_grammar_factory(
            tokenizer: &TextTokenizer,
            eos: &[i32],
            flexible_whitespace: bool,
        ) -> Result<Box<Factory>>;
        unsafe fn compile(
            f: &Factory,
            kind: &str,
            source: &[u8],
            name: &[u8],
            prelude: &[u8],
            budget: usize,
        ) -> Result<Box<GrammarState>>;
        fn fill_mask(f: &Factory, state: &mut GrammarState, words: &mut [u32]) -> Result<()>;
        fn accept(factory: &Factory, state: &mut GrammarState, token: i32) -> Result<bool>;
        fn is_stopped(state: &GrammarState) -> Result<bool>;
        fn is_accepting(state: &mut GrammarState) -> Result<bool>;
        fn fork(state: &GrammarState) -> Result<Box<GrammarState>>;
        fn family(state: &GrammarState) -> usize;
        fn nanoseconds_spent(state: &GrammarState) -> u64;
        fn bytes_held(state: &GrammarState) -> usize;
    }
}

/// Calls `load` with the files in this library's words.
fn with_files<T>(
    files: &ffi::ModelFiles,
    load: impl FnOnce(ModelFiles) -> TextResult<T>,
) -> TextResult<T> {
    let origin = utf8(files.origin, "the model's name")?;
    if !files.are_made {
        return load(ModelFiles::Folder(Path::new(origin)));
    }
    let texts = [
        ("tokenizer.json", files.tokenizer_json),
        ("tokenizer_config.json", files.tokenizer_config_json),
    ];
    load(ModelFiles::Made { origin, files: &texts })
}

fn load_tokenizer(files: &ffi::ModelFiles) -> TextResult<Box<TextTokenizer>> {
    with_files(files, |from| {
        // The crate panics on some broken files; the guard's message then names this one.
        guard(&from.name("tokenizer.json"), || tokenizer::load(from)).map(Box::new)
    })
}

const FLAG_PRESENT: u8 = 1;
const FLAG_SPECIAL: u8 = 2;
const FLAG_BYTE: u8 = 4;

fn tables(tokenizer: &TextTokenizer) -> TextResult<ffi::VocabTables> {
    guard("tokenizer", || {
        let plan = tokenizer.plan();
        let mut t = ffi::VocabTables {
            rule: plan.rule as u8,
            strip_left: plan.strip_left,
            strip_char: plan.strip_char.to_string(),
            tokens: vec![],
            token_ends: vec![],
            pieces: vec![],
            piece_ends: vec![],
            flags: vec![],
            first_ids: vec![],
            first_pieces: vec![],
            first_ends: vec![],
        };
        for id in 0..tokenizer.vocab_size() {
            let mut flags = 0;
            if let Some(token) = tokenizer.token(id) {
                flags |= FLAG_PRESENT;
                flags |= if tokenizer.is_special(id) { FLAG_SPECIAL } else { 0 };
                flags |= if plan.is_byte_token(token) { FLAG_BYTE } else { 0 };
                t.tokens.extend(token.bytes());
                t.pieces.extend(tokenizer.token_bytes(id));
                if let Some(first) = plan.first_piece(token) {
                    t.first_ids.push(id as i32);
                    t.first_pieces.extend(first);
                    t.first_ends.push(t.first_pieces.len() as u64);
                }
            }
            t.flags.push(flags);
            t.token_ends.push(t.tokens.len() as u64);
            t.piece_ends.push(t.pieces.len() as u64);
        }
        Ok(t)
    })
}

/// # Safety
/// `options.budget` and `options.memory` are 0 or the addresses of living objects.
unsafe fn encode(
    tokenizer: &TextTokenizer,
    text: &[u8],
    options: ffi::EncodeOptions,
) -> TextResult<Vec<i32>> {
    let keep = match (options.keep_first, options.keep_last) {
        (u64::MAX, u64::MAX) => Keep::All,
        (first, u64::MAX) => Keep::First(first as usize),
        (_, last) => Keep::Last(last as usize),
    };
    // SAFETY: the caller's promise.
    let budget = unsafe { Budget::from_address(options.budget) };
    // SAFETY: the caller's promise.
    let memory = unsafe { WorkingMemory::from_address(options.memory) };
    let (special, piece_bytes) = (options.add_special, options.piece_bytes as usize);
    guard("tokenizer", || tokenizer.encode(text, special, keep, piece_bytes, budget, memory))
}

fn decode(tokenizer: &TextTokenizer, ids: &[i32], skip_special: bool) -> TextResult<String> {
    guard("tokenizer", || tokenizer.decode(ids, skip_special))
}

fn token_to_id(tokenizer: &TextTokenizer, token: &[u8]) -> i32 {
    guard("tokenizer", || Ok(tokenizer.token_to_id(token))).unwrap_or(-1)
}

/// The text of `bos_token`, `eos_token` and so on; an error where the model has none.
fn special_token(tokenizer: &TextTokenizer, name: &[u8]) -> TextResult<String> {
    let name = utf8(name, "the name")?;
    let text = tokenizer.special_token(name).map(str::to_string);
    text.ok_or_else(|| TextError(format!("no {name}")))
}

/// What a model directory has; the bridge knows no Option.
pub struct FoundTemplates(Option<ChatTemplates>);

fn find_templates(files: &ffi::ModelFiles) -> TextResult<Box<FoundTemplates>> {
    with_files(files, |from| {
        guard("chat template", || template::load(from)).map(|found| Box::new(FoundTemplates(found)))
    })
}

fn has_templates(found: &FoundTemplates) -> bool {
    found.0.is_some()
}

#[allow(clippy::boxed_local)] // as the bridge passes it
fn take_templates(found: Box<FoundTemplates>) -> TextResult<Box<ChatTemplates>> {
    found.0.map(Box::new).ok_or_else(|| TextError("no chat template".into()))
}

fn template_from_source(source: &[u8], tokens: &[u8]) -> TextResult<Box<ChatTemplates>> {
    let source = utf8(source, "the chat template")?;
    let tokens = utf8(tokens, "the special tokens")?;
    guard("chat template", || template::from_source(source, tokens)).map(Box::new)
}

fn template_source(templates: &ChatTemplates) -> String {
    templates.source()
}

fn template_reads(templates: &ChatTemplates, variable: &[u8]) -> bool {
    std::str::from_utf8(variable).is_ok_and(|name| templates.reads(name))
}

/// # Safety
/// `input.budget` is 0 or the address of a living `quire::WorkBudget`.
unsafe fn render(templates: &ChatTemplates, input: &ffi::RenderInput) -> TextResult<String> {
    let now = Now {
        year: input.now.year,
        month: input.now.month,
        day: input.now.day,
        hour: input.now.hour,
        minute: input.now.minute,
        second: input.now.second,
    };
    let input = Input {
        messages: utf8(input.messages, "messages")?,
        tools: utf8(input.tools, "tools")?,
        documents: utf8(input.documents, "documents")?,
        kwargs: utf8(input.kwargs, "chat_template_kwargs")?,
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
        now,
        limits: Limits {
            work: input.max_work,
            output_bytes: input.max_output_bytes,
            fuel: input.max_fuel,
            milliseconds: input.max_milliseconds,
        },
        // SAFETY: the caller's promise.
        budget: unsafe { Budget::from_address(input.budget) },
    };
    guard("chat template", || templates.render(&input))
}

fn new_grammar_factory(
    tokenizer: &TextTokenizer,
    eos: &[i32],
    flexible_whitespace: bool,
) -> TextResult<Box<Factory>> {
    let whitespace = if flexible_whitespace { Whitespace::Flexible } else { Whitespace::Bounded };
    guard("grammar", || grammar::new_factory(tokenizer, eos, whitespace)).map(Box::new)
}

/// # Safety
/// `budget` is 0 or the address of a `quire::WorkBudget` that outlives the call.
unsafe fn compile(
    factory: &Factory,
    kind: &str,
    source: &[u8],
    name: &[u8],
    prelude: &[u8],
    budget: usize,
) -> TextResult<Box<GrammarState>> {
    // SAFETY: the caller's promise.
    let cancellation = unsafe { Cancellation::from_address(budget) };
    guard("grammar", || factory.compile_after(kind, source, name, prelude, cancellation))
        .map(Box::new)
}

fn fill_mask(f: &Factory, state: &mut GrammarState, words: &mut [u32]) -> TextResult<()> {
    guard("grammar", || f.fill_mask(state, words))
}

fn accept(factory: &Factory, state: &mut GrammarState, token: i32) -> TextResult<bool> {
    guard("grammar", || factory.accept(state, token))
}

fn is_stopped(state: &GrammarState) -> TextResult<bool> {
    guard("grammar", || Ok(state.is_stopped()))
}

fn is_accepting(state: &mut GrammarState) -> TextResult<bool> {
    guard("grammar", || Ok(state.is_accepting()))
}

fn fork(state: &GrammarState) -> TextResult<Box<GrammarState>> {
    guard("grammar", || Ok(state.fork())).map(Box::new)
}

/// The same for a state and its forks.
fn family(state: &GrammarState) -> usize {
    std::ptr::from_ref(state.meter()) as usize
}

fn nanoseconds_spent(state: &GrammarState) -> u64 {
    state.meter().spent().as_nanos() as u64
}

/// By the state and its forks.
fn bytes_held(state: &GrammarState) -> usize {
    state.meter().bytes()
}
