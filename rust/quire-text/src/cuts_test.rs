//! The ids of pieces are those of the whole.

use super::*;
use crate::budget::Budget;
use crate::model_files::ModelFiles;
use crate::tokenizer::{self, Keep, TextTokenizer};
use crate::working_memory::WorkingMemory;
use serde_json::json;

/// The tokenizer of tests/parity/text/qwen with other steps before the model.
fn tokenizer(normalizer: Json, steps: Json) -> TextTokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/parity/text/qwen/tokenizer.json");
    let mut file: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    // With numbers among its tokens, so that a cut inside one shows.
    for (id, digit) in ["1", "2", "3", "4"].iter().enumerate() {
        file["model"]["vocab"][digit.repeat(2)] = json!(1000 + id);
        file["model"]["merges"].as_array_mut().unwrap().push(json!([digit, digit]));
    }
    file["normalizer"] = normalizer;
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": steps});
    let text = file.to_string();
    let files = [("tokenizer.json", text.as_bytes()), ("tokenizer_config.json", b"{}".as_slice())];
    tokenizer::load(ModelFiles::Made { origin: "made", files: &files }).unwrap()
}

fn split(pattern: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn byte_level(use_regex: bool) -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

fn deepseek() -> TextTokenizer {
    // The published file has the line ends themselves.
    let published = DEEPSEEK.map(|pattern| pattern.replace(r"\r", "\r").replace(r"\n", "\n"));
    let mut steps: Vec<Json> = published.iter().map(|pattern| split(pattern)).collect();
    steps.push(byte_level(false));
    tokenizer(json!({"type": "Sequence", "normalizers": []}), steps.into())
}

fn starcoder(individual: bool) -> TextTokenizer {
    let digits = json!({"type": "Digits", "individual_digits": individual});
    tokenizer(Json::Null, json!([digits, byte_level(true)]))
}

fn qwen() -> TextTokenizer {
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    tokenizer(json!({"type": "NFC"}), json!([split(pattern), byte_level(false)]))
}

fn encode(tokenizer: &TextTokenizer, text: &str, piece_bytes: usize) -> Vec<i32> {
    // SAFETY: 0 is no limit.
    let (budget, memory) = unsafe { (Budget::from_address(0), WorkingMemory::from_address(0)) };
    tokenizer.encode(text.as_bytes(), false, Keep::All, piece_bytes, budget, memory).unwrap()
}

/// What the patterns treat in ways of their own.
const PARTS: &[&str] = &[
    "a",
    "The",
    "dogs",
    "don't",
    "'s",
    "'",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    " \n",
    "1",
    "22",
    "333",
    "4444",
    "3.14",
    "-7",
    "x1",
    ",",
    ".",
    "!?",
    "(",
    "{\"k\":",
    "</a>",
    "_",
    "\\",
    "é",
    "e\u{301}",
    "\u{301}",
    "日本語",
    "你好",
    "。",
    "，",
    "ひらがな",
    "カタカナ",
    "한국어",
    "🙂",
    "\u{200b}",
    "\u{a0}",
    "\u{3000}",
    "²",
    "Ⅷ",
    "٣",
    "\u{1}",
    "\u{7f}",
    "\u{e000}",
    "<|im_start|>",
    "<think>",
    "<|im_",
    "\u{378}",
];

/// Texts of parts, with and without spaces between them.
fn texts() -> impl Iterator<Item = String> {
    let mut state = 7u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    (0..2000).map(move |_| {
        let spaces = next(4);
        let length = 1 + next(40);
        (0..length)
            .map(|_| PARTS[next(PARTS.len())].to_string() + if next(4) < spaces { " " } else { "" })
            .collect()
    })
}

#[test]
fn pieces_have_the_ids_of_the_whole() {
    for tokenizer in [deepseek(), starcoder(true), starcoder(false), qwen()] {
        for text in texts() {
            let whole = encode(&tokenizer, &text, usize::MAX);
            for piece_bytes in [1, 9] {
                assert_eq!(encode(&tokenizer, &text, piece_bytes), whole, "{text:?}");
            }
        }
    }
}

#[test]
fn long_texts_are_cut() {
    let prose = "The lazy dog jumps over 3 quick, brown foxes.\n".repeat(1000);
    let digits = "31415926535".repeat(1000);
    let longest = |tokenizer: &TextTokenizer, text: &str| {
        let cutter = Cutter::new(&tokenizer.inner).unwrap();
        let mut cuts = vec![0];
        while let Some(cut) = cutter.first_cut(text, cuts[cuts.len() - 1] + 1, text.len()) {
            cuts.push(cut);
        }
        cuts.push(text.len());
        cuts.windows(2).map(|cut| cut[1] - cut[0]).max().unwrap()
    };
    for tokenizer in [deepseek(), starcoder(true), starcoder(false), qwen()] {
        assert!(longest(&tokenizer, &prose) < 10);
    }
    // Only where each digit is a pre-token of its own.
    assert_eq!(longest(&qwen(), &digits), 1);
    assert_eq!(longest(&starcoder(true), &digits), 1);
    assert_eq!(longest(&starcoder(false), &digits), digits.len());
    assert_eq!(longest(&deepseek(), &digits), digits.len());
}

#[test]
fn other_steps_are_not_known() {
    let unknown = [
        json!([split(r"\p{N}{1,4}"), split(DEEPSEEK[1]), split(DEEPSEEK[2]), byte_level(false)]),
        json!([split(DEEPSEEK[1]), split(DEEPSEEK[0]), split(DEEPSEEK[2]), byte_level(false)]),
        json!([{"type": "Digits", "individual_digits": true}, byte_level(false)]),
        json!([{"type": "Punctuation", "behavior": "Isolated"}, byte_level(true)]),
    ];
    for steps in unknown {
        assert!(Cutter::new(&tokenizer(Json::Null, steps).inner).is_none());
    }
}
