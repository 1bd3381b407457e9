#include "mlx/backend/metal/kernels/utils.h"
// utils.h first
#include "mlx/backend/metal/kernels/steel/attn/kernels/steel_attention.h"

instantiate_kernel("steel_attention_float_64", attention, float, 32, 16, 64, 64, 4, 1)
    instantiate_kernel("steel_attention_bfloat_128", attention, bfloat16_t, 32, 16, 128, 128, 4, 1)
