"""Tokenizers and chat templates of the kind that families publish, for checkpoints in GGUF, and what transformers and
llama.cpp make of them.

A style is a folder's tokenizer files: tokenizer.json and tokenizer_config.json, and tokenizer.model of those that
SentencePiece made, which llama.cpp's converter reads in place of the first.
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import unicodedata

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

import check_gguf_tokens
import make_text_cases
import text_chat_cases
from text_chat_templates import GEMMA3, LLAMA3, PHI3, QWEN3
from text_corpus import CORPUS, TRICKY
from text_family_templates import HARMONY

O200K_SPLIT = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TALKS = ("one", "system", "multi", "ends_assistant", "thinking", "tool", "two_tools", "wrong_order", "odd_role")


@dataclasses.dataclass(frozen=True)
class Style:
    make: object  # () -> (tokenizers.Tokenizer, tokenizer_config.json, SentencePiece's model or None)
    template: str
    pre: str | None  # tokenizer.ggml.pre; the converter knows it by a hash of published files


def special(*texts: str, **more) -> list[AddedToken]:
    return [AddedToken(text, special=True, normalized=False, **more) for text in texts]


def qwen() -> tuple:
    tok, _ = make_text_cases.qwen()
    return tok, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}, None


def llama() -> tuple:
    tok, config = make_text_cases.llama3()
    text = json.loads(tok.to_str())
    text["model"]["ignore_merges"] = True  # as Llama 3's own
    return Tokenizer.from_str(json.dumps(text)), config | {"clean_up_tokenization_spaces": False}, None


def gpt_oss() -> tuple:
    tok = make_text_cases.byte_level(O200K_SPLIT, 580)
    names = ["startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call"]
    tok.add_special_tokens(special(*(f"<|{name}|>" for name in names)))
    return tok, {"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"}, None


def sentencepiece_model(**more) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.split("\n")), model_writer=out, model_type="bpe",
        byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", character_coverage=0.98, minloglevel=2, **more)
    return out.getvalue()


def of_sentencepiece(model: bytes, normalizer, decoder: list, strips: tuple = ()) -> Tokenizer:
    """As transformers converts it: two tokens that spell a third one are a merge, in the order of the third one's score."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(pieces.get_piece_size())
    vocab = {pieces.id_to_piece(i): i for i in ids}
    merges = []
    for i in ids:
        piece = pieces.id_to_piece(i)
        if pieces.is_control(i) or pieces.is_byte(i) or pieces.is_unknown(i) or len(piece) < 2:
            continue
        cuts = [(piece[:n], piece[n:]) for n in range(1, len(piece)) if piece[:n] in vocab and piece[n:] in vocab]
        merges += [(pieces.get_score(i), pair) for pair in sorted(cuts, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]
    merges.sort(key=lambda one: (one[0], len(one[1][0]), len(one[1][1])), reverse=True)
    unknown = pieces.id_to_piece(pieces.unk_id())
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[pair for _, pair in merges], unk_token=unknown, fuse_unk=True,
                               byte_fallback=True))
    tok.normalizer = normalizer
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *decoder])
    control = [pieces.id_to_piece(i) for i in ids if pieces.is_control(i)]
    tok.add_special_tokens([token for text in [*control, unknown] for token in special(text, rstrip=text in strips)])
    return tok


def with_bos(tok: Tokenizer, bos: str) -> None:
    tok.post_processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                                       special_tokens=[(bos, tok.token_to_id(bos))])


def declared(tok: Tokenizer) -> dict:
    """added_tokens_decoder of tokenizer_config.json, where the converter looks for what SentencePiece does not know."""
    return {str(i): {"content": t.content, "special": t.special, "normalized": t.normalized, "lstrip": t.lstrip,
                     "rstrip": t.rstrip, "single_word": t.single_word} for i, t in tok.get_added_tokens_decoder().items()}


def phi3() -> tuple:
    model = sentencepiece_model(vocab_size=560, add_dummy_prefix=True)
    visible = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok = of_sentencepiece(model, visible, [decoders.Strip(" ", 1, 0)], strips=("</s>",))
    tok.add_special_tokens(special("<|endoftext|>"))
    tok.add_special_tokens(special("<|assistant|>", "<|system|>", "<|end|>", "<|user|>", rstrip=True))
    with_bos(tok, "<s>")
    config = {"bos_token": "<s>", "eos_token": "<|endoftext|>", "unk_token": "<unk>", "pad_token": "<|endoftext|>",
              "add_bos_token": True, "legacy": False, "added_tokens_decoder": declared(tok)}
    return tok, config, model


def gemma() -> tuple:
    model = sentencepiece_model(vocab_size=570, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
                                pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
                                control_symbols=["<start_of_turn>", "<end_of_turn>"])
    tok = of_sentencepiece(model, normalizers.Replace(" ", "▁"), [])
    with_bos(tok, "<bos>")
    return tok, {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>",
                 "add_bos_token": True, "added_tokens_decoder": declared(tok)}, model


STYLES = {
    "qwen": Style(qwen, QWEN3, "qwen2"),
    "llama": Style(llama, LLAMA3, "llama-bpe"),
    "gpt-oss": Style(gpt_oss, HARMONY, "gpt-4o"),
    "phi3": Style(phi3, PHI3, None),
    "gemma": Style(gemma, GEMMA3, None),
}


def write_files(style: str, folder: pathlib.Path) -> None:
    """The style's files in place of the checkpoint's, and its ids in config.json."""
    tok, config, model = STYLES[style].make()
    (folder / "tokenizer.json").write_text(tok.to_str() + "\n")
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512,
               "chat_template": STYLES[style].template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    if model:
        (folder / "tokenizer.model").write_bytes(model)
    path = folder / "config.json"
    of_model = json.loads(path.read_text())
    for name in ("bos", "eos", "pad"):
        of_model[f"{name}_token_id"] = tok.token_to_id(config[f"{name}_token"]) if f"{name}_token" in config else None
    assert tok.get_vocab_size() <= of_model["vocab_size"], tok.get_vocab_size()
    path.write_text(json.dumps(of_model, indent=2) + "\n")
    (folder / "generation_config.json").unlink()


def texts_of(fast) -> list[str]:
    added = list(fast.get_added_vocab())
    mixed = [f"{a} in the {b}middle{a}" for a, b in zip(added, reversed(added))]
    return TRICKY + CORPUS + mixed + ["x" + "".join(added), f" {added[0]} {added[-1]} "] + check_gguf_tokens.random_texts(150)


def token_cases(fast, ids_of_llama) -> list[dict]:
    """`ids_of_llama(text, special)`. A text of which it gives other ids has them beside those of transformers."""
    cases = []
    for text in texts_of(fast):
        case = {"text": text}
        for name, special in (("ids", False), ("with_special", True)):
            case[name] = fast.encode(text, add_special_tokens=special)
            theirs = ids_of_llama(text, special)
            if theirs == case[name]:
                continue
            print(f"  llama.cpp differs: {text!r}\n    {case[name]}\n    {theirs}")
            assert unicodedata.normalize("NFC", text) != text, "of a text that needs no normalisation"
            case["llama_cpp_" + name] = theirs
        cases.append(case)
    return cases


def chat_cases(fast) -> list[dict]:
    chat_template_utils.datetime = make_text_cases.FixedClock
    cases = []
    for talk in TALKS:
        for more in ({}, {"add_generation_prompt": True},
                     {"add_generation_prompt": True, "tools": [text_chat_cases.WEATHER, text_chat_cases.EMPTY_TOOL]}):
            case = {"messages": text_chat_cases.TALKS[talk], **more}
            try:
                case["text"] = fast.apply_chat_template(case["messages"], tokenize=False, **more)
            except Exception as error:  # noqa: BLE001: whatever it is, ours must refuse as well
                case["error"] = str(error) if type(error).__name__ == "TemplateError" else ""
            cases.append(make_text_cases.as_texts(case))
    return cases


def write_golden(folder: pathlib.Path, gguf: pathlib.Path, llama_server: str, target: pathlib.Path) -> str:
    """text.json: of the folder's tokenizer by transformers, of the file's by llama.cpp."""
    fast = AutoTokenizer.from_pretrained(folder)
    port = check_gguf_tokens.free_port()
    command = [llama_server, "-m", str(gguf), "-c", "512", "-np", "1", "--no-warmup"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(check_gguf_tokens.served(command, port))

        def ids_of_llama(text: str, special: bool) -> list[int]:
            return check_gguf_tokens.post(port, {"content": text, "add_special": special, "parse_special": True})["tokens"]

        encode = token_cases(fast, ids_of_llama)
    now = make_text_cases.NOW
    chats = chat_cases(fast)
    make_text_cases.write_json(target / "text.json", {
        "now": [now.year, now.month, now.day, now.hour, now.minute, now.second],
        "vocab_size": len(fast), "encode": encode, "chats": chats})
    return f"{len(encode)} texts, {len(chats)} chats"
