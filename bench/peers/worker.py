#!/usr/bin/env python3
"""One loaded peer model that measures on demand: worker.py openvino|transformers|mistralrs MODEL THREADS

For mistralrs MODEL is a GGUF file with a byte-level tokenizer.

Reads one JSON object a line, {"streams": S, "input": I, "output": O}, generates O tokens greedily for S
random prompts of I tokens, and answers {"first": seconds to the first tokens, "rest": seconds for the
other O - 1 of each stream} or {"error": text}. Answers {"ready": true} once the model is loaded.
"""

import json
import os
import sys
import time
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np  # noqa: E402

TOKEN_IDS = (300, 16000)  # real words of the random model's tokenizer


def random_prompts(rng: np.random.Generator, streams: int, length: int) -> np.ndarray:
    return rng.integers(*TOKEN_IDS, (streams, length), dtype=np.int64)


class OpenVino:
    def __init__(self, model: str, threads: int):
        import openvino
        import openvino_genai

        self.tensor, self.genai = openvino.Tensor, openvino_genai
        # The precision is the plugin's choice: bfloat16 where the CPU has AMX.
        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)

    def seconds(self, ids: np.ndarray, output: int) -> float:
        config = self.genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = output
        config.ignore_eos, config.do_sample = True, False
        inputs = self.genai.TokenizedInputs(self.tensor(ids), self.tensor(np.ones_like(ids)))
        start = time.perf_counter()
        result = self.pipeline.generate(inputs, config)
        elapsed = time.perf_counter() - start
        if any(len(tokens) != output for tokens in result.tokens):
            raise RuntimeError(f"asked for {output} tokens, got {[len(t) for t in result.tokens]}")
        return elapsed

    def measure(self, draw: Callable[[], np.ndarray], output: int) -> tuple[float, float]:
        """A batch cannot be streamed, so the first token's time is a run of its own. Its prompts are others: the prefix
        cache would spare the second run the prefill that is subtracted from it."""
        first = self.seconds(draw(), 1)
        return first, self.seconds(draw(), output) - first if output > 1 else 0.0


class Transformers:
    def __init__(self, model: str, threads: int):
        import torch
        from transformers import AutoModelForCausalLM, StoppingCriteria

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()

        class Stamps(StoppingCriteria):
            """Called after each step: notes when, and stops nothing."""

            def __init__(self):
                self.times = []

            def __call__(self, input_ids, scores, **kwargs):
                self.times.append(time.perf_counter())
                return torch.zeros(input_ids.shape[0], dtype=torch.bool)

        self.stamps = Stamps

    def measure(self, draw: Callable[[], np.ndarray], output: int) -> tuple[float, float]:
        ids, stamps = draw(), self.stamps()
        prompt = self.torch.from_numpy(ids)
        start = time.perf_counter()
        with self.torch.inference_mode():
            result = self.model.generate(
                prompt,
                attention_mask=self.torch.ones_like(prompt),
                max_new_tokens=output,
                min_new_tokens=output,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                stopping_criteria=[stamps],
            )
        if result.shape[1] != ids.shape[1] + output or len(stamps.times) != output:
            raise RuntimeError(f"asked for {output} tokens, got {result.shape[1] - ids.shape[1]}")
        return stamps.times[0] - start, stamps.times[-1] - stamps.times[0]


class MistralRs:
    """mistral.rs takes text, and one sequence at a time: parallel requests of its package fail."""

    def __init__(self, model: str, threads: int):
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        import gguf
        import mistralrs

        self.request = mistralrs.CompletionRequest
        folder, file = os.path.split(os.path.abspath(model))
        which = mistralrs.Which.GGUF(quantized_model_id=folder, quantized_filename=file)
        self.runner = mistralrs.Runner(which=which, prefix_cache_n=0)
        field = gguf.GGUFReader(model).fields["tokenizer.ggml.tokens"]
        words = (bytes(field.parts[i]).decode() for i in field.data)
        # A space and letters: what stays one token between others of its kind.
        self.words = [word[1:] for word in words if word[:1] == "Ġ" and word[1:].isascii() and word[1:].isalpha()]

    def seconds(self, ids: np.ndarray, output: int) -> float:
        prompt = "".join(" " + self.words[i % len(self.words)] for i in ids[0])
        request = self.request(model="default", prompt=prompt, max_tokens=output, temperature=0.0)
        start = time.perf_counter()
        usage = self.runner.send_completion_request(request).usage
        elapsed = time.perf_counter() - start
        if abs(usage.prompt_tokens - ids.shape[1]) > ids.shape[1] // 50 + 2:
            raise RuntimeError(f"a prompt of {ids.shape[1]} words was {usage.prompt_tokens} tokens")
        if usage.completion_tokens != output:
            raise RuntimeError(f"asked for {output} tokens, got {usage.completion_tokens}")
        return elapsed

    def measure(self, draw: Callable[[], np.ndarray], output: int) -> tuple[float, float]:
        """As OpenVino's."""
        if draw().shape[0] > 1:
            raise RuntimeError("one sequence at a time")
        first = self.seconds(draw(), 1)
        return first, self.seconds(draw(), output) - first if output > 1 else 0.0


def main() -> None:
    kind, model, threads = sys.argv[1:]
    # Libraries print to stdout as they like; the answers keep the real one for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    engine = {"openvino": OpenVino, "transformers": Transformers, "mistralrs": MistralRs}[kind](model, int(threads))
    rng = np.random.default_rng(0)
    engine.measure(lambda: random_prompts(rng, 1, 32), 4)
    answer(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            first, rest = engine.measure(lambda: random_prompts(rng, job["streams"], job["input"]), job["output"])
            answer(first=first, rest=rest)
        except Exception as error:  # the job fails, the worker lives
            answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
