//! The text files of a model directory, read and checked.

use crate::error::{fail, TextError, TextResult};
use crate::tekken;
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

/// No known tokenizer.json exceeds 40 MB; a larger file is a mistake or an attack.
const MAX_TOKENIZER_BYTES: u64 = 128 << 20;
/// The other files stay below 2 MB, and their values take many times as much memory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Contents of `dir/name`, or None where there is no such file.
pub fn read_optional(dir: &Path, name: &str) -> TextResult<Option<Vec<u8>>> {
    let path = dir.join(name);
    let size = match fs::metadata(&path) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => return fail(format!("{}: not a file", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return fail(format!("{}: {e}", path.display())),
    };
    let is_tokenizer = matches!(name, "tokenizer.json" | "tekken.json");
    let limit = if is_tokenizer { MAX_TOKENIZER_BYTES } else { MAX_FILE_BYTES };
    if size > limit {
        return fail(format!("{}: {size} bytes, the limit is {limit}", path.display()));
    }
    fs::read(&path).map(Some).map_err(|e| TextError(format!("{}: {e}", path.display())))
}

/// `dir/name` as a JSON object; an absent file is an empty object.
pub fn read_json_object(dir: &Path, name: &str) -> TextResult<Json> {
    let Some(bytes) = read_optional(dir, name)? else {
        return Ok(Json::Object(Default::default()));
    };
    let path: PathBuf = dir.join(name);
    match serde_json::from_slice::<Json>(&bytes) {
        Ok(value @ Json::Object(_)) => Ok(value),
        Ok(_) => fail(format!("{}: not a JSON object", path.display())),
        Err(e) => fail(format!("{}: {e}", path.display())),
    }
}

/// tokenizer_config.json, with what a tekken.json in place of a tokenizer.json leaves unsaid.
pub fn read_tokenizer_config(dir: &Path) -> TextResult<Json> {
    let mut config = read_json_object(dir, "tokenizer_config.json")?;
    if !dir.join("tokenizer.json").is_file() && dir.join("tekken.json").is_file() {
        for (name, text) in tekken::NAMES {
            if config[name].is_null() {
                config[name] = text.into();
            }
        }
    }
    Ok(config)
}

/// A special token in a config is either its text or an object with a `content`.
pub fn token_text(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// The tokens that transformers names first, in its order.
const STANDARD_NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Named special tokens (`bos_token`, ..., and model-specific `*_token` keys) and the unnamed extra
/// ones, as transformers assembles them from tokenizer_config.json and special_tokens_map.json. Of
/// a name that is there twice the first counts.
pub struct SpecialTokens {
    pub named: Vec<(String, Json)>,
    pub extra: Vec<Json>,
}

impl SpecialTokens {
    pub fn read(dir: &Path, config: &Json) -> TextResult<Self> {
        let mut merged = config.clone();
        // With added_tokens_decoder in the config, transformers ignores the older map file.
        if config.get("added_tokens_decoder").is_none() {
            if let Json::Object(map) = read_json_object(dir, "special_tokens_map.json")? {
                for (key, value) in map {
                    merged[key] = value;
                }
            }
        }
        let mut tokens = SpecialTokens { named: vec![], extra: vec![] };
        for name in STANDARD_NAMES {
            tokens.add_named(name, &merged[name]);
        }
        for (key, value) in merged.as_object().into_iter().flatten() {
            if key.ends_with("_token") && !STANDARD_NAMES.contains(&key.as_str()) {
                tokens.add_named(key, value);
            }
        }
        for key in ["additional_special_tokens", "extra_special_tokens"] {
            match &merged[key] {
                Json::Array(list) => tokens.extra.extend(list.iter().cloned()),
                Json::Object(map) => map.iter().for_each(|(k, v)| tokens.add_named(k, v)),
                _ => {}
            }
        }
        Ok(tokens)
    }

    fn add_named(&mut self, name: &str, value: &Json) {
        if token_text(value).is_some() {
            self.named.push((name.to_string(), value.clone()));
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(n, _)| n == name).and_then(|(_, v)| token_text(v))
    }
}
