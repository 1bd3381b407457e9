#include "mlx/backend/metal/kernels/utils.h"
// utils.h first
#include "mlx/backend/metal/kernels/sdpa_vector.h"

instantiate_kernel("sdpa_vector_float_128", sdpa_vector, float, 128, 128)
    instantiate_kernel("sdpa_vector_bfloat_64", sdpa_vector, bfloat16_t, 64, 64)
        instantiate_kernel("sdpa_vector_half_256", sdpa_vector, half, 256, 256)
