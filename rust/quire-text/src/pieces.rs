//! What each token contributes to the decoded text, worked out once at load.
//!
//! A decoder of tokenizer.json maps a whole list of tokens to text. For the decoders that language
//! models use, that map is a per-token piece plus a rule for joining pieces; `JoinRule` names it.

use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::OnceLock;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinRule {
    /// Pieces are raw bytes; the text is their lossy UTF-8 (decoder `ByteLevel`).
    Bytes,
    /// Pieces are text; runs of `<0xNN>` tokens are decoded together (SentencePiece style).
    ByteRuns,
    /// Anything else: only the decoder itself knows.
    Opaque,
}

/// The decoder of a tokenizer.json, reduced to what streaming needs.
#[derive(Clone, Debug)]
pub struct DecoderPlan {
    pub rule: JoinRule,
    /// Literal replacements applied to each token, in order.
    replace: Vec<(String, String)>,
    pub byte_fallback: bool,
    /// Up to this many of `strip_char` are removed from the front of the whole text.
    pub strip_left: u32,
    pub strip_char: char,
    /// Metaspace: this character vanishes from the first token instead of becoming a space.
    first_token_drops: Option<char>,
}

impl DecoderPlan {
    pub fn from_json(decoder: &Json) -> Self {
        Self::try_from_json(decoder).unwrap_or_else(|| Self::new(JoinRule::Opaque))
    }

    fn new(rule: JoinRule) -> Self {
        DecoderPlan {
            rule,
            replace: vec![],
            byte_fallback: false,
            strip_left: 0,
            strip_char: ' ',
            first_token_drops: None,
        }
    }

    fn try_from_json(decoder: &Json) -> Option<Self> {
        let steps = match decoder["type"].as_str()? {
            "Sequence" => decoder["decoders"].as_array()?.iter().collect(),
            _ => vec![decoder],
        };
        if steps.len() == 1 && steps[0]["type"] == "ByteLevel" {
            return Some(Self::new(JoinRule::Bytes));
        }
        let mut plan = Self::new(JoinRule::ByteRuns);
        let mut fused = false;
        for step in steps {
            match step["type"].as_str()? {
                "Replace" if !fused && !plan.byte_fallback => plan.replace.push((
                    step["pattern"]["String"].as_str()?.to_string(),
                    step["content"].as_str()?.to_string(),
                )),
                "Metaspace" if !fused && !plan.byte_fallback && plan.replace.is_empty() => {
                    plan.metaspace(step)?
                }
                // A first token that loses its mark could become a byte there.
                "ByteFallback" if !fused && plan.first_token_drops.is_none() => {
                    plan.byte_fallback = true
                }
                "Fuse" => fused = true,
                // Before Fuse, Strip works on every token; after it, on the whole text.
                "Strip" if fused && step["stop"] == 0 && plan.strip_left == 0 => {
                    plan.strip_left = step["start"].as_u64()?.try_into().ok()?;
                    plan.strip_char = step["content"].as_str()?.chars().next()?;
                }
                _ => return None,
            }
        }
        Some(plan)
    }

    fn metaspace(&mut self, step: &Json) -> Option<()> {
        let mark = step["replacement"].as_str()?.chars().next()?;
        self.replace.push((mark.to_string(), " ".to_string()));
        // Without prepend_scheme, older files say add_prefix_space; both default to "always".
        let never = step["prepend_scheme"] == "never" || step["add_prefix_space"] == false;
        if !never {
            self.first_token_drops = Some(mark);
        }
        Some(())
    }

    /// The piece of `token`, the same wherever it stands but for the first place.
    pub fn piece(&self, token: &str) -> Vec<u8> {
        match self.rule {
            JoinRule::Bytes => byte_level_bytes(token),
            JoinRule::Opaque => token.as_bytes().to_vec(),
            JoinRule::ByteRuns => {
                let text = self.replaced(token);
                match byte_token(&text) {
                    Some(byte) if self.byte_fallback => vec![byte],
                    _ => text.into_bytes(),
                }
            }
        }
    }

    fn replaced(&self, token: &str) -> String {
        let mut text = token.to_string();
        for (from, to) in &self.replace {
            text = text.replace(from.as_str(), to);
        }
        text
    }

    /// The piece when `token` opens the text, where that differs from `piece`.
    pub fn first_piece(&self, token: &str) -> Option<Vec<u8>> {
        let mark = self.first_token_drops?;
        token.contains(mark).then(|| token.replace(mark, "").into_bytes())
    }

    pub fn is_byte_token(&self, token: &str) -> bool {
        self.byte_fallback && byte_token(&self.replaced(token)).is_some()
    }
}

/// `<0xE4>` -> 0xE4, by the same test as the crate's ByteFallback decoder.
fn byte_token(token: &str) -> Option<u8> {
    (token.len() == 6 && token.starts_with("<0x") && token.ends_with('>'))
        .then(|| token.get(3..5).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
        .flatten()
}

/// GPT-2's byte alphabet: printable bytes stand for themselves, the rest are moved to U+0100 up.
fn byte_level_alphabet() -> &'static HashMap<char, u8> {
    static TABLE: OnceLock<HashMap<char, u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut moved = 0u32;
        (0..=255u8)
            .map(|byte| {
                let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
                let code = if printable {
                    byte as u32
                } else {
                    moved += 1;
                    255 + moved
                };
                (char::from_u32(code).expect("below the surrogates"), byte)
            })
            .collect()
    })
}

fn byte_level_bytes(token: &str) -> Vec<u8> {
    let table = byte_level_alphabet();
    token
        .chars()
        .map(|c| table.get(&c).copied())
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The text of bytes in that alphabet.
pub fn byte_level_text(bytes: &[u8]) -> String {
    static TABLE: OnceLock<[char; 256]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = ['\0'; 256];
        for (&c, &byte) in byte_level_alphabet() {
            table[byte as usize] = c;
        }
        table
    });
    bytes.iter().map(|&byte| table[byte as usize]).collect()
}

#[cfg(test)]
#[path = "pieces_test.rs"]
mod tests;
