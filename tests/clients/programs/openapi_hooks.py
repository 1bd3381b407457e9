"""For schemathesis. A made-up body is nearly always refused for one of its fields; so half of them become a body that is good, with two
of the made-up fields: these come as far as the engine."""
import random
import zlib

import schemathesis

TALK = {"messages": [{"role": "user", "content": "Hi"}]}
PAIRS = {"query": "a fruit", "documents": ["a fig", "a stone"]}
GOOD = {
    "/v1/completions": {"prompt": "Hi", "max_tokens": 4}, "/v1/chat/completions": {**TALK, "max_tokens": 4}, "/v1/messages": {**TALK, "max_tokens": 4},
    "/v1/messages/count_tokens": TALK, "/v1/responses": {"input": "Hi", "max_output_tokens": 4}, "/v1/embeddings": {"input": ["a fig", "a pear"]},
    "/v1/rerank": PAIRS, "/v2/rerank": PAIRS, "/rerank": PAIRS, "/v1/score": {"text_1": "a fruit", "text_2": "a fig"},
    "/score": {"text_1": "a fruit", "text_2": "a fig"}, "/tokenize": {"prompt": "Hi"}, "/detokenize": {"tokens": [1, 2]},
}


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.path_parameters and len(case.path_parameters.get("name", "")) % 2:
        case.path_parameters["name"] = "quire-demo"
    good, body = GOOD.get(case.operation.path), case.body
    if good is None or not isinstance(body, dict):
        return
    draw = random.Random(zlib.crc32(repr(body).encode()))
    if draw.random() < 0.5:
        taken = draw.sample(sorted(body), min(2, len(body)))
        case.body = {**good, **{name: body[name] for name in taken}, "model": "quire-demo"}
