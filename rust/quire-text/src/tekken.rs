//! A tekken.json, the tokenizer file of Mistral's own format, as a tokenizer of this library.
//!
//! The file has tokens as bytes, by rank, and a pattern that splits texts: tiktoken's kind of BPE,
//! where the pair whose bytes have the lowest rank is merged first. The same follows from a list of
//! merges in which each token stands with every pair that makes it, in the order of ranks. Special
//! tokens have the first ids, the others follow.

use crate::error::{fail, TextError, TextResult};
use crate::pieces::byte_level_text;
use serde::Deserialize;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use tokenizers::models::bpe::{Vocab, BPE};
use tokenizers::{
    AddedToken, DecoderWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer,
};

/// The longest in use has 76. Each is looked at once for every place to cut it.
const MAX_TOKEN_BYTES: usize = 1 << 10;
const MAX_WORK: usize = 1 << 30;
const MAX_TOKENS: usize = 1 << 20;

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Entry>,
    #[serde(default)]
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct Entry {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
}

/// The special tokens of files that do not list them, which are those up to version 7.
const FIRST_SPECIAL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// What the file does not say: which of its tokens have a name.
pub const NAMES: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];

/// The tokenizer puts `<s>` before a text, as those do that are made from such files.
pub fn parse(file: &[u8]) -> TextResult<Tokenizer> {
    let file: File = serde_json::from_slice(file).map_err(|e| TextError(e.to_string()))?;
    let special = special_tokens(&file)?;
    let tokens = ranked_tokens(&file, special.len())?;
    let (vocab, merges) = vocab_and_merges(&tokens, &special)?;
    let bos = special.iter().position(|token| token == "<s>");
    let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(true);
    let mut tokenizer = Tokenizer::new(model.build().map_err(|e| TextError(e.to_string()))?);
    let wrong = |e: serde_json::Error| TextError(e.to_string());
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                       "use_regex": false});
    let split = json!({"type": "Split", "pattern": {"Regex": file.config.pattern},
                       "behavior": "Isolated", "invert": false});
    let steps = json!({"type": "Sequence", "pretokenizers": [split, bytes]});
    let pre: PreTokenizerWrapper = serde_json::from_value(steps).map_err(wrong)?;
    let decoder: DecoderWrapper = serde_json::from_value(bytes).map_err(wrong)?;
    tokenizer.with_pre_tokenizer(Some(pre)).with_decoder(Some(decoder));
    if let Some(id) = bos {
        let ids = json!({"<s>": {"id": "<s>", "ids": [id], "tokens": ["<s>"]}});
        let token = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
        let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
        let frame = json!({"type": "TemplateProcessing", "single": [token, text("A")],
                           "pair": [token, text("A"), text("B")], "special_tokens": ids});
        let frame: PostProcessorWrapper = serde_json::from_value(frame).map_err(wrong)?;
        tokenizer.with_post_processor(Some(frame));
    }
    let added = special.into_iter().map(|text| AddedToken::from(text, true).normalized(false));
    tokenizer.add_special_tokens(added).map_err(|e| TextError(e.to_string()))?;
    Ok(tokenizer)
}

/// By id. Ids without a token of their own have one that no text should spell.
fn special_tokens(file: &File) -> TextResult<Vec<String>> {
    let count = file.config.default_num_special_tokens;
    if count > MAX_TOKENS || file.config.default_vocab_size > MAX_TOKENS {
        return fail(format!("more than {MAX_TOKENS} tokens"));
    }
    let mut all: Vec<String> = (0..count).map(|id| format!("<SPECIAL_{id}>")).collect();
    let listed: Vec<(usize, &str)> = match &file.special_tokens {
        Some(tokens) => tokens.iter().map(|t| (t.rank, t.token_str.as_str())).collect(),
        None => FIRST_SPECIAL.iter().copied().enumerate().collect(),
    };
    for (rank, text) in listed {
        match all.get_mut(rank) {
            Some(place) if !text.is_empty() => *place = text.to_string(),
            _ => return fail(format!("the special token {text:?} has the rank {rank}")),
        }
    }
    let different: HashSet<&String> = all.iter().collect();
    if different.len() != all.len() {
        return fail("a special token is there twice");
    }
    Ok(all)
}

/// The bytes of the tokens that count, by rank.
fn ranked_tokens(file: &File, num_special: usize) -> TextResult<Vec<Vec<u8>>> {
    let count = file.config.default_vocab_size.saturating_sub(num_special);
    let mut tokens = vec![Vec::new(); count];
    let mut work = 0;
    for entry in &file.vocab {
        let Some(place) = tokens.get_mut(entry.rank) else { continue };
        *place = base64::decode(&entry.token_bytes)
            .map_err(|e| TextError(format!("the token of rank {}: {e}", entry.rank)))?;
        work += place.len() * place.len();
        if place.len() > MAX_TOKEN_BYTES || work > MAX_WORK {
            return fail(format!("the token of rank {} is too long", entry.rank));
        }
    }
    if let Some(rank) = tokens.iter().position(Vec::is_empty) {
        return fail(format!("there is no token of rank {rank}"));
    }
    Ok(tokens)
}

type Merges = Vec<(String, String)>;

fn vocab_and_merges(tokens: &[Vec<u8>], special: &[String]) -> TextResult<(Vocab, Merges)> {
    let mut ranks: HashMap<&[u8], usize> = HashMap::with_capacity(tokens.len());
    for (rank, token) in tokens.iter().enumerate() {
        if ranks.insert(token, rank).is_some() {
            return fail(format!("the token of rank {rank} is there twice"));
        }
    }
    if let Some(byte) = (0..=u8::MAX).find(|byte| !ranks.contains_key([*byte].as_slice())) {
        return fail(format!("there is no token of the byte {byte}"));
    }
    let mut texts: Vec<String> = tokens.iter().map(|token| byte_level_text(token)).collect();
    let names: HashSet<&str> = special.iter().map(String::as_str).collect();
    // Text never becomes a special token by merging.
    let is_own = |text: &str| !names.contains(text);
    let mut merges = Merges::new();
    for (token, text) in tokens.iter().zip(&texts) {
        if !is_own(text) {
            continue;
        }
        let mut pairs: Vec<(usize, usize)> = (1..token.len())
            .filter_map(|at| Some((*ranks.get(&token[..at])?, *ranks.get(&token[at..])?)))
            .filter(|(left, right)| is_own(&texts[*left]) && is_own(&texts[*right]))
            .collect();
        pairs.sort_unstable();
        merges.extend(pairs.iter().map(|&(l, r)| (texts[l].clone(), texts[r].clone())));
    }
    let mut vocab = Vocab::default();
    for (rank, text) in texts.drain(..).enumerate() {
        vocab.insert(text, (special.len() + rank) as u32);
    }
    for (id, text) in special.iter().enumerate() {
        vocab.insert(text.clone(), id as u32);
    }
    Ok((vocab, merges))
}

#[cfg(test)]
#[path = "tekken_test.rs"]
mod tests;
