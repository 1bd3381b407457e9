#include "mlx/backend/metal/kernels/utils.h"
// utils.h first
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
// these first
#include "mlx/backend/metal/kernels/quantized.h"

instantiate_kernel("qmv_fast_float", affine_qmv_fast, float, 64, 4, false)
    instantiate_kernel("qmv_fast_bfloat", affine_qmv_fast, bfloat16_t, 64, 4, false)
        instantiate_kernel("qmm_t_half", affine_qmm_t, half, 64, 4, false, false)
