"""Writes tests/parity/text/tekken/: a small tekken.json, and what mistral-common makes of it.

    python3 tools/parity/make_tekken_cases.py     (packages: requirements.txt, and mistral-common 1.13.1)

The vocabulary is learned from this folder's texts. Running it again gives the same files.
"""

import base64
import json

from make_text_cases import OUT, byte_level, bytes_to_unicode, write_json
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from text_corpus import TRICKY

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
WORD = r"[^\r\n\p{L}\p{N}]?"
# tekken's own pattern: words by their case, digits one by one.
SPLIT = (f"{WORD}{UPPER}*{LOWER}+|{WORD}{UPPER}+{LOWER}*" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "<pad>", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"]
NUM_SPECIAL = 24
MORE = ["camelCaseWords HTTPServer iPhone ÉCOLE Éa", "12345 3.14 v2", "path/to/\n/x ///\n\n", "  indented\n\tcode()  \n",
        "aaaaaaaaaaaa bbbb", "日本語テキスト", "👩‍👩‍👧‍👦 a\u0301b", "The the THE tHe", "don't we'll I'M"]


def tekken_file():
    learned = json.loads(byte_level(SPLIT, 420).to_str())["model"]["vocab"]
    to_byte = {c: b for b, c in bytes_to_unicode().items()}
    known = [bytes([b]) for b in range(256)]
    for token in sorted(learned, key=learned.get):
        piece = bytes(to_byte[c] for c in token)
        if piece not in known:
            known.append(piece)
    # More tokens than count, as published files have.
    extra = [b"never used", b"nor this"]
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(),
              "token_str": piece.decode("utf-8", "ignore") or None} for rank, piece in enumerate(known + extra)]
    special = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(SPECIAL)]
    config = {"pattern": SPLIT, "num_vocab_tokens": len(vocab), "default_vocab_size": len(known) + NUM_SPECIAL,
              "default_num_special_tokens": NUM_SPECIAL, "version": "v13"}
    return {"config": config, "vocab": vocab, "special_tokens": special}


def main():
    folder = OUT / "tekken"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tekken.json", tekken_file())
    tokenizer = Tekkenizer.from_file(folder / "tekken.json")
    cases = []
    for text in TRICKY + MORE:
        if any(token in text for token in SPECIAL):
            continue  # mistral-common reads no special token out of a text; a template's text needs it
        ids = tokenizer.encode(text, bos=False, eos=False)
        cases.append({"text": text, "ids": ids, "with_bos": tokenizer.encode(text, bos=True, eos=False),
                      "cut": tokenizer.decode(ids[1:], SpecialTokenPolicy.IGNORE)})
    inst, tools = tokenizer.get_special_token("[INST]"), tokenizer.get_special_token("[TOOL_CALLS]")
    ids = [1, inst, *tokenizer.encode("Hi", bos=False, eos=False), tools, 23, 2]
    write_json(folder / "cases.json", {
        "vocab_size": tokenizer.n_words, "special_ids": sorted(tokenizer.special_ids), "cases": cases,
        "special": {"ids": ids, "keep": tokenizer.decode(ids, SpecialTokenPolicy.KEEP),
                    "skip": tokenizer.decode(ids, SpecialTokenPolicy.IGNORE)},
    })


if __name__ == "__main__":
    main()
