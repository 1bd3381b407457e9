//! A model directory's tokenizer, loaded as transformers loads it.

use crate::error::{fail, utf8, TextError, TextResult};
use crate::model_files::{read_json_object, read_optional, token_text, SpecialTokens};
use crate::pieces::{DecoderPlan, JoinRule};
use serde_json::Value as Json;
use std::path::Path;
use tokenizers::{AddedToken, Tokenizer};

/// Ids at or above this are refused: a table of that length would be an attack on memory.
const MAX_TOKEN_ID: u32 = 1 << 24;

pub struct TextTokenizer {
    pub(crate) inner: Tokenizer,
    plan: DecoderPlan,
    vocab: Vec<Option<VocabEntry>>,
    special: SpecialTokens,
}

struct VocabEntry {
    token: String,
    special: bool,
}

pub fn load(dir: &Path) -> TextResult<TextTokenizer> {
    let path = dir.join("tokenizer.json");
    let bad = |reason: String| TextError(format!("{}: {reason}", path.display()));
    let Some(bytes) = read_optional(dir, "tokenizer.json")? else {
        return Err(bad("no such file (a tokenizer.json in the model directory is needed)".into()));
    };
    if bytes.is_empty() {
        return Err(bad("the file is empty".into()));
    }
    let mut inner = Tokenizer::from_bytes(&bytes).map_err(|e| bad(e.to_string()))?;
    drop(bytes); // tens of megabytes for a large vocabulary
    // Truncation and padding belong to training pipelines; serving must never cut a prompt.
    inner.with_truncation(None).map_err(|e| bad(e.to_string()))?;
    inner.with_padding(None);

    let config = read_json_object(dir, "tokenizer_config.json")?;
    let special = SpecialTokens::read(dir, &config)?;
    add_tokens(&mut inner, &config, &special).map_err(bad)?;
    inner.set_encode_special_tokens(config["split_special_tokens"].as_bool().unwrap_or(false));

    let vocab = collect_vocab(&inner).map_err(bad)?;
    let decoder = inner
        .get_decoder()
        .map_or(Json::Null, |decoder| serde_json::to_value(decoder).unwrap_or(Json::Null));
    Ok(TextTokenizer { plan: DecoderPlan::from_json(&decoder), inner, vocab, special })
}

/// Tokens that only the config files know join the vocabulary, as transformers 5 does.
fn add_tokens(inner: &mut Tokenizer, config: &Json, special: &SpecialTokens) -> Result<(), String> {
    let mut tokens = vec![];
    let mut declared: Vec<(u32, AddedToken)> = vec![];
    for (id, value) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let id = id.parse().map_err(|_| format!("added_tokens_decoder: bad id {id:?}"))?;
        declared.push((id, added_token(value)?));
    }
    declared.sort_by_key(|(id, _)| *id);
    let known = inner.get_added_tokens_decoder();
    for (_, token) in declared {
        if !known.values().any(|k| same_token(k, &token)) {
            tokens.push(token);
        }
    }
    let named = special.named.iter().map(|(_, value)| value);
    for value in named.chain(&special.extra) {
        let Some(text) = token_text(value) else { continue };
        let present =
            known.values().any(|k| k.content == text) || tokens.iter().any(|t| t.content == text);
        if !present {
            let mut token = match value {
                Json::Object(_) => added_token(value)?,
                _ => AddedToken::from(text, true),
            };
            token.special = true;
            tokens.push(token);
        }
    }
    inner.add_tokens(tokens).map(|_| ()).map_err(|e| e.to_string())
}

fn same_token(a: &AddedToken, b: &AddedToken) -> bool {
    let key = |t: &AddedToken| (t.single_word, t.lstrip, t.rstrip, t.normalized, t.special);
    a.content == b.content && key(a) == key(b)
}

fn added_token(value: &Json) -> Result<AddedToken, String> {
    let content = token_text(value).ok_or("an added token has no content")?;
    let flag = |name: &str, default: bool| value[name].as_bool().unwrap_or(default);
    let special = flag("special", false);
    Ok(AddedToken::from(content, special)
        .single_word(flag("single_word", false))
        .lstrip(flag("lstrip", false))
        .rstrip(flag("rstrip", false))
        .normalized(flag("normalized", !special)))
}

fn collect_vocab(inner: &Tokenizer) -> Result<Vec<Option<VocabEntry>>, String> {
    // Only the ids stay: the map is a copy of the whole vocabulary.
    let ids: Vec<u32> = inner.get_vocab(true).into_values().collect();
    let size = ids.iter().max().map_or(0, |&id| id.saturating_add(1));
    if size > MAX_TOKEN_ID {
        return Err(format!("token id {} is above the limit of {MAX_TOKEN_ID}", size - 1));
    }
    let mut vocab: Vec<Option<VocabEntry>> = (0..size).map(|_| None).collect();
    for id in ids {
        // Not the map's key: two tokens may claim one id, and decoding takes this one.
        if let Some(token) = inner.id_to_token(id) {
            let special = inner.get_added_vocabulary().is_special_token(&token);
            vocab[id as usize] = Some(VocabEntry { token, special });
        }
    }
    Ok(vocab)
}

impl TextTokenizer {
    pub fn encode(&self, text: &[u8], add_special_tokens: bool) -> TextResult<Vec<i32>> {
        let encoding = self
            .inner
            .encode_fast(utf8(text, "the text")?, add_special_tokens)
            .map_err(|e| TextError(e.to_string()))?;
        Ok(encoding.get_ids().iter().map(|&id| id as i32).collect())
    }

    pub fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> TextResult<String> {
        if let Some(bad) = ids.iter().find(|&&id| id < 0 || id as usize >= self.vocab.len()) {
            return fail(format!("token id {bad} is outside [0, {})", self.vocab.len()));
        }
        let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        self.inner.decode(&ids, skip_special_tokens).map_err(|e| TextError(e.to_string()))
    }

    pub fn token_to_id(&self, token: &[u8]) -> i32 {
        let id = std::str::from_utf8(token).ok().and_then(|t| self.inner.token_to_id(t));
        id.map_or(-1, |id| id as i32)
    }

    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.special.text(name)
    }

    pub fn plan(&self) -> &DecoderPlan {
        &self.plan
    }

    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token's text as in the vocabulary; None where the id is a hole.
    pub fn token(&self, id: usize) -> Option<&str> {
        self.vocab.get(id)?.as_ref().map(|entry| entry.token.as_str())
    }

    pub fn is_special(&self, id: usize) -> bool {
        matches!(self.vocab.get(id), Some(Some(entry)) if entry.special)
    }

    /// The bytes that the token adds to a text that it does not open.
    pub fn token_bytes(&self, id: usize) -> Vec<u8> {
        let Some(token) = self.token(id) else { return vec![] };
        if self.plan.rule != JoinRule::Opaque || self.is_special(id) {
            return self.plan.piece(token);
        }
        self.inner.decode(&[id as u32], false).unwrap_or_default().into_bytes()
    }
}
