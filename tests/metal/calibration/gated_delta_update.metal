#include "mlx/backend/metal/kernels/utils.h"
// utils.h first
#include "mlx/backend/metal/kernels/gated_delta_update.h"

instantiate_kernel("gated_delta_seq_float", gated_delta_seq, float, 64, 32, 2, 4, 16)
    instantiate_kernel("gated_delta_chunk_float", gated_delta_fused_chunk, float, 64, 32, 2, 4, 8)
