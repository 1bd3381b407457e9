#pragma once
#include "ops/latent_kv_write/latent_kv_write.h"

namespace quire::ops {

// The same by one op after the other, each by its kernel or its reference as the context says. The
// write is kv_write's copy.
PagedKv latent_kv_write_reference(const Context& context, const mx::array& x,
                                  const mx::array& weight, float eps, const BatchLayoutPtr& layout,
                                  std::shared_ptr<const RopeTable> table, const PagedKv& kv);

}  // namespace quire::ops
