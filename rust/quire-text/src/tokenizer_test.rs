//! Tokenizers from model directories made here.

use super::*;
use serde_json::json;
use std::path::PathBuf;

/// A folder with the given files, gone at the end of the test.
struct ModelDir(PathBuf);

impl ModelDir {
    fn new(name: &str, files: &[(&str, Json)]) -> Self {
        let dir = std::env::temp_dir().join(format!("quire_{name}_{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (file, content) in files {
            std::fs::write(dir.join(file), content.to_string()).unwrap();
        }
        ModelDir(dir)
    }
    fn load(&self) -> Result<TextTokenizer, String> {
        load(ModelFiles::Folder(&self.0)).map_err(|e| e.0)
    }
}

impl Drop for ModelDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All ids, in one piece and without a budget.
fn encode(tokenizer: &TextTokenizer, text: &[u8]) -> TextResult<Vec<i32>> {
    // SAFETY: 0 is no limit.
    let (budget, memory) = unsafe { (Budget::from_address(0), WorkingMemory::from_address(0)) };
    tokenizer.encode(text, false, Keep::All, usize::MAX, budget, memory)
}

/// Bytes H, e, l, o and a space, and two merges.
fn byte_level() -> Json {
    json!({"version": "1.0", "added_tokens": [{"id": 7, "content": "<s>", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"H": 0, "e": 1, "l": 2, "o": 3, "\u{120}": 4, "ll": 5, "He": 6},
                  "merges": [["l", "l"], ["H", "e"]]}})
}

#[test]
fn encodes_and_decodes_by_the_file() {
    let tokenizer = ModelDir::new("encodes", &[("tokenizer.json", byte_level())]).load().unwrap();
    assert_eq!(encode(&tokenizer, b"Hello <s>").unwrap(), [6, 5, 3, 4, 7]);
    assert_eq!(tokenizer.decode(&[6, 5, 3, 4, 7], false).unwrap(), "Hello <s>");
    assert_eq!(tokenizer.decode(&[6, 5, 3, 4, 7], true).unwrap(), "Hello ");
    assert_eq!(tokenizer.vocab_size(), 8);
    assert_eq!(tokenizer.token_bytes(4), b" ");
    assert!(tokenizer.is_special(7) && !tokenizer.is_special(0) && !tokenizer.is_special(99));
    assert_eq!((tokenizer.token_to_id(b"ll"), tokenizer.token_to_id(b"\xff")), (5, -1));
}

#[test]
fn ids_and_texts_outside_are_errors() {
    let tokenizer = ModelDir::new("outside", &[("tokenizer.json", byte_level())]).load().unwrap();
    for bad in [-1, 8, i32::MAX, i32::MIN] {
        assert!(tokenizer.decode(&[bad], false).unwrap_err().0.contains("outside [0, 8)"));
    }
    assert!(encode(&tokenizer, b"a\xff").unwrap_err().0.contains("byte 1"));
}

#[test]
fn tokens_of_the_config_join_the_vocabulary() {
    let config = json!({"added_tokens_decoder": {"9": {"content": "<b>"}, "8": {"content": "<a>", "special": true}},
        "eos_token": {"content": "<e>"}, "image_token": "<i>", "additional_special_tokens": ["<x>", "<a>"]});
    let files = [("tokenizer.json", byte_level()), ("tokenizer_config.json", config)];
    let tokenizer = ModelDir::new("config", &files).load().unwrap();
    let tokens: Vec<_> =
        (8..tokenizer.vocab_size()).map(|id| tokenizer.token(id).unwrap()).collect();
    assert_eq!(tokens, ["<a>", "<b>", "<e>", "<i>", "<x>"]);
    assert_eq!(tokenizer.special_token("eos_token"), Some("<e>"));
    assert_eq!(tokenizer.special_token("pad_token"), None);
    assert!(tokenizer.is_special(8) && !tokenizer.is_special(9) && tokenizer.is_special(10));
}

#[test]
fn truncation_and_padding_of_the_file_are_ignored() {
    let mut file = byte_level();
    file["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    file["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "H"});
    let tokenizer = ModelDir::new("cut", &[("tokenizer.json", file)]).load().unwrap();
    assert_eq!(encode(&tokenizer, b"Hello").unwrap(), [6, 5, 3]);
}

#[test]
fn bad_files_are_named() {
    for (name, file) in [("text", json!("x")), ("empty", json!({}))] {
        let error = ModelDir::new(name, &[("tokenizer.json", file)]).load().err().unwrap();
        assert!(error.contains("tokenizer.json"), "{error}");
    }
    let mut huge = byte_level();
    huge["model"]["vocab"]["o"] = json!(1 << 24);
    let error = ModelDir::new("huge", &[("tokenizer.json", huge)]).load().err().unwrap();
    assert!(error.contains("above the limit"), "{error}");
    let error = ModelDir::new("none", &[]).load().err().unwrap();
    assert!(error.contains("no such file"), "{error}");
}
