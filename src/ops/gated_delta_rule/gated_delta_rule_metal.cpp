#include "ops/gated_delta_rule/gated_delta_rule_metal.h"

#include <stdexcept>

#include "ops/metal/metal_types.h"

namespace quire::ops {
namespace {

constexpr int64_t kThreads = 256, kRows = 32;  // of Dv: eight threads a row

}  // namespace

GatedDeltaRuleMetal gated_delta_rule_metal(const GatedDeltaRuleParams& p, int64_t num_sequences) {
  if (p.k_dim < 4 || p.k_dim > 256 || p.k_dim % 4 != 0)
    throw std::invalid_argument("gated_delta_rule: no Metal kernel for keys of " +
                                std::to_string(p.k_dim) + " elements");
  GatedDeltaRuleMetal launch = {.params = {.gates_row = p.gates_row,
                                           .k_heads = static_cast<int32_t>(p.k_heads),
                                           .v_heads = static_cast<int32_t>(p.v_heads),
                                           .k_dim = static_cast<int32_t>(p.k_dim),
                                           .v_dim = static_cast<int32_t>(p.v_dim),
                                           .a_column = static_cast<int32_t>(p.a_column),
                                           .b_column = static_cast<int32_t>(p.b_column),
                                           .heads_take_turns = p.heads_take_turns ? 1 : 0},
                                .call = {}};
  launch.call.kernel = std::string("gated_delta_rule_") + metal_type_name(p.type) +
                       (p.k_dim <= 64 ? "_64" : (p.k_dim <= 128 ? "_128" : "_256"));
  launch.call.groups = {static_cast<uint32_t>((p.v_dim + kRows - 1) / kRows),
                        static_cast<uint32_t>(p.v_heads), static_cast<uint32_t>(num_sequences)};
  launch.call.threads = {kThreads, 1, 1};
  return launch;
}

}  // namespace quire::ops
