use super::*;

/// Bytes, and tokens of several in the order of their ranks.
fn file(tokens: &[&str], special: serde_json::Value) -> Vec<u8> {
    let mut vocab: Vec<_> = (0..=255u8).map(|byte| vec![byte]).collect();
    vocab.extend(tokens.iter().map(|token| token.as_bytes().to_vec()));
    let entries: Vec<_> = vocab
        .iter()
        .enumerate()
        .map(|(rank, bytes)| json!({"rank": rank, "token_bytes": base64::encode(bytes)}))
        .collect();
    json!({
        "config": {"pattern": r"\p{L}+|\s+|[^\s\p{L}]+", "default_vocab_size": vocab.len() + 24,
                   "default_num_special_tokens": 24, "version": "v3"},
        "vocab": entries, "special_tokens": special,
    })
    .to_string()
    .into_bytes()
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, false).unwrap().get_ids().to_vec()
}

#[test]
fn pairs_merge_by_the_rank_of_what_they_make() {
    // "bc" has a lower rank than "ab", and "abc" is made of either.
    let tokenizer = parse(&file(&["bc", "ab", "abc", "abcd"], json!(null))).unwrap();
    let byte = |c: char| 24 + c as u32;
    assert_eq!(ids(&tokenizer, "abc"), [24 + 258]);
    assert_eq!(ids(&tokenizer, "abce"), [24 + 258, byte('e')]);
    assert_eq!(ids(&tokenizer, "xabd"), [byte('x'), 24 + 257, byte('d')]);
    assert_eq!(ids(&tokenizer, "abcd"), [24 + 259]);
    assert_eq!(ids(&tokenizer, "<s>abc[INST]"), [1, 24 + 258, 3]);
    assert_eq!(tokenizer.encode("bc", true).unwrap().get_ids(), [1, 24 + 256]);
    assert_eq!(tokenizer.id_to_token(23).as_deref(), Some("<SPECIAL_23>"));
}

#[test]
fn listed_special_tokens_have_their_ranks() {
    let listed = json!([{"rank": 0, "token_str": "<unk>"}, {"rank": 2, "token_str": "[X]"}]);
    let tokenizer = parse(&file(&["[X"], listed)).unwrap();
    assert_eq!(tokenizer.token_to_id("[X]"), Some(2));
    assert_eq!(tokenizer.token_to_id("<SPECIAL_1>"), Some(1));
    assert_eq!(tokenizer.encode("a", true).unwrap().get_ids(), [24 + 97]); // no <s>, none before
}

#[test]
fn text_does_not_merge_to_a_special_token() {
    let listed = json!([{"rank": 0, "token_str": "zz"}]);
    let mut tokenizer = parse(&file(&["zz", "zzz"], listed)).unwrap();
    tokenizer.set_encode_special_tokens(true);
    assert!(!ids(&tokenizer, "zzy").contains(&0));
}

#[test]
fn files_that_cannot_be_are_refused() {
    let refusal = |file: Vec<u8>| parse(&file).map(|_| ()).unwrap_err().0;
    assert!(refusal(b"{}".to_vec()).contains("config"));
    assert_eq!(refusal(file(&["ab", "ab"], json!(null))), "the token of rank 257 is there twice");
    let special = json!([{"rank": 30, "token_str": "x"}]);
    assert_eq!(refusal(file(&[], special)), "the special token \"x\" has the rank 30");
    let twice = json!([{"rank": 0, "token_str": "x"}, {"rank": 1, "token_str": "x"}]);
    assert_eq!(refusal(file(&[], twice)), "a special token is there twice");
    let long = "x".repeat(2000);
    assert_eq!(refusal(file(&[&long], json!(null))), "the token of rank 256 is too long");
    let few = String::from_utf8(file(&[], json!(null))).unwrap().replace("\"YQ==\"", "\"YWI=\"");
    assert_eq!(refusal(few.into_bytes()), "there is no token of the byte 97");
    let many = String::from_utf8(file(&[], json!(null))).unwrap();
    let many = many.replace("\"default_vocab_size\":280", "\"default_vocab_size\":2800000");
    assert_eq!(refusal(many.into_bytes()), "more than 1048576 tokens");
}
