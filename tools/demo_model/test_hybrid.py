"""The training code of the hybrid demo model against transformers: pytest tools/demo_model/test_hybrid.py

On a machine with a GPU the rule runs there too, in tf32 and bfloat16, with looser bounds.
"""

import argparse
import os
import sys

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import delta_rule  # noqa: E402
import hybrid  # noqa: E402
import train  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/quire-demo-hybrid")
LENGTHS = (1, 2, 61, 5, 130, 1, 1, 55)  # of a row's documents: 256 tokens, borders on a chunk's edge and off it


def documents():
    return torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS)).expand(2, -1) + 1


def rule_inputs(seed, hk=2, hv=4, d=32, dv=64):
    r = torch.Generator().manual_seed(seed)
    n = lambda *s: torch.randn(2, sum(LENGTHS), *s, generator=r)  # noqa: E731
    k = n(hk, d)
    k[:, 70:120] = k[:, 70:71]  # the same key again and again: powers of L grow
    q, v, g, beta = n(hk, d), n(hv, dv), -0.1 * n(hv).exp(), torch.sigmoid(2 + n(hv))
    return [x.requires_grad_() for x in (q, k, v, g, beta)]


def recurrent(q, k, v, g, beta):
    """transformers' token by token rule, each document by itself."""
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule as rule
    parts = [x.split(LENGTHS, 1) for x in (q, k, v, g, beta)]
    return torch.cat([rule(*p[:3], g=p[3], beta=p[4], use_qk_l2norm_in_kernel=True)[0] for p in zip(*parts)], 1)


def distance(a, b):
    return ((a.cpu().double() - b.cpu().double()).norm() / b.cpu().double().norm()).item()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_rule_and_gradients(device, dtype):
    want_in, got_in = rule_inputs(1), [x.detach().to(device).requires_grad_() for x in rule_inputs(1)]
    want = recurrent(*want_in)
    got = delta_rule.gated_delta_rule(*got_in, documents().to(device), dtype)
    weight = torch.randn(want.shape, generator=torch.Generator().manual_seed(2))
    (want * weight).sum().backward()
    (got.float() * weight.to(device)).sum().backward()
    bound = 2e-2 if dtype == torch.bfloat16 else 1e-5 if device == "cpu" else 5e-3
    assert distance(got, want) < bound
    for a, b in zip(got_in, want_in):
        assert distance(a.grad, b.grad) < 2 * bound


@pytest.mark.parametrize("device", DEVICES)
def test_inverse_of_growing_powers(device):
    lower = torch.full((3, 64, 64), 0.99).tril(-1)
    lower[1] *= torch.rand(64, 64, generator=torch.Generator().manual_seed(3))
    lower = lower.to(device)
    want = torch.linalg.inv(torch.eye(64, dtype=torch.float64) + lower.cpu().double())
    assert distance(delta_rule.unit_lower_inverse(lower), want) < (1e-5 if device == "cpu" else 1e-2)


def test_conv_stays_in_its_document():
    x, w = torch.randn(2, sum(LENGTHS), 6), torch.randn(6, 1, 4)
    want = torch.cat([F.conv1d(F.pad(p.mT, (3, 0)), w, groups=6).mT for p in x.split(LENGTHS, 1)], 1)
    assert distance(delta_rule.document_conv(x, w, documents()), want) < 1e-6


def attend_within(doc):
    """Attention for Model.logits, over each document alone."""
    alike = (doc[:, None, :, None] == doc[:, None, None, :]).tril()
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=alike, enable_gqa=True)


def tiny():
    args = argparse.Namespace(hidden=64, intermediate=96, layers=4, heads=4, kv_heads=2, head_dim=32, linear_head_dim=32, linear_key_heads=2,
                              linear_value_heads=4, seq_len=256)
    torch.manual_seed(4)
    c = hybrid.config(args, 300) | {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "torch_dtype": "bfloat16"}
    model = hybrid.Model(c, torch.float32)
    for p in model.parameters():  # far from the initial values, and exact in bfloat16 as saved
        p.data.add_(0.1 * torch.randn_like(p)).copy_(p.data.bfloat16().float())
    return c, model


def test_logits_equal_transformers(tmp_path):
    from transformers import AutoModelForCausalLM
    c, model = tiny()
    train.save(model, c, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert type(theirs).__name__ == "Qwen3_5ForCausalLM"
    ids, doc = torch.randint(2, 300, (2, 192)), torch.ones(2, 192, dtype=torch.int)
    with torch.no_grad():
        assert distance(model.logits(ids, attend_within(doc), doc), theirs(ids).logits) < 1e-5


def test_documents_do_not_see_each_other():
    _, model = tiny()
    doc = documents()
    ids = torch.randint(2, 300, doc.shape)
    with torch.no_grad():
        got, at = model.logits(ids, attend_within(doc), doc), 0
        for n in LENGTHS:
            alone = F.pad(ids[:, at:at + n], (0, -n % 64))
            one = torch.ones_like(alone)
            assert distance(got[:, at:at + n], model.logits(alone, attend_within(one), one)[:, :n]) < 1e-5
            at += n


@pytest.mark.skipif(not os.path.exists(os.path.join(DEMO, "model.safetensors")), reason="no trained model")
def test_the_demo_model_equals_transformers():
    from transformers import AutoModelForCausalLM
    theirs = AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)
    model = hybrid.Model(theirs.config.to_dict(), torch.float32)
    train.load(model, DEMO)
    ids, doc = torch.randint(2, 4000, (1, 512)), torch.ones(1, 512, dtype=torch.int)
    with torch.no_grad():
        assert distance(model.logits(ids, attend_within(doc), doc), theirs(ids).logits) < 1e-4
