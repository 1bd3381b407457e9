//! Decoders of tokenizer.json against what their definitions say about single tokens.

use super::*;
use serde_json::json;

fn plan(decoder: Json) -> DecoderPlan {
    DecoderPlan::from_json(&decoder)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn llama() -> DecoderPlan {
    plan(json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
}

#[test]
fn the_byte_alphabet_is_a_bijection() {
    let alphabet = byte_level_alphabet();
    let mut bytes: Vec<u8> = alphabet.values().copied().collect();
    bytes.sort();
    assert_eq!(alphabet.len(), 256);
    assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    // The two that everybody knows from vocabularies of this kind.
    assert_eq!(alphabet[&'\u{120}'], b' ');
    assert_eq!(alphabet[&'\u{10a}'], b'\n');
}

#[test]
fn byte_level_pieces_are_bytes() {
    let plan = plan(json!({"type": "ByteLevel", "add_prefix_space": true}));
    assert_eq!(plan.rule, JoinRule::Bytes);
    assert_eq!(plan.piece("\u{120}the"), b" the");
    assert_eq!(plan.piece("\u{c3}\u{b6}"), "\u{f6}".as_bytes());
    assert_eq!(text(plan.piece("\u{65e5} x")), "\u{65e5} x", "an added token stands for itself");
    assert!(!plan.is_byte_token("<0x0A>"));
}

#[test]
fn sentencepiece_pieces_are_text_and_bytes() {
    let plan = llama();
    assert_eq!((plan.rule, plan.strip_left, plan.strip_char), (JoinRule::ByteRuns, 1, ' '));
    assert_eq!(text(plan.piece("\u{2581}a\u{2581}")), " a ");
    assert_eq!(plan.piece("<0xE4>"), [0xE4]);
    assert!(plan.is_byte_token("<0x0A>") && !plan.is_byte_token("<0xG0>"));
    assert!(!plan.is_byte_token("<0x0A") && !plan.is_byte_token("<0x\u{e4}>"));
    assert_eq!(plan.first_piece("\u{2581}a"), None);
}

#[test]
fn bytes_are_what_tokens_are_after_replacing() {
    let plan = plan(json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "B6>"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "ten"}, "content": "<0x0A>"},
        {"type": "ByteFallback"}, {"type": "Fuse"}]}));
    assert_eq!((text(plan.piece("<0xB6>")), plan.is_byte_token("<0xB6>")), ("<0x ".into(), false));
    assert_eq!((text(plan.piece("ten")), plan.is_byte_token("ten")), ("\n".into(), true));
}

#[test]
fn metaspace_drops_the_first_space_only() {
    let plan = plan(json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}));
    assert_eq!(text(plan.piece("_a")), " a");
    assert_eq!(plan.first_piece("_a").map(text), Some("a".into()));
    assert_eq!(plan.first_piece("a"), None);
    for never in [json!({"prepend_scheme": "never"}), json!({"add_prefix_space": false})] {
        let mut step = json!({"type": "Metaspace", "replacement": "_"});
        step.as_object_mut().unwrap().extend(never.as_object().unwrap().clone());
        assert_eq!(DecoderPlan::from_json(&step).first_piece("_a"), None, "{step}");
    }
}

#[test]
fn whatever_has_no_rule_is_left_to_the_decoder() {
    for decoder in [
        json!(null),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]}),
        // Strip before Fuse works on each token.
        json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        json!({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 0, "stop": 1}]}),
        json!({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]}),
        json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}),
        // The first token without its mark could be a byte.
        json!({"type": "Sequence", "decoders": [
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}, {"type": "ByteFallback"}]}),
    ] {
        assert_eq!(plan(decoder.clone()).rule, JoinRule::Opaque, "{decoder}");
    }
}
