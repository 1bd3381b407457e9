#include "ops/linear/pack/stack_matrices.h"

#include <stdexcept>

#include "ops/linear/linear_format.h"

namespace quire::ops {
namespace {

// What keeps the parts, and the table of them that the kernel reads.
struct Stack {
  std::vector<PackedMatrix> parts;
  std::vector<LinearParams> table;
};

}  // namespace

PackedMatrix stack_matrices(const Context& context, std::vector<PackedMatrix> parts,
                            bool interleave) {
  if (context.device->cuda() && interleave)
    throw std::invalid_argument("stack_matrices: no kernel for gates and ups apart on cuda");
  if (parts.empty() || (interleave && (parts.size() != 2 || parts[0].n != parts[1].n)))
    throw std::invalid_argument("stack_matrices: parts are missing, or gate and up differ in rows");
  const auto stack = std::make_shared<Stack>();
  PackedMatrix result;
  result.k = parts[0].k;
  result.dtype = parts[0].dtype;
  result.interleaved = interleave;
  for (const PackedMatrix& part : parts) {
    if (part.k != result.k || part.dtype != result.dtype || part.interleaved || part.parts)
      throw std::invalid_argument(
          "stack_matrices: parts differ in columns or dtype, or are no plain matrices");
    result.n += part.n;
    stack->table.push_back(linear_format(part, part.dtype));
    stack->table.back().w = part.data.get();
  }
  stack->parts = std::move(parts);
  result.parts = &stack->parts;
  result.data = std::shared_ptr<const std::byte[]>(
      stack, reinterpret_cast<const std::byte*>(stack->table.data()));
  return result;
}

}  // namespace quire::ops
