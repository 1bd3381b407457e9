//! The text files of a model, read and checked.

use crate::error::{fail, TextError, TextResult};
use crate::tekken;
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// No known tokenizer.json exceeds 40 MB; a larger file is a mistake or an attack.
const MAX_TOKENIZER_BYTES: u64 = 128 << 20;
/// The other files stay below 2 MB, and their values take many times as much memory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Where the files come from.
#[derive(Clone, Copy)]
pub enum ModelFiles<'a> {
    Folder(&'a Path),
    /// Texts that were made of what another file says; `origin` is its name.
    Made {
        origin: &'a str,
        files: &'a [(&'a str, &'a [u8])],
    },
}

impl ModelFiles<'_> {
    /// A file's name for messages.
    pub fn name(&self, file: &str) -> String {
        match self {
            ModelFiles::Folder(dir) => dir.join(file).display().to_string(),
            ModelFiles::Made { origin, .. } => format!("{origin}: {file}"),
        }
    }

    pub fn has(&self, file: &str) -> bool {
        match self {
            ModelFiles::Folder(dir) => dir.join(file).is_file(),
            ModelFiles::Made { files, .. } => files.iter().any(|(name, _)| *name == file),
        }
    }
}

/// Contents of a file, or None where there is no such file.
pub fn read_optional(from: ModelFiles, name: &str) -> TextResult<Option<Vec<u8>>> {
    let is_tokenizer = matches!(name, "tokenizer.json" | "tekken.json");
    let limit = if is_tokenizer { MAX_TOKENIZER_BYTES } else { MAX_FILE_BYTES };
    let too_long =
        |size: u64| fail(format!("{}: {size} bytes, the limit is {limit}", from.name(name)));
    let dir = match from {
        ModelFiles::Folder(dir) => dir,
        ModelFiles::Made { files, .. } => {
            let found = files.iter().find(|(known, _)| *known == name);
            return match found {
                Some((_, text)) if text.len() as u64 > limit => too_long(text.len() as u64),
                other => Ok(other.map(|(_, text)| text.to_vec())),
            };
        }
    };
    let path = dir.join(name);
    let size = match fs::metadata(&path) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => return fail(format!("{}: not a file", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return fail(format!("{}: {e}", path.display())),
    };
    if size > limit {
        return too_long(size);
    }
    fs::read(&path).map(Some).map_err(|e| TextError(format!("{}: {e}", path.display())))
}

/// A file as a JSON object; an absent one is an empty object.
pub fn read_json_object(from: ModelFiles, name: &str) -> TextResult<Json> {
    let Some(bytes) = read_optional(from, name)? else {
        return Ok(Json::Object(Default::default()));
    };
    match serde_json::from_slice::<Json>(&bytes) {
        Ok(value @ Json::Object(_)) => Ok(value),
        Ok(_) => fail(format!("{}: not a JSON object", from.name(name))),
        Err(e) => fail(format!("{}: {e}", from.name(name))),
    }
}

/// tokenizer_config.json, with what a tekken.json in place of a tokenizer.json leaves unsaid.
pub fn read_tokenizer_config(from: ModelFiles) -> TextResult<Json> {
    let mut config = read_json_object(from, "tokenizer_config.json")?;
    if !from.has("tokenizer.json") && from.has("tekken.json") {
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
    pub fn read(from: ModelFiles, config: &Json) -> TextResult<Self> {
        let mut merged = config.clone();
        // With added_tokens_decoder in the config, transformers ignores the older map file.
        if config.get("added_tokens_decoder").is_none() {
            if let Json::Object(map) = read_json_object(from, "special_tokens_map.json")? {
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
