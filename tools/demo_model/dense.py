"""Qwen3, written for training: parameter names are those of transformers' Qwen3Model."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def config(args, vocab):
    """The fields of config.json that are this architecture's own."""
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": vocab, "hidden_size": args.hidden,
        "intermediate_size": args.intermediate or 768, "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
        "num_key_value_heads": args.kv_heads, "head_dim": args.head_dim, "hidden_act": "silu", "max_position_embeddings": args.seq_len,
        "initializer_range": 0.02, "rms_norm_eps": 1e-6, "use_cache": True, "tie_word_embeddings": True, "rope_theta": 10000.0, "rope_scaling": None,
        "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": None, "max_window_layers": args.layers,
    }


def rope_tables(positions, dims, theta):
    """cos and sin of the angles, each float32 [positions, dims / 2]."""
    inv = 1.0 / theta ** (torch.arange(0, dims, 2).float() / dims)
    ang = torch.outer(torch.arange(positions).float(), inv)
    return ang.cos(), ang.sin()


def rotate(z, cos, sin):
    """RoPE over the whole last dimension of z [..., t, dims], halves rotated against each other."""
    a, c = z.float().chunk(2, -1)
    return torch.cat([a * cos - c * sin, c * cos + a * sin], -1).to(z.dtype)


def init_linear(model, layers):
    """Normal weights of 0.02, narrower where a layer writes to the residual stream."""
    for name, p in model.named_parameters():
        if p.dim() == 2:
            narrow = name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if narrow else 0.02)


def summed_loss(logits, targets):
    """Sum of the losses of the targets >= 0."""
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1, reduction="sum")


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, d = c["hidden_size"], c["head_dim"]
        self.nh, self.nkv, self.d = c["num_attention_heads"], c["num_key_value_heads"], d
        self.q_proj = nn.Linear(h, self.nh * d, bias=False)
        self.k_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.v_proj = nn.Linear(h, self.nkv * d, bias=False)
        self.o_proj = nn.Linear(self.nh * d, h, bias=False)
        self.q_norm, self.k_norm = Norm(d, c["rms_norm_eps"]), Norm(d, c["rms_norm_eps"])

    def forward(self, x, cos, sin, attend):
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.nh, self.d)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.nkv, self.d)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.nh * self.d))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, m = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(h, m, bias=False), nn.Linear(h, m, bias=False)
        self.down_proj = nn.Linear(m, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin, attend):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        cos, sin = rope_tables(c["max_position_embeddings"], c["head_dim"], c["rope_theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        init_linear(self, c["num_hidden_layers"])

    def forward(self, ids, targets, attend, doc):
        """Sum of the losses of the targets >= 0; attend alone keeps the documents apart."""
        t = ids.shape[1]
        x = F.embedding(ids, self.embed_tokens.weight).to(torch.bfloat16)
        cos, sin = self.cos[:t], self.sin[:t]
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return summed_loss(F.linear(self.norm(x), self.embed_tokens.weight), targets)
