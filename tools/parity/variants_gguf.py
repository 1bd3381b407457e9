"""The tiny checkpoints in GGUF: which families, in which types."""

import dataclasses
import math

from variants import (GEMMA3, GLM, GRANITE, LLAMA3, OLMO3, PHI3, PHI3_LONGROPE, PLAIN_ROPE, QWEN2, QWEN3, QWEN3_5, QWEN3_MOE,
                      QWEN3_NEXT, SMOLLM3, Variant)
from variants_frame import ERNIE45, GEMMA, GRANITE_HYBRID, LLAMA4, PHIMOE
from variants_gemma4 import GEMMA4_E2B, GEMMA4_MOE
from variants_mla import DEEPSEEK_V2_LITE
from variants_moe import GPT_OSS, GRANITE_MOE_SHARED


@dataclasses.dataclass(frozen=True)
class GgufVariant:
    checkpoint: Variant
    outtype: str  # "f32", "f16", "bf16"
    quantize: tuple[str, ...] = ()  # arguments of llama-quantize
    nvfp4: tuple[str, ...] = ()  # ends of names of layers that the converter finds in modelopt's NVFP4
    text: str = ""  # a style of gguf_text.py; without one the tokenizer is tiny_tokenizer's

    @property
    def name(self) -> str:
        return self.checkpoint.name


def variant(name: str, family: str, config: dict, outtype: str, *quantize: str, keys: str = "new", text: str = "",
            nvfp4: tuple[str, ...] = (), **more) -> GgufVariant:
    dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[outtype]
    checkpoint = Variant(name, family, config, keys, "float32" if quantize else dtype, **more)
    return GgufVariant(checkpoint, outtype, quantize, nvfp4, text)


# What a file does not say is as llama.cpp takes it for granted: one window in two layers or five in
# six, a scale of scores that follows from the head's width, which layers rotate, how a gate is clamped.
SIX = ["sliding_attention"] * 5 + ["full_attention"]
GGUF_GEMMA3 = GEMMA3 | {
    "num_hidden_layers": 6,
    "intermediate_size": 32,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window_pattern": 6,
    "layer_types": SIX,
    "tie_word_embeddings": True,
}
GGUF_GPT_OSS = GPT_OSS | {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "layer_types": ["sliding_attention", "full_attention"],
    "swiglu_limit": 7.0,
    "swiglu_alpha": 1.702,
}
GGUF_SMOLLM3 = SMOLLM3 | {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
GGUF_QWEN3_MOE = QWEN3_MOE | {"num_hidden_layers": 1, "mlp_only_layers": []}
# Rows of 256, which K-quants need.
WIDE = QWEN3 | {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
# One dense layer, whose matrices have rows of whole blocks.
GGUF_DEEPSEEK_V2 = DEEPSEEK_V2_LITE | {
    "num_hidden_layers": 1,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "rope_parameters": PLAIN_ROPE,
}

# Both factors of rotated heads are what the converter makes of the lengths.
GGUF_PHIMOE = PHIMOE | {
    "num_hidden_layers": 1,
    "num_local_experts": 4,
    "router_jitter_noise": 0.01,
    "rope_parameters": PHIMOE["rope_parameters"]
    | {name: math.sqrt(1 + math.log(512 / 64) / math.log(64)) for name in ("short_mscale", "long_mscale")},
}
# ChatGLM's own word for the length; heads fill the hidden size, and the eps is the converter's.
GGUF_CHATGLM = GLM | {"head_dim": 16, "seq_length": 512, "rms_norm_eps": 1e-5}
# No experts, which the converter asks two keys for.
GGUF_GRANITE4 = GRANITE_HYBRID | {"num_experts_per_tok": 0}
GGUF_GRANITE_MOE = GRANITE_MOE_SHARED | {
    "num_hidden_layers": 1,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "shared_intermediate_size": 48,
}
# Three layers that rotate and one that does not; chunks and the growth of queries begin behind the
# prompts. Experts in every second layer.
GGUF_LLAMA4 = LLAMA4 | {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "intermediate_size": 32,
    "intermediate_size_mlp": 48,
    "num_local_experts": 4,
    "no_rope_layers": [1, 1, 1, 0],
    "attention_chunk_size": 8192,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
GGUF_GEMMA4_E2B = GEMMA4_E2B | {"intermediate_size": 32, "global_head_dim": 24}
GGUF_GEMMA4_MOE = GEMMA4_MOE | {"intermediate_size": 32, "num_experts": 4, "top_k_experts": 2}
# A delta net, whose value heads the converter puts into another order, and a layer of attention.
TWO_LAYERS = {
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 16,
    "intermediate_size": 48,
    "rope_parameters": QWEN3_5["rope_parameters"] | {"partial_rotary_factor": 0.5},
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
GGUF_QWEN35 = QWEN3_5 | TWO_LAYERS | {"mtp_num_hidden_layers": 1}
GGUF_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
GGUF_QWEN35_MOE = {
    key: value
    for key, value in (QWEN3_5 | TWO_LAYERS | GGUF_EXPERTS | {"mtp_num_hidden_layers": 1}).items()
    if key != "intermediate_size"
}
GGUF_QWEN3_NEXT = (
    QWEN3_NEXT
    | TWO_LAYERS
    | GGUF_EXPERTS
    | {"mlp_only_layers": [], "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5}}
)
# A layer that predicts further tokens, or some of it.
MTP = {"mtp.fc.weight": [64, 128], "mtp.layers.0.input_layernorm.weight": [64]}

# Where the converter knows an architecture by another name.
CONVERTER_NAMES = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}

GGUF_VARIANTS = [
    variant("llama3-gguf-bf16", "llama", LLAMA3, "bf16"),
    variant("qwen2-gguf-f16", "qwen2", QWEN2, "f16"),
    variant("qwen3-gguf", "qwen3", QWEN3 | {"num_hidden_layers": 1}, "f32"),
    variant("gemma3-gguf-bf16", "gemma3_text", GGUF_GEMMA3, "bf16"),
    variant("phi3-longrope-gguf-bf16", "phi3", PHI3_LONGROPE, "bf16"),
    variant("gpt-oss-gguf-bf16", "gpt_oss", GGUF_GPT_OSS, "bf16"),
    variant("smollm3-gguf-bf16", "smollm3", GGUF_SMOLLM3, "bf16"),
    variant("granite-gguf-bf16", "granite", GRANITE, "bf16"),
    variant("glm4-gguf-bf16", "glm4", GLM, "bf16"),
    variant("olmo3-gguf-bf16", "olmo3", OLMO3, "bf16"),
    variant("qwen3-moe-gguf-bf16", "qwen3_moe", GGUF_QWEN3_MOE, "bf16"),
    variant("qwen3-gguf-q8", "qwen3", QWEN3, "f32", "Q8_0"),
    variant("qwen3-moe-gguf-q5", "qwen3_moe", GGUF_QWEN3_MOE, "f32", "--tensor-type", "attn_k=q4_0", "--tensor-type",
            "ffn_up_exps=q5_1", "--tensor-type", "attn_v=q4_1", "Q5_0"),
    variant("qwen3-gguf-k", "qwen3", WIDE, "f32", "--tensor-type", "attn_k=q5_k", "--tensor-type", "ffn_up=q3_k",
            "--tensor-type", "ffn_down=q2_k", "--pure", "Q4_K"),
    variant("qwen3-gguf-iq4-xs", "qwen3", WIDE, "f32", "--tensor-type", "attn_v=q6_k", "--pure", "IQ4_XS"),
    variant("deepseek-v2-gguf-q8", "deepseek_v2", GGUF_DEEPSEEK_V2, "f32", "Q8_0"),
    variant("phimoe-gguf-bf16", "phimoe", GGUF_PHIMOE, "bf16"),
    variant("chatglm-gguf-bf16", "glm", GGUF_CHATGLM, "bf16"),
    variant("granite4-gguf-bf16", "granitemoehybrid", GGUF_GRANITE4, "bf16"),
    variant("granite-moe-gguf-bf16", "granitemoeshared", GGUF_GRANITE_MOE, "bf16"),
    variant("llama4-gguf-bf16", "llama4_text", GGUF_LLAMA4, "bf16"),
    variant("gemma4-e2b-gguf-bf16", "gemma4_text", GGUF_GEMMA4_E2B, "bf16", keys="global"),
    variant("gemma4-26b-a4b-gguf-bf16", "gemma4_text", GGUF_GEMMA4_MOE, "bf16", keys="global"),
    variant("qwen3-next-gguf-bf16", "qwen3_next", GGUF_QWEN3_NEXT, "bf16", extra=MTP),
    variant("qwen35-gguf-bf16", "qwen3_5_text", GGUF_QWEN35, "bf16", extra=MTP),
    variant("qwen35-moe-gguf-bf16", "qwen3_5_moe_text", GGUF_QWEN35_MOE, "bf16", extra=MTP),
    variant("gemma-gguf-bf16", "gemma", GEMMA, "bf16"),
    variant("ernie45-gguf-bf16", "ernie4_5", ERNIE45 | {"use_bias": False}, "bf16"),
    # Blocks of 32 columns hold two heads; values that are no blocks beside others in one projection.
    variant("qwen35-gguf-q5", "qwen3_5_text", QWEN3_5 | TWO_LAYERS | {"tie_word_embeddings": True}, "f32", "--tensor-type",
            "attn_qkv=q5_0", "--tensor-type", "attn_k=f16", "--tensor-type", "ssm_alpha=f16", "Q8_0"),
    # A number for each matrix, and for each of the experts'. Rows of whole blocks of 64; some layers stay as they are.
    variant("llama3-gguf-nvfp4", "llama", LLAMA3 | {"intermediate_size": 128}, "f32",
            nvfp4=("q_proj", "k_proj", "v_proj", "layers.0.self_attn.o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")),
    variant("qwen3-moe-gguf-nvfp4", "qwen3_moe", GGUF_QWEN3_MOE | {"moe_intermediate_size": 64}, "f32",
            nvfp4=("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")),
    # Families with the tokenizers and templates of their kind.
    variant("llama3-gguf-q4", "llama", LLAMA3 | {"vocab_size": 605}, "f32", "--tensor-type", "attn_k=q5_1", "Q4_0", text="llama"),
    variant("qwen3-gguf-q4-k-m", "qwen3", WIDE | {"vocab_size": 720}, "f32", "Q4_K_M", text="qwen"),
    variant("gemma3-gguf-iq4", "gemma3_text", GGUF_GEMMA3 | {"vocab_size": 570}, "f32", "IQ4_NL", text="gemma"),
    variant("phi3-gguf-q8", "phi3", PHI3 | {"vocab_size": 576}, "f32", "Q8_0", text="phi3"),
    variant("gpt-oss-gguf-mxfp4", "gpt_oss", GGUF_GPT_OSS | {"vocab_size": 589}, "f32", "MXFP4_MOE", text="gpt-oss"),
]
