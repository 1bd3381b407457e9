"""The tokenizer that all tiny checkpoints share: byte-level BPE, 320 ids.

Ids 0-255 are the bytes in ByteLevel's printable alphabet, 256-313 come from a fixed list of merges,
314-319 are special. A checkpoint may have a larger vocabulary (331): those ids have no text, just as
in published checkpoints whose embedding is padded.
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIALS = ["<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>", "<|reserved|>"]

# Pairs of existing tokens, in merge order; "Ġ" is ByteLevel's space.
MERGES = """
Ġ t|Ġ a|h e|i n|r e|o n|e r|n d|Ġt he|Ġ s|Ġ w|o u|a t|i s|e n|o r|i t|e s|Ġ c|Ġ b|Ġ f|Ġ p|Ġ o|in g
|Ġ m|e d|a n|a l|Ġa nd|Ġ h|Ġ d|a r|l l|l e|Ġo f|Ġt o|Ġ in|Ġ i|i c|Ġ l|a s|r o|Ġ n|o m|Ġ e|i on|v e
|Ġ g|e l|s t|o t|u r|i l|c h|Ġ re|Ġb e|u t|l o
"""

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def special_ids() -> dict[str, int]:
    merges = MERGES.replace("\n", "").split("|")
    return {token: 256 + len(merges) + i for i, token in enumerate(SPECIALS)}


def write(folder: pathlib.Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and generation_config.json."""
    merges = [tuple(pair.split(" ")) for pair in MERGES.replace("\n", "").split("|")]
    words = sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in merges]
    assert len(set(words)) == len(words), "a merge is listed twice"
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    ids = special_ids()
    assert all(tokenizer.token_to_id(token) == i for token, i in ids.items())
    (folder / "tokenizer.json").write_text(tokenizer.to_str() + "\n")

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {
        "bos_token_id": ids["<|bos|>"],
        "eos_token_id": [ids["<|eos|>"], ids["<|im_end|>"]],
        "pad_token_id": ids["<|pad|>"],
        "do_sample": False,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
