#include "bench/ops/cases.h"

namespace quire::bench {

std::span<const OpCases> op_cases() {
  static constexpr OpCases kCases[] = {
      {"linear", bench_linear},
      {"paged_attention", bench_paged_attention},
      {"lora_add", bench_lora_add},
      {"moe_experts", bench_moe_experts},
      {"activation", bench_activation},
      {"causal_conv1d", bench_causal_conv1d},
      {"copy_slots", bench_copy_slots},
      {"embedding", bench_embedding},
      {"gated_activation", bench_gated_activation},
      {"gated_delta_rule", bench_gated_delta_rule},
      {"gated_rms_norm", bench_gated_rms_norm},
      {"gather_rows", bench_gather_rows},
      {"head_linear", bench_head_linear},
      {"latent_kv_write", bench_latent_kv_write},
      {"layer_norm", bench_layer_norm},
      {"moe_route", bench_moe_route},
      {"norm_columns", bench_norm_columns},
      {"position_scale", bench_position_scale},
      {"qk_norm_rope_kv_write", bench_qk_norm_rope_kv_write},
      {"residual_add", bench_residual_add},
      {"resolve_tokens", bench_resolve_tokens},
      {"rms_norm", bench_rms_norm},
      {"rope", bench_rope},
      {"sample", bench_sample},
      {"scale", bench_scale},
      {"sigmoid_gate", bench_sigmoid_gate},
      {"slice_columns", bench_slice_columns},
  };
  return kCases;
}

}  // namespace quire::bench
