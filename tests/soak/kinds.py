"""The kinds of request that soak.py and chaos.py mix, and what of an answer must be equal whenever it is asked for."""
import json
import random
from dataclasses import dataclass

WORDS = "What is the sum of one red apple and two green frogs near a small river at night".split()


@dataclass(frozen=True)
class Request:
    kind: str
    path: str
    body: dict

    def text(self):
        return json.dumps(self.body).encode()


def _prose(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _question(rng):
    return f"What is {rng.randint(1, 99)} + {rng.randint(1, 99)}?"


def _seeded(rng):
    return {"temperature": rng.choice([0.7, 1.0, 1.3]), "seed": rng.randint(0, 1 << 30)}


def _schema(rng):
    fields = {name: {"type": kind} for name, kind in (("a", "integer"), ("b", "boolean"), ("c", "null"))[: rng.randint(1, 3)]}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}}}
LARK = 'start: item ("," item)*\nitem: "yes" | "no" | /[0-9]{1,3}/'

# Each takes a random generator and gives the fields that make the kind.
COMPLETIONS = {
    "greedy": lambda r: {},
    "seeded": _seeded,
    "top_k": lambda r: {**_seeded(r), "top_k": r.randint(2, 50)},
    "top_p": lambda r: {**_seeded(r), "top_p": r.uniform(0.1, 0.95)},
    "min_p": lambda r: {**_seeded(r), "min_p": r.uniform(0.01, 0.3)},
    "presence_penalty": lambda r: {"presence_penalty": r.uniform(-2, 2)},
    "frequency_penalty": lambda r: {**_seeded(r), "frequency_penalty": r.uniform(-2, 2)},
    "repetition_penalty": lambda r: {"repetition_penalty": r.uniform(0.8, 1.5)},
    "logit_bias": lambda r: {"logit_bias": {str(r.randint(0, 4000)): r.uniform(-100, 10) for _ in range(9)}},
    "logprobs": lambda r: {**_seeded(r), "logprobs": r.randint(1, 20)},
    "prompt_logprobs": lambda r: {"prompt_logprobs": r.randint(0, 5)},
    "n": lambda r: {**_seeded(r), "n": r.randint(2, 4)},
    "stop strings": lambda r: {**_seeded(r), "stop": [r.choice("aeiou"), " the"], "max_tokens": 40},
    "stop string kept": lambda r: {"stop": ["e"], "include_stop_str_in_output": True, "min_tokens": 3},
    "stop tokens": lambda r: {"stop_token_ids": [r.randint(0, 4000) for _ in range(20)]},
    "min_tokens": lambda r: {"ignore_eos": False, "min_tokens": r.randint(1, 12), "max_tokens": 24},
    "special tokens": lambda r: {**_seeded(r), "skip_special_tokens": False, "add_special_tokens": False, "n": 2},
    "long answers": lambda r: {**_seeded(r), "n": 3, "max_tokens": 280},  # more together than tight memory holds
    "regex": lambda r: {"structured_outputs": {"regex": f"[0-9]{{{r.randint(1, 4)}}}-[a-z]{{2}}"}, "ignore_eos": False},
    "choice": lambda r: {"structured_outputs": {"choice": ["red", "green", "a blue frog"]}, "ignore_eos": False},
    "lark": lambda r: {**_seeded(r), "structured_outputs": {"grammar": LARK}, "ignore_eos": False},
    "echo": lambda r: {"echo": True, "logprobs": 2},
    "truncated left": lambda r: {"prompt": _prose(r, 60), "truncate_prompt_tokens": r.randint(1, 40)},
    "truncated right": lambda r: {"prompt": _prose(r, 60), "truncate_prompt_tokens": 20, "truncation_side": "right"},
    "cache_salt": lambda r: {"prompt": " ".join(WORDS * 5), "cache_salt": r.choice("xyz")},
    "shared prefix": lambda r: {"prompt": " ".join(WORDS * 6) + _prose(r, 2)},
    "long prompt": lambda r: {"prompt": [r.randint(0, 4000) for _ in range(r.randint(200, 700))], "max_tokens": 6},
    "several prompts": lambda r: {"prompt": [_question(r), [r.randint(0, 4000)], _prose(r, 30)], **_seeded(r)},
    "stream": lambda r: {**_seeded(r), "stream": True, "logprobs": 1, "n": 2},
    "everything": lambda r: {
        **_seeded(r), "n": 2, "logprobs": 3, "top_p": 0.9, "top_k": 40, "presence_penalty": 0.4, "stop": ["zz"], "min_tokens": 2},
}  # fmt: skip
CHATS = {
    "chat": lambda r: {"ignore_eos": False, "max_tokens": 30},
    "chat stream": lambda r: {**_seeded(r), "stream": True, "stream_options": {"include_usage": True}, "top_logprobs": 2, "logprobs": True},
    "json_schema": lambda r: {"response_format": _schema(r), "ignore_eos": False, "max_tokens": 60},
    "json_object": lambda r: {"response_format": {"type": "json_object"}, "ignore_eos": False},
    "tools": lambda r: {"tools": [TOOL], "tool_choice": "auto", "ignore_eos": False, "max_tokens": 50},
}  # fmt: skip
PRIORITY = "priority"  # only where the server's policy is


def kinds(with_priority=True):
    return [*COMPLETIONS, *CHATS, *([PRIORITY] if with_priority else [])]


def make(kind, rng):
    base = {"max_tokens": rng.randint(3, 16), "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    if kind in CHATS:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": _question(rng)}]
        return Request(kind, "/v1/chat/completions", {"messages": messages, **base, **CHATS[kind](rng)})
    own = {"priority": rng.randint(-3, 3)} if kind == PRIORITY else COMPLETIONS[kind](rng)
    return Request(kind, "/v1/completions", {"prompt": _prose(rng, rng.randint(1, 40)), "logprobs": 1, **base, **own})


def make_all(seed, each, with_priority=True):
    rng = random.Random(seed)
    return [make(kind, rng) for kind in kinds(with_priority) for _ in range(each)]


# What says when and where an answer was made, and not what it is.
_OF_THE_OCCASION = {"id", "created", "prompt_tokens_details", "system_fingerprint", "request_id"}


def _timeless(value):
    if isinstance(value, dict):
        return {key: _timeless(v) for key, v in value.items() if key not in _OF_THE_OCCASION}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def _joined(old, new):
    """What two successive chunks say together: texts and lists go on, anything else is said once."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _joined(old.get(key), new.get(key)) for key in {**old, **new}}
    if isinstance(old, (str, list)) and isinstance(new, type(old)):
        return old + new
    return old if new is None else new


def _of_stream(body):
    lines = [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]
    assert lines and lines[-1] == "[DONE]", body[-300:]
    answer = {"choices": {}}
    for chunk in map(json.loads, lines[:-1]):
        for choice in _timeless(chunk.pop("choices")):
            role = (choice.get("delta") or {}).pop("role", None)
            index = choice.pop("index")
            answer["choices"][index] = _joined(answer["choices"].get(index, {"role": role}), choice)
        answer |= _timeless({key: value for key, value in chunk.items() if value is not None})
    return answer


def answer_of(request, body):
    """Tokens, texts, log probabilities, reasons and usage, in a form that `==` compares."""
    return _of_stream(body) if request.body.get("stream") else _timeless(json.loads(body))
