"""Qwen3.5's text model, written for training: gated delta nets, and gated attention in every fourth layer.

Parameter names and arithmetic are those of transformers' Qwen3_5TextModel.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from delta_rule import document_conv, gated_delta_rule
from dense import Mlp, init_linear, rope_tables, rotate, summed_loss


def config(args, vocab):
    """The fields of config.json that are this architecture's own."""
    return {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": vocab, "hidden_size": args.hidden,
        "intermediate_size": args.intermediate or 640, "num_hidden_layers": args.layers,
        "layer_types": ["linear_attention" if (i + 1) % 4 else "full_attention" for i in range(args.layers)], "full_attention_interval": 4,
        "num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads, "head_dim": args.head_dim,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": args.linear_head_dim, "linear_value_head_dim": args.linear_head_dim,
        "linear_num_key_heads": args.linear_key_heads, "linear_num_value_heads": args.linear_value_heads,
        "hidden_act": "silu", "max_position_embeddings": args.seq_len, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "use_cache": True,
        "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "mamba_ssm_dtype": "float32",
    }


class Norm(nn.Module):
    """RMSNorm whose weight is the distance from 1."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    """RMSNorm of x with a plain weight, times silu(gate)."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x, gate):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * y * F.silu(gate.float())).to(x.dtype)


class GatedAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, d = c["hidden_size"], c["head_dim"]
        self.nh, self.nkv, self.d = c["num_attention_heads"], c["num_key_value_heads"], d
        self.rotary = int(d * c["rope_parameters"]["partial_rotary_factor"])
        self.q_proj = nn.Linear(h, self.nh * d * 2, bias=False)  # of each head the query, then the gate
        self.k_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.v_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.o_proj = nn.Linear(self.nh * d, h, bias=False)
        self.q_norm, self.k_norm = Norm(d, c["rms_norm_eps"]), Norm(d, c["rms_norm_eps"])

    def rope(self, z, cos, sin):
        turned, kept = z.split([self.rotary, self.d - self.rotary], -1)
        return torch.cat([rotate(turned, cos, sin), kept], -1)

    def forward(self, x, cos, sin, attend):
        b, t, _ = x.shape
        q, gate = self.q_proj(x).view(b, t, self.nh, 2 * self.d).chunk(2, -1)
        q = self.q_norm(q).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.nkv, self.d)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        y = attend(self.rope(q, cos, sin), self.rope(k, cos, sin), v).transpose(1, 2)
        return self.o_proj((y * torch.sigmoid(gate)).reshape(b, t, self.nh * self.d))


class GatedDeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        self.nk, self.nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.dk, self.dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        mixed = 2 * self.nk * self.dk + self.nv * self.dv
        self.in_proj_qkv = nn.Linear(h, mixed, bias=False)
        self.in_proj_z = nn.Linear(h, self.nv * self.dv, bias=False)
        self.in_proj_b = nn.Linear(h, self.nv, bias=False)
        self.in_proj_a = nn.Linear(h, self.nv, bias=False)
        self.conv1d = nn.Conv1d(mixed, mixed, c["linear_conv_kernel_dim"], groups=mixed, bias=False)
        self.A_log = nn.Parameter(torch.empty(self.nv).uniform_(1, 16).log())
        step = torch.exp(torch.empty(self.nv).uniform_(math.log(0.001), math.log(0.1)))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus of it is the step
        self.norm = GatedNorm(self.dv, c["rms_norm_eps"])
        self.out_proj = nn.Linear(self.nv * self.dv, h, bias=False)

    def forward(self, x, doc):
        b, t, _ = x.shape
        z = self.in_proj_z(x).view(b, t, self.nv, self.dv)
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        mixed = self.in_proj_qkv(x)
        with torch.autocast(x.device.type, enabled=False):
            mixed = F.silu(document_conv(mixed, self.conv1d.weight, doc)).to(x.dtype)
            q, k, v = mixed.split([self.nk * self.dk, self.nk * self.dk, self.nv * self.dv], -1)
            y = gated_delta_rule(q.view(b, t, self.nk, self.dk), k.view(b, t, self.nk, self.dk), v.view(b, t, self.nv, self.dv), g, beta, doc, x.dtype)
            y = self.norm(y, z)
        return self.out_proj(y.reshape(b, t, self.nv * self.dv))


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = GatedDeltaNet(c)
        else:
            self.self_attn = GatedAttention(c)
        self.linear = kind == "linear_attention"
        self.mlp = Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin, attend, doc):
        y = self.input_layernorm(x)
        x = x + (self.linear_attn(y, doc) if self.linear else self.self_attn(y, cos, sin, attend))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """dtype: of the activations."""

    def __init__(self, c, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c["layer_types"])
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        rope = c["rope_parameters"]
        cos, sin = rope_tables(c["max_position_embeddings"], int(c["head_dim"] * rope["partial_rotary_factor"]), rope["rope_theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        init_linear(self, c["num_hidden_layers"])

    def logits(self, ids, attend, doc):
        t = ids.shape[1]
        x = F.embedding(ids, self.embed_tokens.weight).to(self.dtype)
        for layer in self.layers:
            x = layer(x, self.cos[:t], self.sin[:t], attend, doc)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def forward(self, ids, targets, attend, doc):
        """Sum of the losses of the targets >= 0; doc [b, t] numbers the documents of each row."""
        return summed_loss(self.logits(ids, attend, doc), targets)
