//! Nothing takes more memory than was asked for, whatever the tokenizer and the text.

use super::*;
use crate::allowance::peak;
use crate::budget::Budget;
use crate::model_files::ModelFiles;
use crate::tokenizer::{self, Keep, TextTokenizer};
use serde_json::{json, Value as Json};
use std::path::Path;

const KIB: usize = 1 << 10;

fn parity_file(name: &str) -> Json {
    let path =
        format!("{}/../../tests/parity/text/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(Path::new(&path)).unwrap()).unwrap()
}

fn load(file: &Json) -> TextTokenizer {
    let text = file.to_string();
    let files = [("tokenizer.json", text.as_bytes()), ("tokenizer_config.json", b"{}".as_slice())];
    tokenizer::load(ModelFiles::Made { origin: "made", files: &files }).unwrap()
}

fn split(pattern: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

/// One for every kind of model, normalizer and pre-tokenizer.
fn tokenizers() -> Vec<(&'static str, Json)> {
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let mut all: Vec<_> = ["qwen", "llama3", "llama2", "gemma", "mistral", "metaspace"]
        .map(|name| (name, parity_file(name)))
        .into();

    let mut each = parity_file("qwen");
    each["normalizer"] = json!({"type": "NFKC"});
    each["pre_tokenizer"] =
        json!({"type": "Sequence", "pretokenizers": [split("\\p{L}|\\p{N}"), bytes]});
    all.push(("each character", each));

    let mut unigram = parity_file("llama2");
    let vocab = unigram["model"]["vocab"].as_object().unwrap().clone();
    let rest = vocab.keys().filter(|token| *token != "<unk>");
    let mut scored = vec![json!(["<unk>", 0.0])];
    scored.extend(rest.enumerate().map(|(i, token)| json!([token, -5.0 - i as f64 / 100.0])));
    unigram["model"] =
        json!({"type": "Unigram", "unk_id": 0, "vocab": scored, "byte_fallback": true});
    unigram["normalizer"] = Json::Null;
    unigram["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
    all.push(("unigram", unigram.clone()));
    unigram["normalizer"] = json!({"type": "NFKC"});
    unigram["pre_tokenizer"]["split"] = json!(true);
    all.push(("unigram after NFKC", unigram.clone()));
    // One byte becomes 40.
    unigram["normalizer"] =
        json!({"type": "Replace", "pattern": {"String": "a"}, "content": "ab".repeat(20)});
    all.push(("unigram after replacement", unigram.clone()));

    let letters = ('!'..='~').flat_map(|c| [c.to_string(), format!("##{c}")]);
    let mut vocab: serde_json::Map<String, Json> =
        letters.enumerate().map(|(id, token)| (token, json!(id + 1))).collect();
    vocab.insert("[UNK]".into(), json!(0));
    unigram["added_tokens"] = json!([]);
    unigram["post_processor"] = Json::Null;
    unigram["decoder"] = Json::Null;
    unigram["normalizer"] = json!({"type": "BertNormalizer", "clean_text": true,
        "handle_chinese_chars": true, "strip_accents": null, "lowercase": true});
    unigram["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});
    unigram["model"] = json!({"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab,
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 100});
    all.push(("wordpiece", unigram));
    all
}

/// `bytes` or a little more, of characters that `pick` chooses by their place.
fn filled(bytes: usize, pick: impl Fn(usize) -> char) -> String {
    let mut text = String::new();
    for i in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push(pick(i));
    }
    text
}

fn one_of(first: u32, count: usize) -> impl Fn(usize) -> char {
    move |i| char::from_u32(first + (i * 7919 % count) as u32).unwrap()
}

fn texts(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |what: &str| what.repeat(bytes / what.len() + 1);
    vec![
        ("prose", repeated("The lazy dog jumps over 3 quick, brown foxes.\n")),
        ("code", repeated("    if (x[i] == 42) { return foo_bar(baz, 'qux'); }\n")),
        ("one letter", repeated("a")),
        ("letters", filled(bytes, one_of('a' as u32, 26))),
        ("digits", filled(bytes, one_of('0' as u32, 10))),
        ("digits and spaces", repeated("1 2 ")),
        ("digits and apostrophes", repeated("1'")),
        ("letters and digits", repeated("a1")),
        ("punctuation", filled(bytes, one_of('!' as u32, 14))),
        ("spaces", repeated(" ")),
        ("lines", repeated("\n")),
        ("tabs", repeated("\ta")),
        ("control characters", filled(bytes, one_of(1, 8))),
        ("Chinese", filled(bytes, one_of(0x4E00, 5000))),
        ("Chinese sentences", repeated("日。本。")),
        ("Korean", filled(bytes, one_of(0xAC00, 11000))),
        ("Arabic digits", filled(bytes, one_of(0x660, 10))),
        ("faces", filled(bytes, one_of(0x1F600, 64))),
        ("accents", repeated("e\u{301}\u{301}")),
        ("grows with NFC", repeated("\u{1D160}")),
        ("grows with NFKC", repeated("\u{FDFA}")),
        ("added tokens", repeated("<|im_start|>")),
        ("short added tokens", repeated("<s>")),
    ]
}

#[test]
fn what_is_asked_for_is_enough() {
    for (name, file) in tokenizers() {
        let tokenizer = load(&file);
        for (what, text) in texts(24 * KIB) {
            for special in [false, true] {
                let asked = tokenizer.bytes_to_encode(&text, 0);
                let (ids, taken) = peak::of(|| tokenizer.encode_whole(&text, special));
                assert!(ids.is_ok(), "{name}, {what}");
                assert!(taken <= asked, "{name}, {what}: {taken} bytes of {asked}");
            }
        }
    }
}

/// Remembers what was asked for, and gives only so much.
struct Purse {
    left: usize,
    given: Vec<usize>,
}

unsafe extern "C" fn try_add(owner: *mut c_void, bytes: usize) -> bool {
    // SAFETY: `lent` below passes a purse.
    let purse = unsafe { &mut *owner.cast::<Purse>() };
    if bytes > purse.left {
        return false;
    }
    purse.left -= bytes;
    purse.given.push(bytes);
    true
}

/// What is asked for while a text is tokenised in pieces of 4 KiB, and whether it was.
fn lent(tokenizer: &TextTokenizer, text: &str, keep: Keep, left: usize) -> (Vec<usize>, bool) {
    let mut purse = Purse { left, given: vec![] };
    let lender = Lender { try_add, owner: std::ptr::from_mut(&mut purse).cast() };
    // SAFETY: 0 is no limit, and the lender outlives the call.
    let (budget, memory) = unsafe {
        let address = std::ptr::from_ref(&lender) as usize;
        (Budget::from_address(0), WorkingMemory::from_address(address))
    };
    let done = tokenizer.encode(text.as_bytes(), true, keep, 4 * KIB, budget, memory).is_ok();
    (purse.given, done)
}

#[test]
fn the_largest_piece_is_asked_for_before_it_is_taken() {
    let tokenizer = load(&parity_file("qwen"));
    let prose = "The lazy dog jumps over 3 quick, brown foxes.\n".repeat(200);
    assert_eq!(lent(&tokenizer, &prose, Keep::All, 0), (vec![], true));

    let word = "b".repeat(100 * KIB);
    let text = format!("{prose} {word} {prose}");
    for keep in [Keep::All, Keep::First(200 * KIB), Keep::Last(200 * KIB)] {
        let (given, done) = lent(&tokenizer, &text, keep, usize::MAX);
        let all: usize = given.iter().sum();
        assert!(done && all > 40 << 20 && all < 60 << 20, "{given:?}");
        let (given, taken) = peak::of(|| lent(&tokenizer, &text, keep, all - 1));
        assert!(!given.1 && taken < 2 * OWN_BYTES, "{given:?}, {taken} bytes");
    }
    // A part that is not wanted needs no memory.
    assert_eq!(lent(&tokenizer, &text, Keep::Last(100), 0), (vec![], true));
}

#[test]
fn ids_that_are_there_count() {
    let tokenizer = load(&parity_file("llama3"));
    let short = lent(&tokenizer, &"a ".repeat(100 * KIB), Keep::All, usize::MAX).0;
    let long = lent(&tokenizer, &"a ".repeat(200 * KIB), Keep::All, usize::MAX).0;
    let difference = long.iter().sum::<usize>() - short.iter().sum::<usize>();
    assert!(difference > 90 * KIB * BYTES_FOR_ID && difference < 210 * KIB * BYTES_FOR_ID);
}

/// Nothing of long words stays behind.
#[test]
fn no_words_are_kept() {
    for file in [parity_file("qwen"), parity_file("llama2")] {
        let tokenizer = load(&file);
        let words = |n: usize| {
            // All differ: their letters are the bits of i.
            let letter = |i: usize, k: usize| if i >> (k % 12) & 1 == 1 { 'b' } else { 'a' };
            let word = |i: usize| format!("{} ", filled(200, |k| letter(i, k)));
            (n..n + 200).map(word).collect::<String>()
        };
        // The crate's regular expressions keep some memory of their own.
        tokenizer.encode_whole(&words(0), false).unwrap();
        let held = peak::held();
        for n in 1..10 {
            tokenizer.encode_whole(&words(n * 200), false).unwrap();
        }
        assert!(peak::held() - held < 64 * KIB as isize, "{} bytes", peak::held() - held);
    }
}
