"""Writes tests/parity/text/: small tokenizers and what transformers makes of them.

    python3 tools/parity/make_text_cases.py       (packages: tools/parity/requirements.txt)

Everything is derived from the texts and templates in this folder; the output is committed, so that
the tests need no Python. Running it again with the same packages gives the same files.
"""

import codecs
import datetime
import json
import pathlib
import random

import transformers.utils.chat_template_utils as chat_template_utils
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import text_chat_cases
from text_corpus import CORPUS, TRICKY

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity" / "text"
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPLIT = QWEN_SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|")
NOW = datetime.datetime(2026, 3, 7, 9, 5, 3)


def byte_level(split, vocab_size):
    tok = Tokenizer(models.BPE(ignore_merges=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def qwen():
    """Qwen style: NFC, no bos, control tokens added; tool tags are added but not special."""
    tok = byte_level(QWEN_SPLIT, 700)
    tok.normalizer = normalizers.NFC()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    plain = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain])
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}
    # One token that only the config knows, as in older repositories.
    next_id = tok.get_vocab_size()
    config["added_tokens_decoder"] = {
        str(tok.token_to_id(t)): {"content": t, "special": t in special, "normalized": False,
                                  "lstrip": False, "rstrip": False, "single_word": False}
        for t in special + plain
    }
    config["added_tokens_decoder"][str(next_id)] = {
        "content": "<|config_only|>", "special": True, "normalized": False,
        "lstrip": False, "rstrip": False, "single_word": False,
    }
    config["additional_special_tokens"] = ["<|im_start|>", "<|im_end|>", "<|extra|>"]
    return tok, config


def llama3():
    """Llama-3 style: byte level, bos by the post-processor, control tokens above the vocabulary."""
    tok = byte_level(LLAMA3_SPLIT, 600)
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
               "<|end_header_id|>"]
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", bos)],
            ),
        ]
    )
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",
              "clean_up_tokenization_spaces": True}
    return tok, config


def sentencepiece(decoder, normalizer=None, pre_tokenizer=None, bos=True, eos_strips=False):
    """A SentencePiece-style BPE: <unk> <s> </s>, 256 byte tokens, pieces with the meta space."""
    trainer_tok = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer_tok.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    # A fixed alphabet: characters outside it are left to byte fallback. (The trainer's own limit
    # breaks ties at random.)
    known = set("".join(CORPUS[:6]) + "äöüßéèçñ今日は天気いです你好世界。，,лисабн안녕" + " ▁")
    texts = ["".join(c for c in text if c in known) for text in CORPUS]
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False)
    trainer_tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer_tok.train_from_iterator(texts, trainer)
    learned = json.loads(trainer_tok.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].get)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    vocab = {}
    for token in ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces:
        vocab.setdefault(token, len(vocab))
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True,
                               byte_fallback=True))
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre_tokenizer is not None:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    tok.add_special_tokens(["<unk>", "<s>", AddedToken("</s>", special=True, normalized=False, rstrip=eos_strips)])
    tok.add_special_tokens([AddedToken("<|user|>", special=True, normalized=False, rstrip=True),
                            AddedToken("[INST]", special=True, normalized=False)])
    tok.add_tokens([AddedToken("<plain>", special=False, normalized=False)])
    if bos:
        tok.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", vocab["<s>"])]
        )
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return tok, config


def fallback_decoder(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def tokenizers():
    meta = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "qwen", qwen()
    yield "llama3", llama3()
    # Llama-2, Phi-3, early Mistral; Phi-3's eos takes the spaces behind it.
    yield "llama2", sentencepiece(fallback_decoder(True), normalizer=meta, eos_strips=True)
    # Mistral v0.3: a Metaspace pre-tokenizer in place of the normalizer.
    yield "mistral", sentencepiece(
        fallback_decoder(True),
        pre_tokenizer=pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False),
    )
    # Gemma: spaces become meta spaces, nothing is prepended or stripped.
    # (Its tokens strip as Phi-3's do, so that a GGUF file, which does not say it, can be made of it.)
    yield "gemma", sentencepiece(fallback_decoder(False), normalizer=normalizers.Replace(" ", "▁"), eos_strips=True)
    # The Metaspace decoder itself, without byte fallback when decoding.
    yield "metaspace", sentencepiece(
        decoders.Metaspace("▁", prepend_scheme="always"),
        pre_tokenizer=pre_tokenizers.Metaspace("▁", prepend_scheme="always"),
        bos=False,
    )


def write_json(path, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def save_tokenizer(name, tok, config):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tokenizer.json", json.loads(tok.to_str()))
    config = dict(config, tokenizer_class="PreTrainedTokenizerFast", model_max_length=4096)
    write_json(folder / "tokenizer_config.json", config)
    return AutoTokenizer.from_pretrained(folder)


def is_byte_token(token):
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def stream_deltas(fast, ids, skip):
    """What a stream must have shown after each token: all that can no longer change."""
    backend = json.loads(fast.backend_tokenizer.to_str())
    special = set(fast.all_special_ids) if skip else set()
    special |= {t["id"] for t in backend["added_tokens"] if t["special"]} if skip else set()
    shown, deltas = "", []
    if backend["decoder"]["type"] == "ByteLevel":
        table = {c: b for b, c in bytes_to_unicode().items()}
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        for i in ids:
            token = fast.convert_ids_to_tokens(i)
            if i in special:
                deltas.append("")
                continue
            known = all(c in table for c in token)
            deltas.append(utf8.decode(bytes(table[c] for c in token) if known else token.encode()))
        return deltas, utf8.decode(b"", True)
    falls_back = backend["decoder"]["type"] == "Sequence"
    for n in range(1, len(ids) + 1):
        certain = [i for i in ids[:n] if i not in special]
        while falls_back and certain and is_byte_token(fast.convert_ids_to_tokens(certain[-1])):
            certain.pop()
        text = fast.decode(certain, skip_special_tokens=False)
        assert text.startswith(shown), (shown, text)
        deltas.append(text[len(shown):])
        shown = text
    return deltas, fast.decode(ids, skip_special_tokens=skip)[len(shown):]


def bytes_to_unicode():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(moved)}


def decode_cases(fast, rng):
    size = len(fast)
    specials = [t for t in fast.get_added_vocab()]
    lists = [[], [0], [size - 1]]
    for text in ["日本語 😀 text", "e\u0301 😀😀 x", " leading", "𐍈𐍈"]:
        ids = fast.encode(text, add_special_tokens=True)
        lists += [ids, ids[:-1], ids[1:], ids[:len(ids) // 2], ids[::-1]]
        middle = fast.convert_tokens_to_ids(specials[len(specials) // 2])
        lists.append(ids[:2] + [middle] + ids[2:])
    lists += [[rng.randrange(size) for _ in range(rng.randrange(1, 24))] for _ in range(30)]
    return lists


def token_cases(name, tok, config, rng):
    fast = save_tokenizer(name, tok, config)
    added = list(fast.get_added_vocab())
    texts = TRICKY + [f"{a} in the {b}middle{a}" for a, b in zip(added, reversed(added))]
    texts += ["x" + "".join(added), f" {added[0]} {added[-1]} ", f"{added[-1]}\n{added[-1]}"]
    encodes = []
    for text in texts:
        ids = fast.encode(text, add_special_tokens=False)
        encodes.append({
            "text": text,
            "ids": ids,
            "with_special": fast.encode(text, add_special_tokens=True),
        })
    decodes = []
    for ids in [e["with_special"] for e in encodes] + decode_cases(fast, rng):
        case = {"ids": ids}
        for skip in (False, True):
            deltas, rest = stream_deltas(fast, ids, skip)
            case["skip" if skip else "keep"] = {
                "text": fast.decode(ids, skip_special_tokens=skip), "deltas": deltas, "rest": rest,
            }
        decodes.append(case)
    special_ids = sorted(i for i, t in fast.added_tokens_decoder.items() if t.special)
    ids = sorted(fast.get_vocab().values())
    sample = sorted(set(rng.sample(ids, 60) + ids[-8:] + ids[:4]))
    return {
        "vocab_size": max(ids) + 1,
        "special_ids": special_ids,
        "tokens": [[i, fast.convert_ids_to_tokens(i)] for i in sample],
        "named": {k: v for k, v in fast.special_tokens_map.items() if isinstance(v, str)},
        "encode": encodes,
        "decode": decodes,
    }


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def chat_results(fast):
    chat_template_utils.datetime = FixedClock
    for case in text_chat_cases.cases():
        arguments = dict(case.get("kwargs", {}))
        try:
            text = fast.apply_chat_template(
                case["messages"],
                tools=case.get("tools"),
                documents=case.get("documents"),
                chat_template=text_chat_cases.TEMPLATES.get(case["template"], case["template"]),
                add_generation_prompt=case.get("add_generation_prompt", False),
                continue_final_message=case.get("continue_final_message", False),
                tokenize=False,
                **arguments,
            )
            yield {**case, "text": text}
        except Exception as error:  # noqa: BLE001: whatever it is, ours must refuse as well
            raised = type(error).__name__ == "TemplateError"
            yield {**case, "error": str(error) if raised else ""}


def as_texts(case):
    """The JSON parts as texts, as a server gets them; the probes' values are written once."""
    shared = case.get("kwargs") is text_chat_cases.VALUES
    texts = {key: json.dumps(case[key], ensure_ascii=False)
             for key in ("messages", "tools", "documents", "kwargs") if key in case}
    return {**case, **texts, **({"kwargs": "values"} if shared else {})}


def main():
    rng = random.Random(20)
    OUT.mkdir(parents=True, exist_ok=True)
    tables = {}
    for name, (tok, config) in tokenizers():
        tables[name] = token_cases(name, tok, config, rng)
    write_json(OUT / "tokens.json", tables)
    fast = AutoTokenizer.from_pretrained(OUT / "llama3")
    assert isinstance(fast, PreTrainedTokenizerFast)
    named = {k: v for k, v in fast.special_tokens_map.items() if isinstance(v, str)}
    write_json(OUT / "chat.json", {
        "now": [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second],
        "special_tokens": named,
        "templates": text_chat_cases.TEMPLATES,
        "values": json.dumps(text_chat_cases.VALUES, ensure_ascii=False),
        "cases": [as_texts(case) for case in chat_results(fast)],
    })


if __name__ == "__main__":
    main()
