#include "mlx/backend/metal/kernels/utils.h"
// utils.h first
#include "mlx/backend/metal/kernels/gemv.h"

instantiate_kernel("gemv_float", gemv, float, 8, 1, 1, 32, 4, 4, false, false)
    instantiate_kernel("gemv_bfloat", gemv, bfloat16_t, 4, 1, 1, 32, 4, 4, false, false)
        instantiate_kernel("gemv_half", gemv, half, 4, 1, 8, 4, 4, 4, false, true)
            instantiate_kernel("gemv_shared_rows", gemv, float, 1, 8, 1, 32, 4, 4, false, false)
