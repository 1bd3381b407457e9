"""The op goldens of moe_route, from transformers' own routers.

A router's matrix is the identity here, so that its input is the logits.
"""

import types

import torch
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.ernie4_5_moe import modeling_ernie4_5_moe
from transformers.models.gemma4 import modeling_gemma4
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.lfm2_moe import modeling_lfm2_moe
from transformers.models.laguna import modeling_laguna
from transformers.models.llama4 import modeling_llama4
from transformers.models.minimax_m2 import modeling_minimax_m2
from transformers.models.olmoe import modeling_olmoe
from transformers.models.phimoe import modeling_phimoe

ROWS = 12
USUAL = dict(normalise=0, score="softmax", sum_offset=0.0, least_sum=0.0, scale=1.0, softcap=0.0)
USUAL |= dict(jitter=0.0, groups=1, chosen_groups=1, groups_by_two=0)


def router_of(cls, experts: int, top_k: int, **facts):
    names = ("num_local_experts", "num_experts", "moe_num_experts", "n_routed_experts")
    config = types.SimpleNamespace(
        hidden_size=experts, num_experts_per_tok=top_k, **{name: experts for name in names}, **facts
    )
    router = cls(config)
    if getattr(router, "weight", None) is not None:
        router.weight.data = torch.eye(experts)
    return router


def adder(cases):
    """add(case, experts, top_k, run, ...): `run` takes the tensors and gives (weights, experts)."""

    def add(case, experts, top_k, run, std=2.0, correction=0.0, **options):
        tensors = {"logits": cases.random(case, "logits", ROWS, experts, std=std)}
        if correction:
            tensors["correction"] = cases.random(case, "correction", experts, std=correction)
        if options.pop("scaled", False):
            tensors["expert_scale"] = 1.0 + cases.random(case, "expert_scale", experts, std=0.3)
        weights, chosen = run(tensors)
        order = torch.argsort(chosen, dim=-1)
        tensors["experts"] = chosen.gather(1, order).to(torch.int32)
        tensors["weights"] = weights.float().gather(1, order)
        cases.add(case, tensors, top_k=top_k, **USUAL | options)

    return add


def routed(router):  # most of them give (logits, weights, experts)
    return lambda t: router(t["logits"])[1:]


def corrected(router):
    def run(t):
        router.e_score_correction_bias.data = t["correction"]
        return router(t["logits"])[1:]

    return run


def softmax_routers(add):
    for normalise in (False, True):
        router = router_of(modeling_olmoe.OlmoeTopKRouter, 60, 4, norm_topk_prob=normalise)
        add(f"softmax_{normalise}".lower(), 60, 4, routed(router), normalise=int(normalise))

    router = router_of(modeling_gpt_oss.GptOssTopKRouter, 32, 4)
    router.bias.data = torch.zeros(32)
    add("softmax_of_chosen", 32, 4, routed(router), normalise=1)


def grouped_routers(add):
    groups = dict(routed_scaling_factor=2.5, n_group=8, topk_group=3)
    for normalise in (False, True):
        router = router_of(
            modeling_deepseek_v3.DeepseekV3TopkRouter, 64, 6, norm_topk_prob=normalise, **groups
        )
        options = dict(normalise=int(normalise), sum_offset=1e-20, scale=2.5)
        options |= dict(score="sigmoid", groups=8, chosen_groups=3, groups_by_two=1)
        add(f"noaux_tc_{normalise}".lower(), 64, 6, corrected(router), correction=0.3, **options)
    router = router_of(
        modeling_deepseek_v2.DeepseekV2TopkRouter, 60, 5, topk_method="group_limited_greedy", **groups | {"n_group": 6}
    )
    add("group_limited_greedy", 60, 5, routed(router), scale=2.5, groups=6, chosen_groups=3)


def sigmoid_routers(add):
    router = router_of(modeling_minimax_m2.MiniMaxM2TopKRouter, 40, 3)
    add(
        "sigmoid_corrected",
        40,
        3,
        lambda t: router(t["logits"], t["correction"])[1:],
        correction=0.3,
        score="sigmoid",
        normalise=1,
    )
    router = router_of(modeling_laguna.LagunaTopKRouter, 20, 3, moe_router_logit_softcapping=1.5)
    add(
        "sigmoid_capped",
        20,
        3,
        corrected(router),
        correction=0.1,
        score="sigmoid",
        normalise=1,
        softcap=1.5,
    )
    lfm2 = router_of(
        modeling_lfm2_moe.Lfm2MoeTopKRouter, 24, 3, norm_topk_prob=True, routed_scaling_factor=0.7, use_expert_bias=False
    )
    add(
        "sigmoid_offset",
        24,
        3,
        routed(lfm2),
        std=6.0,
        score="sigmoid",
        normalise=1,
        sum_offset=1e-6,
        scale=0.7,
    )

    def llama4(t):
        scores, logits = modeling_llama4.Llama4Router.forward(sigmoid, t["logits"])
        chosen = torch.topk(logits, 2, dim=1).indices
        return scores.gather(1, chosen), chosen

    sigmoid = router_of(modeling_llama4.Llama4Router, 16, 2)
    add("sigmoid", 16, 2, llama4, score="sigmoid")


def other_routers(add):
    ernie = router_of(modeling_ernie4_5_moe.Ernie4_5_MoeTopKRouter, 48, 6, moe_norm_min=1e-12)

    def with_statics(t):
        ernie.moe_statics.e_score_correction_bias.data = t["correction"][None]
        return ernie(t["logits"])[1:]

    add("softmax_corrected", 48, 6, with_statics, correction=0.05, normalise=1, least_sum=1e-12)

    gemma = router_of(modeling_gemma4.Gemma4TextRouter, 36, 4, rms_norm_eps=1e-6, top_k_experts=4)
    gemma.norm = torch.nn.Identity()
    gemma.proj.weight.data = torch.eye(36) / gemma.scalar_root_size

    def with_scale(t):
        gemma.per_expert_scale.data = t["expert_scale"]
        return gemma(t["logits"])[1:]

    add("expert_scale", 36, 4, with_scale, normalise=1, scaled=True)

    for case, std in [("sparse_mixer", 0.05), ("sparse_mixer_wide", 2.0)]:
        mixer = lambda t: modeling_phimoe.sparsemixer(t["logits"], jitter_eps=0.1, training=False)
        add(case, 16, 2, mixer, std=std, score="sparse_mixer", jitter=0.1)


def moe_route(cases):
    """logits [T, E], maybe correction [E] and expert_scale [E] -> experts [T, k] ascending, weights."""
    add = adder(cases)
    for kinds in (softmax_routers, grouped_routers, sigmoid_routers, other_routers):
        kinds(add)
    return cases
