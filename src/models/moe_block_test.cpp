#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "models/blocks/moe.h"
#include "models/model_size.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using namespace quire::ops::testing;

// What the experts make, and what the MLP beside them makes on its own: their sum is that of both.
TEST(MoeBlock, ASharedExpertMayHaveNoGate) {
  const auto checkpoint =
      formats::Checkpoint::open(source_dir() + "/tests/parity/models/glm45-moe");
  const ModelSpec model = model_spec_of(checkpoint, {});
  const ops::Context context = ops::make_context(1);
  WeightLoader weights(context, checkpoint, mx::float32, {});
  MoeSpec spec = *experts_of(model.layers.back());
  ASSERT_TRUE(spec.shared && spec.shared_gate.empty());
  spec.shared->has_gate = false;
  spec.shared->gate = {.kind = ops::Gate::Kind::kRelu2};
  spec.shared->gate_up_weights.erase(spec.shared->gate_up_weights.begin());
  const MoeBlock both(context, spec, model.hidden, model.norm_eps, weights);
  const MlpBlock shared(*spec.shared, model.hidden, weights);
  spec.shared.reset();
  const MoeBlock experts(context, spec, model.hidden, model.norm_eps, weights);

  const mx::array x = random_array({5, static_cast<int>(model.hidden)}, mx::float32, 3);
  const mx::array sum = experts.run(context, x, {}) + shared.run(context, x, {});
  EXPECT_TRUE(near(both.run(context, x, {}), sum, {.abs = 1e-5f, .rel = 1e-5f}));
}

}  // namespace
}  // namespace quire::models
