#!/usr/bin/env python3
"""Writes the op goldens of tests/parity/ops: one safetensors file per op.

    op_cases.py [--out DIR]

Tensors are named `<case>.<tensor>`; the metadata holds `cases` (comma-separated) and the scalar
parameters as `<case>.<parameter>`. Outputs come from transformers' own functions in float32.
"""

import argparse
import json
import os
import pathlib
import types
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen3_next import modeling_qwen3_next

import router_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sort_header(path: pathlib.Path) -> None:
    """safetensors writes metadata in hash order; sorted, the same data is the same file."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    ordered = {"__metadata__": dict(sorted(header.pop("__metadata__").items()))}
    ordered |= dict(sorted(header.items(), key=lambda item: item[1]["data_offsets"]))
    text = json.dumps(ordered, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


class Cases:
    def __init__(self, op: str):
        self.op, self.names, self.tensors, self.parameters = op, [], {}, {}

    def add(self, case: str, tensors: dict[str, torch.Tensor], **parameters) -> None:
        self.names.append(case)
        for name, value in tensors.items():
            self.tensors[f"{case}.{name}"] = value.contiguous().clone()
        for name, value in parameters.items():
            if value is not None:
                text = repr(float(value)) if isinstance(value, float) else str(value)
                self.parameters[f"{case}.{name}"] = text

    def random(self, case: str, name: str, *shape: int, std: float = 1.0) -> torch.Tensor:
        rng = np.random.default_rng([zlib.crc32(f"{self.op}.{case}.{name}".encode())])
        return torch.from_numpy((std * rng.standard_normal(shape)).astype(np.float32))

    def save(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.op}.safetensors"
        save_file(self.tensors, path, {"cases": ",".join(self.names)} | self.parameters)
        sort_header(path)
        path.chmod(0o644)
        print(f"{path.name}: {len(self.names)} cases, {path.stat().st_size} bytes")


def rms_norm() -> Cases:
    """x [T, D] or [T, H, D], weight [D] -> out; with residual: residual_out = x + residual."""
    cases = Cases("rms_norm")

    def add(case, *shape, eps=1e-6, std=1.0, residual=False, offset=False, norm=None):
        norm = norm or modeling_llama.LlamaRMSNorm
        module = norm(shape[-1], eps=eps)
        weight = cases.random(case, "weight", shape[-1], std=0.3) + (0.0 if offset else 1.0)
        module.weight.data = weight
        tensors = {"x": cases.random(case, "x", *shape, std=std), "weight": weight}
        total = tensors["x"]
        if residual:
            tensors["residual"] = cases.random(case, "residual", *shape, std=std)
            total = tensors["x"] + tensors["residual"]
            tensors["residual_out"] = total
        tensors["out"] = module(total)
        cases.add(case, tensors, eps=eps, weight_offset=1.0 if offset else 0.0)

    with torch.no_grad():
        add("plain", 5, 64)
        add("one_row", 1, 1024, eps=1e-5)
        add("odd_width", 3, 331)
        add("residual", 4, 256, residual=True)
        add("residual_odd", 2, 100, residual=True, eps=1e-5)
        add("per_head", 6, 4, 32)
        add("small_values", 3, 128, std=1e-4)  # the mean square is near eps
        add("large_values", 3, 128, std=1e4)
        add("unit_offset", 4, 96, offset=True, norm=modeling_gemma3.Gemma3RMSNorm)  # (1 + weight)
        zeros = torch.zeros(2, 64)
        weight = cases.random("zeros", "weight", 64)
        cases.add("zeros", {"x": zeros, "weight": weight, "out": zeros}, eps=1e-6, weight_offset=0.0)
    return cases


def silu_mul() -> Cases:
    """out = silu(gate) * up, all [T, F]."""
    cases = Cases("silu_mul")

    def add(case, gate, up):
        out = up * torch.nn.functional.silu(gate)
        cases.add(case, {"gate": gate, "up": up, "out": out})

    for case, *shape in [("plain", 4, 96), ("odd_width", 3, 331), ("one_row", 1, 1024)]:
        gate = cases.random(case, "gate", *shape, std=2.0)
        add(case, gate, cases.random(case, "up", *shape))
    gate = torch.tensor([[-1e4, -200.0, -104.0, -88.0, -20.0, -1e-6, 0.0, 1e-6, 20.0, 88.0, 104.0, 1e4]])
    add("extremes", gate, torch.full_like(gate, 1.5))
    return cases


def rope() -> Cases:
    """q [T, H, D], k [T, K, D], positions [T] -> inv_freq [R/2], cos/sin [T, R/2], q_out, k_out.

    Half-split pairs (i, i + R/2) of the first R = rotary_dim channels; cos and sin already carry
    attention_factor.
    """
    cases = Cases("rope")
    near = [0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 127, 128, 300, 511, 1000, 2047]
    far = [4095, 8191, 16384, 32767, 40000, 65535, 100000, 131071]

    def add(case, kind, positions=near, head_dim=32, theta=10000.0, seq_len=None, **facts):
        limit = facts.pop("max_position_embeddings", 2048)
        config = transformers.LlamaConfig(
            hidden_size=4 * head_dim,
            num_attention_heads=4,
            head_dim=head_dim,
            max_position_embeddings=limit,
        )
        config.rope_parameters = {"rope_type": kind, "rope_theta": theta} | facts
        init = ROPE_INIT_FUNCTIONS.get(
            kind, modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters
        )
        inv_freq, factor = init(config, torch.device("cpu"), seq_len=seq_len)
        at = torch.tensor(positions, dtype=torch.int64)
        angles = at[:, None].float() * inv_freq
        cos, sin = angles.cos() * factor, angles.sin() * factor
        tensors = {
            "q": cases.random(case, "q", len(at), 4, head_dim),
            "k": cases.random(case, "k", len(at), 2, head_dim),
            "positions": at,
            "inv_freq": inv_freq,
            "cos": cos,
            "sin": sin,
        }
        # Phi 3's function is Llama's plus a pass-through for the channels that do not rotate.
        q_out, k_out = modeling_phi3.apply_rotary_pos_emb(
            tensors["q"], tensors["k"], torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        )
        tensors |= {"q_out": q_out, "k_out": k_out}
        rotary_dim = 2 * len(inv_freq)
        lists = {k: ",".join(map(repr, v)) for k, v in facts.items() if isinstance(v, list)}
        cases.add(
            case,
            tensors,
            rope_type=kind,
            rope_theta=theta,
            head_dim=head_dim,
            rotary_dim=rotary_dim,
            attention_scaling=float(factor),
            max_position_embeddings=limit,
            seq_len=seq_len,
            **(facts | lists),
        )

    add("default", "default")
    add("default_theta_1e6_dim_128", "default", head_dim=128, theta=1e6, positions=near[:8])
    # float32 angles of 1e5 rad carry errors of 4e-3, and an inv_freq that is off by one ulp moves
    # them by as much: compare cos and sin with that in mind.
    add("default_far", "default", positions=far, theta=1e6)
    add("partial", "default", partial_rotary_factor=0.5)
    add("partial_dim_80", "default", head_dim=80, partial_rotary_factor=0.4, positions=near[:8])
    add("linear", "linear", factor=4.0)
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    add("llama3", "llama3", theta=5e5, original_max_position_embeddings=512, **llama3)
    add(
        "llama3_1b",
        "llama3",
        head_dim=64,
        theta=5e5,
        positions=near[:8],
        max_position_embeddings=131072,
        original_max_position_embeddings=8192,
        **(llama3 | {"factor": 32.0}),
    )
    yarn = {"factor": 4.0, "original_max_position_embeddings": 512}
    add("yarn", "yarn", **yarn)
    add("yarn_attention_factor", "yarn", attention_factor=1.25, **yarn)
    add("yarn_beta", "yarn", beta_fast=16.0, beta_slow=2.0, **yarn)
    # DeepSeek's two scales and gpt-oss's untruncated range.
    add("yarn_mscale", "yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.7,
        original_max_position_embeddings=4096, head_dim=64, positions=near[:8])
    add("yarn_no_truncate", "yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
        theta=150000.0, original_max_position_embeddings=4096, head_dim=64, positions=near[:8])
    long = {
        "short_factor": [1.0 + 0.05 * i for i in range(16)],
        "long_factor": [1.0 + 0.3 * i + 0.05 * i * i for i in range(16)],
        "original_max_position_embeddings": 256,
    }
    add("longrope_short", "longrope", seq_len=256, **long)
    add("longrope_long", "longrope", seq_len=257, **long)
    part = long | {k: long[k][:12] for k in ("short_factor", "long_factor")}
    add("longrope_partial", "longrope", seq_len=2048, partial_rotary_factor=0.75, **part)
    return cases


def attention() -> Cases:
    """Packed sequences: q [Tq, H, D], k and v [Tk, K, D] -> out [Tq, H, D].

    cu_seqlens_q and cu_seqlens_k are [S+1]. A sequence's queries are its last positions. Row i sees
    key j when j <= i and, with a window, j > i - window. Scores: scale, softcap * tanh(s / softcap),
    mask, softmax; `sinks` [H] joins each row's softmax as one more logit without a value.
    """
    cases = Cases("attention")

    def one(q, k, v, scale, window, softcap, sinks):
        """q [Tq, H, D] of one sequence."""
        length, past = q.shape[0], k.shape[0] - q.shape[0]
        row = torch.arange(length)[:, None] + past
        column = torch.arange(k.shape[0])[None, :]
        seen = column <= row
        if window is not None:
            seen &= column > row - window
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        module = types.SimpleNamespace(
            num_key_value_groups=q.shape[1] // k.shape[1],
            head_dim=q.shape[2],
            training=False,
            sinks=sinks,
        )
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        if sinks is not None:
            function, more = modeling_gpt_oss.eager_attention_forward, {}
        elif softcap is not None:
            function, more = modeling_gemma2.eager_attention_forward, {"softcap": softcap}
        else:
            function, more = modeling_llama.eager_attention_forward, {}
        return function(module, q, k, v, mask, scaling=scale, dropout=0.0, **more)[0][0]

    def add(case, lengths, heads=4, kv_heads=2, dim=32, scale=None, window=None, softcap=None,
            sinks=False, std=1.5):
        """lengths: (queries, keys) of each sequence."""
        scale = scale or dim**-0.5
        cu_q = np.cumsum([0] + [n for n, _ in lengths]).tolist()
        cu_k = np.cumsum([0] + [n for _, n in lengths]).tolist()
        q = cases.random(case, "q", cu_q[-1], heads, dim, std=std)
        k = cases.random(case, "k", cu_k[-1], kv_heads, dim, std=std)
        v = cases.random(case, "v", cu_k[-1], kv_heads, dim)
        sink = cases.random(case, "sinks", heads) if sinks else None
        out = torch.cat([
            one(q[a:b], k[c:d], v[c:d], scale, window, softcap, sink)
            for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:])
        ])
        tensors = {"q": q, "k": k, "v": v, "out": out}
        tensors["cu_seqlens_q"] = torch.tensor(cu_q, dtype=torch.int32)
        tensors["cu_seqlens_k"] = torch.tensor(cu_k, dtype=torch.int32)
        if sinks:
            tensors["sinks"] = sink
        cases.add(case, tensors, scale=scale, window=window, softcap=softcap)

    add("causal", [(9, 9)], kv_heads=4)
    add("gqa", [(9, 9)], heads=8)
    add("mqa", [(7, 20)], kv_heads=1, dim=64)
    add("one_token", [(1, 1)])
    add("decode", [(1, 130)])
    add("chunk", [(5, 70)], dim=24)
    add("dim_80", [(4, 33)], dim=80)
    add("dim_128", [(3, 40)], heads=4, kv_heads=1, dim=128)
    add("scale", [(6, 18)], scale=0.3)
    add("batch", [(1, 65), (1, 16), (17, 17), (5, 48), (1, 1)])
    add("window", [(40, 40)], window=8)
    add("window_decode", [(1, 100), (1, 5), (1, 16), (1, 17)], window=16)
    add("window_chunk", [(7, 60)], window=24)
    add("window_one", [(4, 9)], window=1)
    add("softcap", [(12, 30)], softcap=5.0, std=3.0)
    add("softcap_window", [(12, 30)], softcap=5.0, window=7, std=3.0)
    add("sinks", [(12, 30), (1, 41)], sinks=True)
    add("sinks_window", [(12, 30), (1, 41)], sinks=True, window=9)
    add("large_scores", [(3, 50)], std=7.0)  # exp overflows unless the maximum is subtracted
    return cases


def causal_conv1d() -> Cases:
    """x [T, C], weight [C, kernel] -> out [T, C] of one sequence from its beginning."""
    cases = Cases("causal_conv1d")

    def add(case, tokens, channels, kernel):
        x = cases.random(case, "x", tokens, channels, std=2.0)
        weight = cases.random(case, "weight", channels, kernel)
        # transformers' fallback, which the decorator hides if another package is installed
        out = modeling_qwen3_next.causal_conv1d_fn(x.T[None], weight, None, activation="silu")[0].T
        cases.add(case, {"x": x, "weight": weight, "out": out})

    add("one_token", 1, 40, 4)
    add("shorter_than_the_kernel", 3, 40, 8)
    add("prompt", 65, 100, 4)
    add("two_taps", 17, 33, 2)
    return cases


def gated_delta_rule() -> Cases:
    """q, k [T, K, Dk], v [T, H, Dv], a, b [T, H], a_log, dt_bias [H] -> out [T, H, Dv] of one
    sequence from its beginning, and state_<n> [H, Dv, Dk] after its first n tokens."""
    cases = Cases("gated_delta_rule")

    def add(case, tokens, k_heads, v_heads, k_dim, v_dim, lengths):
        tensors = {
            "q": cases.random(case, "q", tokens, k_heads, k_dim),
            "k": cases.random(case, "k", tokens, k_heads, k_dim),
            "v": cases.random(case, "v", tokens, v_heads, v_dim),
            "a": cases.random(case, "a", tokens, v_heads, std=2.0),
            "b": cases.random(case, "b", tokens, v_heads, std=2.0),
            "a_log": cases.random(case, "a_log", v_heads),
            "dt_bias": cases.random(case, "dt_bias", v_heads),
        }
        # As Qwen3NextGatedDeltaNet.forward does.
        soft = torch.nn.functional.softplus(tensors["a"] + tensors["dt_bias"])
        decay = -tensors["a_log"].exp() * soft
        beta = tensors["b"].sigmoid()
        for length in lengths:
            parts = [tensors[name][None, :length] for name in "qkv"]
            out, state = modeling_qwen3_next.torch_recurrent_gated_delta_rule(
                *parts,
                g=decay[None, :length],
                beta=beta[None, :length],
                initial_state=None,
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
            )
            tensors[f"state_{length}"] = state[0].transpose(-1, -2)
        cases.add(case, tensors | {"out": out[0]}, lengths=" ".join(map(str, lengths)))

    add("lengths", 273, 2, 4, 16, 24, [1, 3, 63, 64, 65, 127, 128, 129, 273])
    add("equal_heads", 9, 3, 3, 64, 64, [9])
    add("odd_rows", 5, 1, 3, 12, 71, [5])
    add("wide", 4, 1, 2, 256, 128, [4])
    return cases


def gated_rms_norm() -> Cases:
    """x [T, H, D], z [T, H * D], weight [D] -> out [T, H * D]."""
    cases = Cases("gated_rms_norm")

    def add(case, tokens, heads, dim, eps=1e-6, std=1.0):
        module = modeling_qwen3_next.Qwen3NextRMSNormGated(dim, eps=eps)
        module.weight.data = cases.random(case, "weight", dim, std=0.3) + 1.0
        x = cases.random(case, "x", tokens, heads, dim, std=std)
        z = cases.random(case, "z", tokens, heads * dim, std=3.0)
        out = module(x.reshape(-1, dim), z.reshape(-1, dim)).reshape(tokens, heads * dim)
        cases.add(case, {"x": x, "z": z, "weight": module.weight.data, "out": out}, eps=eps)

    add("plain", 3, 4, 64)
    add("odd_width", 2, 3, 24, eps=1e-5)
    add("small_values", 2, 2, 128, std=1e-4)
    return cases


def moe_route() -> Cases:
    return router_cases.moe_route(Cases("moe_route"))


OPS = (rms_norm, silu_mul, rope, attention, causal_conv1d, gated_delta_rule, gated_rms_norm, moe_route)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/parity/ops")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for make in OPS:
            make().save(args.out)


if __name__ == "__main__":
    main()
