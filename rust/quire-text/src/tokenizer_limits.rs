//! What a tokenizer.json may ask for: a file of a few kilobytes can double a text forty times over.
//!
//! The limits are checked on the file's text, before the tokenizer is made from it: making it
//! already normalises its added tokens. They admit every published tokenizer by a wide margin.

use serde::Deserialize;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Most steps of a pipeline, nested ones included.
const MAX_STEPS: usize = 64;
/// The most bytes that a normalizer or pre-tokenizer may make of one. SentencePiece's NFKC rules
/// with a replacement of runs of spaces come to 132.
const MAX_GROWTH: u64 = 256;
/// The same for the decoder, which is applied to every token at load.
const MAX_DECODER_GROWTH: u64 = 16;
/// Most pieces of a post-processor's template, and most ids of one of its special tokens.
const MAX_TEMPLATE_PIECES: usize = 64;
/// How often a post-processor may repeat the text's tokens.
const MAX_REPEATS: u64 = 4;
/// Most tokens beside the model's own.
pub const MAX_ADDED_TOKENS: usize = 1 << 17;
/// The longest text of such tokens together once they are normalised, in bytes.
const MAX_ADDED_BYTES: u64 = 64 << 20;

/// The parts of tokenizer.json that say how texts are changed; the model's tables are skipped.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    #[serde(default)]
    decoder: Json,
    #[serde(default, borrow)]
    added_tokens: Vec<AddedContent<'a>>,
}

#[derive(Deserialize)]
struct AddedContent<'a> {
    #[serde(default, borrow)]
    content: Cow<'a, str>,
}

/// Refuses what multiplies texts or tokens beyond reason. Returns how many bytes the normalizer may
/// make of one.
pub fn check(file: &[u8]) -> Result<u64, String> {
    let outline: Outline = serde_json::from_slice(file).map_err(|e| e.to_string())?;
    let normalizer = growth("normalizer", &outline.normalizer, MAX_GROWTH)?;
    growth("pre_tokenizer", &outline.pre_tokenizer, MAX_GROWTH)?;
    growth("decoder", &outline.decoder, MAX_DECODER_GROWTH)?;
    let mut repeats = 1;
    check_post_processor(&outline.post_processor, &mut repeats)?;
    check_added(outline.added_tokens.iter().map(|token| &*token.content), normalizer)?;
    Ok(normalizer)
}

/// Refuses too many added tokens, or ones that the normalizer may make too long.
pub fn check_added<'a>(
    contents: impl Iterator<Item = &'a str>,
    normalizer: u64,
) -> Result<(), String> {
    let (mut count, mut bytes) = (0usize, 0u64);
    for content in contents {
        count += 1;
        bytes = bytes.saturating_add(content.len() as u64);
    }
    if count > MAX_ADDED_TOKENS {
        return Err(format!("{count} added tokens are over the limit of {MAX_ADDED_TOKENS}"));
    }
    if bytes.saturating_mul(normalizer) > MAX_ADDED_BYTES {
        return Err(format!(
            "its added tokens have {bytes} bytes, of which the normalizer may make {normalizer} \
             times as many; the limit is {MAX_ADDED_BYTES}"
        ));
    }
    Ok(())
}

fn growth(what: &str, pipeline: &Json, most: u64) -> Result<u64, String> {
    let (mut steps, mut product) = (0, 1u64);
    let mut left = vec![pipeline];
    while let Some(step) = left.pop() {
        for list in ["normalizers", "pretokenizers", "decoders"] {
            left.extend(step[list].as_array().into_iter().flatten());
        }
        steps += 1;
        if steps + left.len() > MAX_STEPS {
            return Err(format!("its {what} has more than {MAX_STEPS} steps"));
        }
        product = product.saturating_mul(growth_of_step(step)?);
    }
    if product > most {
        return Err(format!(
            "its {what} may make {product} bytes of one; the limit is {most}, and tokenizers in \
             use stay far below"
        ));
    }
    Ok(product)
}

/// At most so many bytes come of one. By the keys that a step has, because the type may be left out.
fn growth_of_step(step: &Json) -> Result<u64, String> {
    let length = |value: &Json| value.as_str().map_or(0, |text| text.len() as u64);
    if let Some(charsmap) = step["precompiled_charsmap"].as_str() {
        return longest_rewrite(charsmap);
    }
    if step["prepend"].is_string() {
        return Ok(1 + length(&step["prepend"]));
    }
    if step["content"].is_string() && !step["pattern"].is_null() {
        let content = length(&step["content"]);
        // An expression may match nothing, everywhere.
        return Ok(match length(&step["pattern"]["String"]) {
            0 => 1 + content,
            pattern => content.div_ceil(pattern).max(1),
        });
    }
    Ok(match step["type"].as_str() {
        None => 1,
        Some(
            "Sequence" | "Strip" | "StripAccents" | "Nmt" | "Fuse" | "Split" | "Whitespace"
            | "WhitespaceSplit" | "Punctuation" | "Digits" | "UnicodeScripts" | "FixedLength"
            | "Delimiter" | "BertPreTokenizer",
        ) => 1,
        Some("NFKC" | "NFKD") => 11,
        Some("BertNormalizer") => 8,
        Some("Lowercase") => 2,
        Some(_) => 4, // a character of one byte becomes at most one of four
    })
}

/// The longest replacement in SentencePiece's rules: the length of a trie, the trie, and texts that
/// end with NUL.
fn longest_rewrite(charsmap: &str) -> Result<u64, String> {
    let bad = || "its normalizer's precompiled_charsmap is damaged".to_string();
    let bytes = base64::decode(charsmap).map_err(|_| bad())?;
    let size = bytes.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let texts = size.and_then(|size| bytes.get(4 + size as usize..)).ok_or_else(bad)?;
    let longest = texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0);
    Ok((longest as u64).max(1))
}

fn check_post_processor(processor: &Json, repeats: &mut u64) -> Result<(), String> {
    for inner in processor["processors"].as_array().into_iter().flatten() {
        check_post_processor(inner, repeats)?;
    }
    let texts = match &processor["single"] {
        Json::Array(pieces) if pieces.len() > MAX_TEMPLATE_PIECES => {
            return Err(format!(
                "its post_processor's template has {} pieces; the limit is {MAX_TEMPLATE_PIECES}",
                pieces.len()
            ));
        }
        Json::Array(pieces) => pieces.iter().filter(|p| p.get("Sequence").is_some()).count(),
        Json::String(template) => template.matches('$').count(),
        _ => 1,
    };
    *repeats = repeats.saturating_mul((texts as u64).max(1));
    if *repeats > MAX_REPEATS {
        return Err(format!(
            "its post_processor repeats the text {repeats} times; the limit is {MAX_REPEATS}"
        ));
    }
    let tokens = processor["special_tokens"].as_object();
    for (name, token) in tokens.into_iter().flatten() {
        let ids = token["ids"].as_array().map_or(0, Vec::len);
        if ids > MAX_TEMPLATE_PIECES {
            return Err(format!(
                "its post_processor makes {ids} tokens of {name:?}; the limit is \
                 {MAX_TEMPLATE_PIECES}"
            ));
        }
    }
    Ok(())
}
