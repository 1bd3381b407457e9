# How the kernel files are compiled, in the room of the ops and in the Python package alike.

# Kernels keep arrays of vectors in registers: their loops must be unrolled whole, which -O2 does not do. With a
# sanitizer that would take a compiler ten minutes a file. AddressSanitizer gives each access a branch, and in the files of
# the most template instances that keeps g++'s register allocator busy for more than 500 and 390 s at -O1, too. At -O0 they take
# 59 and 24 s and check more accesses, not fewer; their tests take longer.
set(QUIRE_KERNEL_LEVEL -O3)
if(QUIRE_SANITIZE)
  set(QUIRE_KERNEL_LEVEL -O1)
endif()
set(QUIRE_UNOPTIMISED_WITH_ASAN "/linear/dense/linear_(cpu|avx512_bf16_cpu)\\.cpp$")

# quire_kernel_flags(files...): sets the options of the *_cpu.cpp among them, in the caller's folder.
#
# Kernels of one instruction set (use_amx, use_avx512_bf16, use_avx512_vnni, use_avx2_vnni, use_neon_bf16,
# use_neon_dotprod in cpu_isa.h) are *_amx_cpu.cpp, *_avx512_bf16_cpu.cpp, *_avx512_vnni_cpu.cpp, *_avx2_vnni_cpu.cpp,
# *_neon_bf16_cpu.cpp and *_neon_dotprod_cpu.cpp. They hold plain functions on pointers only: a template or inline
# function shared with other files could be linked in from here and run on a CPU without these instructions.
function(quire_kernel_flags)
  macro(quire_flags_of suffix)
    set(some ${kernels})
    list(FILTER some INCLUDE REGEX "${suffix}\\.cpp$")
    set_property(SOURCE ${some} PROPERTY COMPILE_OPTIONS ${ARGN})
  endmacro()
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "_cpu\\.cpp$")
  set_property(SOURCE ${kernels} PROPERTY COMPILE_OPTIONS ${QUIRE_KERNEL_LEVEL})
  set_property(SOURCE ${kernels} PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # which were compiled without these options
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx2_flags ${QUIRE_KERNEL_LEVEL} -mavx2 -mfma -mf16c -mbmi -mbmi2 -maes -mpclmul)
    set(vnni_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mavx512vnni
        -mprefer-vector-width=512 -Wno-maybe-uninitialized)  # gcc 12 warns of its own intrinsics
    set(bf16_flags ${vnni_flags} -mavx512bf16 -mavx512vbmi)
    quire_flags_of("_avx2_vnni_cpu" ${avx2_flags} -mavxvnni)
    quire_flags_of("_avx512_vnni_cpu" ${vnni_flags})
    quire_flags_of("_avx512_bf16_cpu" ${bf16_flags})
    quire_flags_of("_amx_cpu" ${bf16_flags} -mamx-tile -mamx-bf16 -mamx-int8)
    if(QUIRE_EMULATE_AMX)  # in front of the intrinsics, whose names it takes
      set(amx ${kernels})
      list(FILTER amx INCLUDE REGEX "_amx_cpu\\.cpp$")
      set_property(SOURCE ${amx} APPEND PROPERTY COMPILE_OPTIONS
                   -include ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src/ops/cpu/amx_emulation-inl.h)
    endif()
  elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    quire_flags_of("_neon_dotprod_cpu" ${QUIRE_KERNEL_LEVEL} -march=armv8.2-a+dotprod)
    quire_flags_of("_neon_bf16_cpu" ${QUIRE_KERNEL_LEVEL} -march=armv8.2-a+bf16)
  endif()
  if(QUIRE_SANITIZE MATCHES "address")
    set(large ${kernels})
    list(FILTER large INCLUDE REGEX "${QUIRE_UNOPTIMISED_WITH_ASAN}")
    set_property(SOURCE ${large} APPEND PROPERTY COMPILE_OPTIONS -O0)
  endif()
endfunction()
