#!/usr/bin/env python3
"""Train the demo model's byte-level BPE tokenizer on text from generate.py.

The result has the shape of Qwen's tokenizer: NFC, the Qwen2 split pattern (each
digit by itself), byte-level BPE, and Qwen's special tokens after the ordinary
vocabulary.

    python3 make_tokenizer.py --out models/quire-demo
"""

import argparse
import json
import os
import random
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import generate

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# (text, special): special tokens are dropped by decoders that skip them.
ADDED = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<|object_ref_start|>", True), ("<|object_ref_end|>", True),
         ("<|box_start|>", True), ("<|box_end|>", True), ("<|quad_start|>", True), ("<|quad_end|>", True), ("<|vision_start|>", True),
         ("<|vision_end|>", True), ("<|vision_pad|>", True), ("<|image_pad|>", True), ("<|video_pad|>", True), ("<tool_call>", False),
         ("</tool_call>", False), ("<|fim_prefix|>", False), ("<|fim_middle|>", False), ("<|fim_suffix|>", False), ("<|fim_pad|>", False),
         ("<|repo_name|>", False), ("<|file_sep|>", False), ("<tool_response>", False), ("</tool_response>", False), ("<think>", False),
         ("</think>", False)]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--out", default="models/quire-demo")
    ap.add_argument("--vocab-size", type=int, default=4096, help="special tokens included")
    ap.add_argument("--documents", type=int, default=60000)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()

    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)

    cut = re.compile("|".join(re.escape(t) for t, _ in ADDED))

    def text():
        r = random.Random(args.seed)
        for _ in range(args.documents):
            yield from (p for p in cut.split(generate.document(r)) if p)
        for _ in range(20):  # words that tasks draw rarely
            yield " " + " ".join(generate.ALL_WORDS + generate.NAMES + generate.CITIES + list(generate.CAPITALS) + list(generate.CAPITALS.values()))

    trainer = trainers.BpeTrainer(vocab_size=args.vocab_size - len(ADDED), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  special_tokens=[], min_frequency=2, show_progress=False)
    tok.train_from_iterator(text(), trainer)
    assert tok.get_vocab_size() == args.vocab_size - len(ADDED), tok.get_vocab_size()
    tok.add_tokens([AddedToken(t, special=s, normalized=False) for t, s in ADDED])
    # add_tokens keeps only what was asked for; a second call marks the special ones as such
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, s in ADDED if s])
    assert tok.get_vocab_size() == args.vocab_size

    os.makedirs(args.out, exist_ok=True)
    tok.save(os.path.join(args.out, "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(tok.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": s}
                                 for t, s in ADDED},
        "additional_special_tokens": [t for t, s in ADDED if s and t != "<|endoftext|>"],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    with open(os.path.join(args.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2, ensure_ascii=False)
        f.write("\n")
    print("vocabulary", tok.get_vocab_size(), "<|im_end|> is", tok.token_to_id("<|im_end|>"))


if __name__ == "__main__":
    main()
