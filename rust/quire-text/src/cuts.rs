//! Where a text may be cut so that the ids of its parts, put together, are those of the whole.
//!
//! Tokenising is one call that can be neither stopped nor timed, and needs some hundred bytes of
//! memory for each byte of text. Cut into pieces it can. A cut between the characters x and y is
//! safe where nothing in the tokenizer connects them: no added token, no normalisation, no match
//! of the pre-tokenizer's pattern, or (where there is no pattern) no merge. What is not known to
//! be safe is not cut.

use serde_json::Value as Json;
use std::collections::HashSet;
use tokenizers::models::ModelWrapper;
use tokenizers::{AddedToken, Tokenizer};

/// SentencePiece's visible space.
const MARK: char = '\u{2581}';

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Regular expressions of the GPT family split the text before the model sees it. `digits_alone`:
    /// every digit is a pre-token of its own.
    Pattern { digits_alone: bool },
    /// BPE over the whole text, spaces as "▁"; no token has a "▁" behind another character.
    Spaces,
    /// The same, and a "▁" is put in front of every piece: it stands for the space of the cut.
    SpacesPrepended,
}

pub struct Cutter {
    style: Style,
    /// Neighbours inside added tokens.
    joined: HashSet<(char, char)>,
    /// Characters after which a space may belong to the added token that they end.
    ends: HashSet<char>,
    /// Characters that may open an added token.
    starts: HashSet<char>,
}

impl Cutter {
    /// None where no safe cut is known.
    pub fn new(tokenizer: &Tokenizer) -> Option<Self> {
        let style = find_style(tokenizer)?;
        let added: Vec<&AddedToken> =
            tokenizer.get_added_vocabulary().get_added_tokens_decoder().values().collect();
        // A token's neighbours decide whether it counts.
        if added.iter().any(|token| token.single_word) {
            return None;
        }
        let by_pattern = matches!(style, Style::Pattern { .. });
        if !by_pattern && added.iter().any(|token| token.normalized) {
            return None;
        }
        let plain = |c: char| if c == MARK { ' ' } else { c };
        let mut cutter =
            Cutter { style, joined: HashSet::new(), ends: HashSet::new(), starts: HashSet::new() };
        for token in added {
            let text = &token.content;
            let next = text.chars().skip(1);
            cutter.joined.extend(text.chars().zip(next).map(|(x, y)| (plain(x), plain(y))));
            cutter.starts.extend(text.chars().next());
            if token.rstrip || style == Style::SpacesPrepended {
                cutter.ends.extend(text.chars().last());
            }
        }
        Some(cutter)
    }

    /// Whether the character at a cut is dropped: the tokenizer puts it back.
    pub fn drops_space(&self) -> bool {
        self.style == Style::SpacesPrepended
    }

    /// Whether all that normalizer and pre-tokenizer do is to write spaces as "▁".
    pub fn writes_spaces_only(&self) -> bool {
        !matches!(self.style, Style::Pattern { .. })
    }

    /// The first safe cut at or after `from` and before `to`.
    pub fn first_cut(&self, text: &str, from: usize, to: usize) -> Option<usize> {
        let to = to.min(text.len());
        let mut at = from.max(1);
        while at < to {
            if text.is_char_boundary(at) && self.is_cut(text, at) {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    fn is_cut(&self, text: &str, at: usize) -> bool {
        let (left, right) = text.split_at(at);
        let (Some(x), Some(y)) = (left.chars().next_back(), right.chars().next()) else {
            return false;
        };
        // Added tokens may take all white space beside them.
        if x.is_whitespace() || (y.is_whitespace() && self.ends.contains(&x)) {
            return false;
        }
        if self.joined.contains(&(x, y)) {
            return false;
        }
        match self.style {
            Style::Pattern { digits_alone: true } if x.is_ascii_digit() && y.is_ascii_digit() => {
                true
            }
            Style::Pattern { .. } => pattern_ends_between(x, y),
            Style::Spaces => y == ' ' && x != MARK,
            Style::SpacesPrepended => {
                let next = right.chars().nth(1);
                let opens = next.is_none_or(|c| self.starts.contains(&c) || c == MARK);
                y == ' ' && x != MARK && !opens
            }
        }
    }
}

/// Whether every pattern of ALTERNATIVES has one match end and the next begin here, whatever
/// surrounds the two. Apostrophes are left out, since "'s" belongs to the word before it in some.
fn pattern_ends_between(x: char, y: char) -> bool {
    let ideograph = ('\u{4E00}'..='\u{9FA5}').contains(&x);
    if y == ' ' {
        return true; // x is no space
    }
    if ideograph {
        return matches!(y, '。' | '，' | '、' | '！' | '？' | '：' | '；');
    }
    y.is_ascii()
        && y != '\''
        && (x.is_ascii_alphabetic() && !y.is_ascii_alphabetic()
            || x.is_ascii_digit() && !y.is_ascii_digit())
}

fn find_style(tokenizer: &Tokenizer) -> Option<Style> {
    let json = |value: serde_json::Result<Json>| value.unwrap_or(Json::from("unknown"));
    let normalizer = tokenizer.get_normalizer();
    let normalizer = normalizer.map_or(Json::Null, |n| json(serde_json::to_value(n)));
    let pre = tokenizer.get_pre_tokenizer();
    let pre = pre.map_or(Json::Null, |p| json(serde_json::to_value(p)));
    let no_steps = normalizer["normalizers"].as_array().is_some_and(Vec::is_empty);
    if normalizer.is_null() || no_steps || normalizer["type"] == "NFC" {
        if let Some(digits_alone) = splits_by_pattern(&pre) {
            return Some(Style::Pattern { digits_alone });
        }
    }
    let style =
        if is_metaspace(&pre) && normalizer.is_null() || pre.is_null() && is_replace(&normalizer) {
            Style::Spaces
        } else if pre.is_null() && is_prepend_and_replace(&normalizer) {
            Style::SpacesPrepended
        } else {
            return None;
        };
    merges_stop_at_spaces(tokenizer).then_some(style)
}

fn is_metaspace(pre: &Json) -> bool {
    pre["type"] == "Metaspace" && pre["replacement"] == "▁"
}

fn is_replace(step: &Json) -> bool {
    step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == "▁"
}

fn is_prepend_and_replace(normalizer: &Json) -> bool {
    let Some(steps) = normalizer["normalizers"].as_array() else { return false };
    let prepends = |step: &Json| step["type"] == "Prepend" && step["prepend"] == "▁";
    normalizer["type"] == "Sequence"
        && steps.len() == 2
        && prepends(&steps[0])
        && is_replace(&steps[1])
}

/// "▁" is a token, and no merge makes one with "▁" behind another character: the merges on both
/// sides of "x▁" have nothing to do with each other.
fn merges_stop_at_spaces(tokenizer: &Tokenizer) -> bool {
    let ModelWrapper::BPE(bpe) = tokenizer.get_model() else { return false };
    // A word that is looked up whole, or marked at its end, is not the sum of its parts.
    if bpe.ignore_merges
        || bpe.dropout.is_some()
        || bpe.continuing_subword_prefix.is_some()
        || bpe.end_of_word_suffix.is_some()
    {
        return false;
    }
    let vocab = tokenizer.get_vocab(false);
    let joins = |token: &str| token.trim_start_matches(MARK).contains(MARK);
    vocab.contains_key("▁") && !vocab.keys().any(|token| joins(token))
}

/// Whether each digit is a pre-token of its own; None where not all steps are known.
fn splits_by_pattern(pre: &Json) -> Option<bool> {
    let bytes = |step: &Json, regex: bool| {
        step["type"] == "ByteLevel"
            && step["add_prefix_space"] == false
            && step["use_regex"] == regex
    };
    if bytes(pre, true) {
        return Some(false); // GPT-2's pattern
    }
    match pre["pretokenizers"].as_array()?.as_slice() {
        [split, last] if bytes(last, false) => digits_alone(&isolated(split)?),
        // StarCoder's: numbers or digits, and GPT-2's pattern between them.
        [digits, last] if digits["type"] == "Digits" && bytes(last, true) => {
            digits["individual_digits"].as_bool()
        }
        [a, b, c, last] if bytes(last, false) => {
            let patterns = [isolated(a)?, isolated(b)?, isolated(c)?];
            (patterns == DEEPSEEK).then_some(false)
        }
        _ => None,
    }
}

/// The pattern of a step that makes a pre-token of each match, and of what is between two; line ends
/// as escapes.
fn isolated(split: &Json) -> Option<String> {
    let isolates =
        split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
    let pattern = split["pattern"]["Regex"].as_str().filter(|_| isolates)?;
    Some(pattern.replace('\r', r"\r").replace('\n', r"\n"))
}

/// DeepSeek-V3's, one after the other: numbers, Chinese and Japanese, and the rest. None
/// goes on over a space, or leaves a run of ASCII letters before its end.
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

const LETTERS: u8 = 1;
const DIGITS: u8 = 2;
const OTHERS: u8 = 4;
const SPACES: u8 = 8;

/// What the patterns of GPT-2 and its successors are made of, and what each part matches. No part
/// looks behind, goes on over a space, or leaves a run of ASCII letters or digits before its end.
const ALTERNATIVES: [(&str, u8); 28] = [
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", 0),
    (r"'(?i:[sdmt]|ll|ve|re)", 0),
    ("'s", 0),
    ("'t", 0),
    ("'re", 0),
    ("'ve", 0),
    ("'m", 0),
    ("'ll", 0),
    ("'d", 0),
    (r"[^\r\n\p{L}\p{N}]?\p{L}+", LETTERS),
    (r"[^\r\n\p{L}\p{N}]?+\p{L}+", LETTERS),
    (r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", LETTERS),
    (r" ?\p{L}+", LETTERS),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        0,
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        LETTERS,
    ),
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", 0),
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*", LETTERS),
    (r"\p{N}", DIGITS),
    (r"\p{N}{1,3}", DIGITS),
    (r" ?\p{N}+", DIGITS),
    (r" ?[^\s\p{L}\p{N}]+[\r\n]*", OTHERS),
    (r" ?[^\s\p{L}\p{N}]+[\r\n/]*", OTHERS),
    (r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", OTHERS),
    (r" ?[^\s\p{L}\p{N}]+", OTHERS),
    (r"\s*[\r\n]+", 0),
    (r"\s*[\r\n]", 0),
    (r"\s+(?!\S)", 0),
    (r"\s+", SPACES),
];

/// None if a part is not known, or one is missing.
fn digits_alone(pattern: &str) -> Option<bool> {
    let (mut matched, mut alone) = (0, true);
    for part in alternatives(pattern) {
        let (_, what) = ALTERNATIVES.iter().find(|(known, _)| *known == part)?;
        matched |= what;
        alone &= *what != DIGITS || part == r"\p{N}";
    }
    (matched == LETTERS | DIGITS | OTHERS | SPACES).then_some(alone)
}

/// The parts between the bars that stand in no bracket. None of the known parts escapes a bracket
/// or a bar, so a pattern that does is not taken for one of them.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (vec![], 0, 0i32);
    for (i, c) in pattern.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&pattern[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[start..]);
    parts
}

#[cfg(test)]
#[path = "cuts_test.rs"]
mod tests;
