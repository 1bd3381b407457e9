#pragma once
#include <span>

#include "bench/ops/op_bench.h"

namespace quire::bench {

// Every op that the graph of a model or of a step may have as a node, and no other
// (cases_test.cpp).
std::span<const OpCases> op_cases();

// <op>_bench.cpp beside each op. Shapes are Qwen3-0.6B's, or those of a model that has the op, and
// sizes those that serving meets.
void bench_activation(OpBench& bench);
void bench_causal_conv1d(OpBench& bench);
void bench_copy_slots(OpBench& bench);
void bench_embedding(OpBench& bench);
void bench_gated_activation(OpBench& bench);
void bench_gated_delta_rule(OpBench& bench);
void bench_gated_rms_norm(OpBench& bench);
void bench_gather_rows(OpBench& bench);
void bench_head_linear(OpBench& bench);
void bench_latent_kv_write(OpBench& bench);
void bench_layer_norm(OpBench& bench);
void bench_linear(OpBench& bench);
void bench_lora_add(OpBench& bench);
void bench_moe_experts(OpBench& bench);
void bench_moe_route(OpBench& bench);
void bench_norm_columns(OpBench& bench);
void bench_paged_attention(OpBench& bench);
void bench_position_scale(OpBench& bench);
void bench_qk_norm_rope_kv_write(OpBench& bench);
void bench_residual_add(OpBench& bench);
void bench_resolve_tokens(OpBench& bench);
void bench_rms_norm(OpBench& bench);
void bench_rope(OpBench& bench);
void bench_sample(OpBench& bench);
void bench_scale(OpBench& bench);
void bench_sigmoid_gate(OpBench& bench);
void bench_slice_columns(OpBench& bench);

}  // namespace quire::bench
