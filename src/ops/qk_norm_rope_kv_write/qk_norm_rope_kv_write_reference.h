#pragma once
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

namespace quire::ops {

// The same by one op after the other, each by its kernel or its reference as the context says.
RotatedQueries qk_norm_rope_kv_write_reference(const Context& context, const mx::array& qkv,
                                               const HeadNorms& norms, const BatchLayoutPtr& layout,
                                               std::shared_ptr<const RopeTable> table,
                                               const PagedKv& kv);

}  // namespace quire::ops
