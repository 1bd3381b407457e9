//! A model's tokenizer, loaded as transformers loads it.

use crate::budget::Budget;
use crate::cuts::Cutter;
use crate::error::{fail, utf8, TextError, TextResult};
use crate::model_files::{
    read_optional, read_tokenizer_config, token_text, ModelFiles, SpecialTokens,
};
use crate::pieces::{DecoderPlan, JoinRule};
use crate::working_memory::{Appetite, WorkingMemory};
use crate::{tekken, tokenizer_limits};
use serde_json::Value as Json;
use std::collections::HashSet;
use tokenizers::models::ModelWrapper;
use tokenizers::{AddedToken, Encoding, Token, Tokenizer, Trainer};

/// Ids at or above this are refused: a table of that length would be an attack on memory.
const MAX_TOKEN_ID: u32 = 1 << 22;

/// A text without a safe cut is tokenised in one go, which cannot be stopped: about 0.3 s for the
/// worst one (a single word) on one core of a server of 2023.
const MAX_UNCUT_BYTES: usize = 512 << 10;

/// Which ids of a text are wanted.
#[derive(Clone, Copy)]
pub enum Keep {
    All,
    First(usize),
    Last(usize),
}

pub struct TextTokenizer {
    pub(crate) inner: Tokenizer,
    plan: DecoderPlan,
    cutter: Option<Cutter>,
    appetite: Appetite,
    /// The ids that the post-processor puts before and after those of a text.
    frame: Option<(Vec<i32>, Vec<i32>)>,
    vocab: Vocab,
    special: SpecialTokens,
}

/// The tokens by their ids: one text of all of them, since a string of its own for each of 150,000
/// tokens takes ten megabytes.
struct Vocab {
    texts: String,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
}

#[derive(Clone, Copy, PartialEq)]
enum TokenKind {
    Hole,
    Plain,
    Special,
}

/// A model's tokenizer as its file has it, and how many bytes the normalizer may make of one.
fn read_tokenizer(from: ModelFiles) -> TextResult<(Tokenizer, u64, &'static str)> {
    let at = |name: &str, reason: String| TextError(format!("{}: {reason}", from.name(name)));
    let own = "tokenizer.json";
    let Some(bytes) = read_optional(from, own)? else {
        let theirs = "tekken.json";
        let Some(bytes) = read_optional(from, theirs)? else {
            return Err(at(own, missing_tokenizer(from)));
        };
        return Ok((tekken::parse(&bytes).map_err(|e| at(theirs, e.0))?, 1, theirs));
    };
    if bytes.is_empty() {
        return Err(at(own, "the file is empty".into()));
    }
    let growth = tokenizer_limits::check(&bytes).map_err(|reason| at(own, reason))?;
    let mut inner = Tokenizer::from_bytes(&bytes).map_err(|e| at(own, e.to_string()))?;
    // Truncation and padding belong to training pipelines; serving must never cut a prompt.
    inner.with_truncation(None).map_err(|e| at(own, e.to_string()))?;
    inner.with_padding(None);
    Ok((inner, growth, own))
}

/// The models keep 10,000 words with their tokens, in every thread, for as long as the thread lives:
/// with words of 255 bytes that is 80 MB a thread. Without them a text takes a fifth to a third longer.
/// Trainers alone get hold of a tokenizer's model.
fn keep_no_words(inner: &mut Tokenizer) -> Result<(), String> {
    struct NoWords;
    impl Trainer for NoWords {
        type Model = ModelWrapper;
        fn should_show_progress(&self) -> bool {
            false
        }
        fn train(&self, model: &mut ModelWrapper) -> tokenizers::Result<Vec<AddedToken>> {
            model.resize_cache(0);
            Ok(vec![])
        }
        fn feed<I, S, F>(&mut self, _: I, _: F) -> tokenizers::Result<()>
        where
            I: Iterator<Item = S> + Send,
            S: AsRef<str> + Send,
            F: Fn(&str) -> tokenizers::Result<Vec<String>> + Sync,
        {
            Ok(())
        }
    }
    let texts = std::iter::empty::<&str>();
    inner.train(&mut NoWords, texts).map(|_| ()).map_err(|e| e.to_string())
}

fn missing_tokenizer(from: ModelFiles) -> String {
    let needed = "no such file (a tokenizer.json or tekken.json in the model directory is needed";
    if !from.has("tokenizer.model") {
        return format!("{needed})");
    }
    format!(
        "{needed}; transformers makes one of tokenizer.model: \
         AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))"
    )
}

pub fn load(from: ModelFiles) -> TextResult<TextTokenizer> {
    let (mut inner, growth, file) = read_tokenizer(from)?;
    let bad = |reason: String| TextError(format!("{}: {reason}", from.name(file)));
    keep_no_words(&mut inner).map_err(bad)?;
    let config = read_tokenizer_config(from)?;
    let mut special = SpecialTokens::read(from, &config)?;
    if file == "tekken.json" {
        let is_known =
            |value: &Json| token_text(value).is_some_and(|t| inner.token_to_id(t).is_some());
        special.named.retain(|(_, value)| is_known(value));
    }
    add_tokens(&mut inner, &config, &special, growth)
        .map_err(|e| TextError(format!("{}: {e}", from.name("tokenizer_config.json"))))?;
    inner.set_encode_special_tokens(config["split_special_tokens"].as_bool().unwrap_or(false));

    let vocab = Vocab::collect(&inner).map_err(bad)?;
    let decoder = inner
        .get_decoder()
        .map_or(Json::Null, |decoder| serde_json::to_value(decoder).unwrap_or(Json::Null));
    let (cutter, frame) = (Cutter::new(&inner), find_frame(&inner));
    let spaces_only = cutter.as_ref().is_some_and(Cutter::writes_spaces_only);
    Ok(TextTokenizer {
        plan: DecoderPlan::from_json(&decoder),
        appetite: Appetite::new(inner.get_normalizer(), spaces_only, frame.is_some()),
        inner,
        cutter,
        frame,
        vocab,
        special,
    })
}

/// None where the post-processor does anything else than to put ids around a text's.
fn find_frame(inner: &Tokenizer) -> Option<(Vec<i32>, Vec<i32>)> {
    const PROBE: u32 = u32::MAX;
    let token = Token::new(PROBE, String::new(), (0, 0));
    let framed = inner.post_process(Encoding::from_tokens(vec![token], 0), None, true).ok()?;
    let ids: Vec<i32> = framed.get_ids().iter().map(|&id| id as i32).collect();
    let mut parts = ids.split(|&id| id == PROBE as i32);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(after), None) => Some((before.to_vec(), after.to_vec())),
        _ => None,
    }
}

/// Tokens that only the config files know join the vocabulary, as transformers 5 does. `growth`: the
/// bytes that the normalizer may make of one.
fn add_tokens(
    inner: &mut Tokenizer,
    config: &Json,
    special: &SpecialTokens,
    growth: u64,
) -> Result<(), String> {
    let mut tokens = vec![];
    let mut declared: Vec<(u32, AddedToken)> = vec![];
    for (id, value) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let id = id.parse().map_err(|_| format!("added_tokens_decoder: bad id {id:?}"))?;
        declared.push((id, added_token(value)?));
    }
    declared.sort_by_key(|(id, _)| *id);
    let known = inner.get_added_tokens_decoder();
    let same: HashSet<_> = known.values().map(identity).collect();
    let mut contents: HashSet<String> = known.values().map(|k| k.content.clone()).collect();
    for (_, token) in declared {
        if !same.contains(&identity(&token)) {
            contents.insert(token.content.clone());
            tokens.push(token);
        }
    }
    let named = special.named.iter().map(|(_, value)| value);
    for value in named.chain(&special.extra) {
        let Some(text) = token_text(value) else { continue };
        if contents.insert(text.to_string()) {
            let mut token = match value {
                Json::Object(_) => added_token(value)?,
                _ => AddedToken::from(text, true),
            };
            token.special = true;
            tokens.push(token);
        }
    }
    tokenizer_limits::check_added(tokens.iter().map(|token| token.content.as_str()), growth)?;
    inner.add_tokens(tokens).map(|_| ()).map_err(|e| e.to_string())
}

/// What makes two tokens the same.
fn identity(t: &AddedToken) -> (&str, [bool; 5]) {
    (&t.content, [t.single_word, t.lstrip, t.rstrip, t.normalized, t.special])
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

impl Vocab {
    fn collect(inner: &Tokenizer) -> Result<Vocab, String> {
        // Only the ids stay: the map is a copy of the whole vocabulary.
        let mut ids: Vec<u32> = inner.get_vocab(true).into_values().collect();
        ids.sort_unstable();
        let size = ids.last().map_or(0, |&id| id.saturating_add(1));
        if size > MAX_TOKEN_ID {
            return Err(format!("token id {} is above the limit of {MAX_TOKEN_ID}", size - 1));
        }
        let mut vocab = Vocab { texts: String::new(), ends: vec![], kinds: vec![] };
        for id in ids {
            while vocab.len() < id as usize {
                vocab.push("", TokenKind::Hole)?;
            }
            // Not the map's key: two tokens may claim one id, and decoding takes this one.
            if let Some(token) = inner.id_to_token(id).filter(|_| vocab.len() == id as usize) {
                let special = inner.get_added_vocabulary().is_special_token(&token);
                vocab.push(&token, if special { TokenKind::Special } else { TokenKind::Plain })?;
            }
        }
        while vocab.len() < size as usize {
            vocab.push("", TokenKind::Hole)?;
        }
        vocab.texts.shrink_to_fit();
        Ok(vocab)
    }

    fn push(&mut self, token: &str, kind: TokenKind) -> Result<(), String> {
        self.texts.push_str(token);
        let end = u32::try_from(self.texts.len()).map_err(|_| "the tokens take over 4 GiB")?;
        self.ends.push(end);
        self.kinds.push(kind);
        Ok(())
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn token(&self, id: usize) -> Option<&str> {
        if *self.kinds.get(id)? == TokenKind::Hole {
            return None;
        }
        let begin = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.texts[begin as usize..self.ends[id] as usize])
    }
}

impl TextTokenizer {
    /// The ids of `text`, the wanted ones alone. Texts longer than `piece_bytes` are tokenised in
    /// pieces, where that gives the same ids, and the budget is checked between them. `memory` is
    /// asked for before it is taken.
    pub fn encode(
        &self,
        text: &[u8],
        add_special: bool,
        keep: Keep,
        piece_bytes: usize,
        mut budget: Budget,
        mut memory: WorkingMemory,
    ) -> TextResult<Vec<i32>> {
        let text = utf8(text, "the text")?;
        let mut ids = match (&self.cutter, &self.frame) {
            (Some(cutter), Some((before, after))) if text.len() > piece_bytes => {
                let frame: [&[i32]; 2] = if add_special { [before, after] } else { [&[], &[]] };
                let mut pieces = Pieces { tokenizer: self, cutter, text, piece_bytes, memory };
                match keep {
                    Keep::Last(count) => pieces.last(count, frame, &mut budget)?,
                    Keep::First(count) => pieces.first(count, frame, &mut budget)?,
                    Keep::All => pieces.first(usize::MAX, frame, &mut budget)?,
                }
            }
            _ => {
                check_uncut(text.len())?;
                memory.need(self.bytes_to_encode(text, 0))?;
                let ids = self.encode_whole(text, add_special)?;
                budget.check()?;
                ids
            }
        };
        match keep {
            Keep::All => {}
            Keep::First(count) => ids.truncate(count),
            Keep::Last(count) => drop(ids.drain(..ids.len().saturating_sub(count))),
        }
        Ok(ids)
    }

    pub(crate) fn encode_whole(&self, text: &str, add_special: bool) -> TextResult<Vec<i32>> {
        let encoding =
            self.inner.encode_fast(text, add_special).map_err(|e| TextError(e.to_string()))?;
        Ok(encoding.get_ids().iter().map(|&id| id as i32).collect())
    }

    /// At most how many bytes encode_whole() takes, beside `ids` that are there.
    pub(crate) fn bytes_to_encode(&self, text: &str, ids: usize) -> usize {
        self.appetite.bytes(text, self.inner.get_normalizer(), ids)
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
        self.vocab.token(id)
    }

    pub fn is_special(&self, id: usize) -> bool {
        self.vocab.kinds.get(id) == Some(&TokenKind::Special)
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

fn check_uncut(bytes: usize) -> TextResult<()> {
    if bytes <= MAX_UNCUT_BYTES {
        return Ok(());
    }
    fail(format!(
        "the text has a stretch of more than {MAX_UNCUT_BYTES} bytes that this model's tokenizer \
         can only take in one go"
    ))
}

/// A text that is tokenised piece by piece.
struct Pieces<'a> {
    tokenizer: &'a TextTokenizer,
    cutter: &'a Cutter,
    text: &'a str,
    piece_bytes: usize,
    memory: WorkingMemory,
}

impl Pieces<'_> {
    /// From the front, until there are `count` ids or all.
    fn first(
        &mut self,
        count: usize,
        [before, after]: [&[i32]; 2],
        budget: &mut Budget,
    ) -> TextResult<Vec<i32>> {
        let mut ids = before.to_vec();
        let mut start = 0;
        while start < self.text.len() && ids.len() < count {
            budget.check()?;
            let end = self.end_of_piece(start)?;
            ids.extend(self.encode(start, end, ids.len())?);
            start = end;
        }
        budget.check()?;
        ids.extend(after);
        Ok(ids)
    }

    /// From the back, until there are `count` ids or all.
    fn last(
        &mut self,
        count: usize,
        [before, after]: [&[i32]; 2],
        budget: &mut Budget,
    ) -> TextResult<Vec<i32>> {
        let mut pieces = vec![after.to_vec()];
        let mut have = after.len();
        let mut end = self.text.len();
        while end > 0 && have < count {
            budget.check()?;
            let start = self.start_of_piece(end)?;
            let ids = self.encode(start, end, have)?;
            have += ids.len();
            pieces.push(ids);
            end = start;
        }
        budget.check()?;
        pieces.push(before.to_vec());
        pieces.reverse();
        Ok(pieces.concat())
    }

    fn end_of_piece(&self, start: usize) -> TextResult<usize> {
        let limit = start + MAX_UNCUT_BYTES;
        if let Some(cut) = self.cutter.first_cut(self.text, start + self.piece_bytes, limit) {
            return Ok(cut);
        }
        check_uncut(self.text.len() - start)?;
        Ok(self.text.len())
    }

    /// The first cut of ever longer tails.
    fn start_of_piece(&self, end: usize) -> TextResult<usize> {
        let mut length = self.piece_bytes;
        loop {
            let from = end.saturating_sub(length);
            let to = end.saturating_sub(length / 2);
            if let Some(cut) = self.cutter.first_cut(self.text, from, to) {
                return Ok(cut);
            }
            if from == 0 {
                check_uncut(end)?;
                return Ok(0);
            }
            check_uncut(length)?;
            length *= 2;
        }
    }

    /// `ids`: how many there are already.
    fn encode(&mut self, start: usize, end: usize, ids: usize) -> TextResult<Vec<i32>> {
        let dropped = usize::from(start > 0 && self.cutter.drops_space());
        let piece = &self.text[start + dropped..end];
        self.memory.need(self.tokenizer.bytes_to_encode(piece, ids))?;
        self.tokenizer.encode_whole(piece, false)
    }
}

#[cfg(test)]
#[path = "tokenizer_test.rs"]
mod tests;
