# How the kernel files are compiled, in the room of the ops and in the Python package alike.

# Kernels keep arrays of vectors in registers: their loops must be unrolled whole, which -O2 does not do. With a
# sanitizer that would take a compiler ten minutes a file.
set(QUIRE_KERNEL_LEVEL -O3)
if(QUIRE_SANITIZE)
  set(QUIRE_KERNEL_LEVEL -O1)
endif()

# quire_kernel_flags(files...): sets the options of the *_cpu.cpp among them, in the caller's folder.
#
# Hand-written kernels of one instruction set (use_amx, use_avx512_bf16 in cpu_isa.h) are *_avx512_bf16_cpu.cpp and
# *_amx_cpu.cpp. They hold plain functions on pointers only: a template or inline function shared with other files could
# be linked in from here and run on a CPU without these instructions.
function(quire_kernel_flags)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "_cpu\\.cpp$")
  set_property(SOURCE ${kernels} PROPERTY COMPILE_OPTIONS ${QUIRE_KERNEL_LEVEL})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(bf16_flags ${QUIRE_KERNEL_LEVEL} -mavx2 -mfma -mf16c -mbmi -mbmi2 -maes -mpclmul -mavx512f -mavx512bw
        -mavx512cd -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni -mavx512vbmi -mprefer-vector-width=512
        -Wno-maybe-uninitialized)  # gcc 12 warns of its own intrinsics
    set(amx_kernels ${kernels})
    set(bf16_kernels ${kernels})
    list(FILTER amx_kernels INCLUDE REGEX "_amx_cpu\\.cpp$")
    list(FILTER bf16_kernels INCLUDE REGEX "_avx512_bf16_cpu\\.cpp$")
    set_property(SOURCE ${bf16_kernels} PROPERTY COMPILE_OPTIONS ${bf16_flags})
    set_property(SOURCE ${amx_kernels} PROPERTY COMPILE_OPTIONS ${bf16_flags} -mamx-tile -mamx-bf16 -mamx-int8)
  endif()
endfunction()
