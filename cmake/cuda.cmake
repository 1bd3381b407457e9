# The CUDA kernels of ops: compiled by the nvcc that `tools/setup.sh --cuda` unpacked under build/deps (cmake/cuda.lock), linked
# with the static run time. Without that folder they are left out (unless QUIRE_CUDA=ON). The programs need no CUDA library; they find a driver, or none, when they start.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/cuda.lock QUIRE_CUDA_PIN REGEX "^nvidia-cuda-nvcc ")
string(REPLACE " " ";" QUIRE_CUDA_PIN "${QUIRE_CUDA_PIN}")
list(GET QUIRE_CUDA_PIN 1 QUIRE_CUDA_VERSION)
set(QUIRE_CUDA_ROOT ${CMAKE_SOURCE_DIR}/build/deps/cuda-${QUIRE_CUDA_VERSION}
    CACHE PATH "Unpacked CUDA wheels: holds bin/nvcc, include/ and lib64/")

set(QUIRE_CUDA AUTO CACHE STRING "Compile the kernels for NVIDIA GPUs: ON, OFF, or AUTO: where the compiler was unpacked")
set_property(CACHE QUIRE_CUDA PROPERTY STRINGS AUTO ON OFF)
if(QUIRE_CUDA STREQUAL "AUTO")
  # Sanitizers see nothing of a GPU, nor does a tile unit in software; and the compiler is for x86-64 Linux.
  if(EXISTS ${QUIRE_CUDA_ROOT}/bin/nvcc AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT QUIRE_SANITIZE
     AND NOT QUIRE_EMULATE_AMX)
    set(QUIRE_CUDA ON)
  else()
    set(QUIRE_CUDA OFF)
  endif()
endif()
if(NOT QUIRE_CUDA)
  return()
endif()
if(NOT EXISTS ${QUIRE_CUDA_ROOT}/bin/nvcc)
  message(FATAL_ERROR "nvcc ${QUIRE_CUDA_VERSION} is not at ${QUIRE_CUDA_ROOT}: run `tools/setup.sh --cuda`, or configure "
                      "with -DQUIRE_CUDA=OFF.")
endif()

set(CMAKE_CUDA_COMPILER ${QUIRE_CUDA_ROOT}/bin/nvcc)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_ARCHITECTURES OFF)  # quire_cuda_flags names them for each file
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked by its path, so that an installed tree can carry it
set(CMAKE_CUDA_FLAGS_INIT "--generate-code=arch=compute_90a,code=sm_90a")  # for CMake's own trial
# Fails the build if a kernel marked hot spills registers.
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/nvcc_checked.py)
if(QUIRE_CCACHE)  # as in CMakeLists.txt
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CMAKE_CUDA_COMPILER_LAUNCHER} ${QUIRE_CCACHE})
endif()
enable_language(CUDA)
set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")  # not -isystem=, whose path the compiler cache would not make a relative one
set(CMAKE_CUDA_FLAGS "")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO -DNDEBUG)
# CMake 3.25 does not know that this nvcc has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

add_library(quire_cudart STATIC IMPORTED GLOBAL)
set_target_properties(quire_cudart PROPERTIES IMPORTED_LOCATION ${QUIRE_CUDA_ROOT}/lib64/libcudart_static.a)
target_link_libraries(quire_cudart INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)

# quire_cuda_flags(files...): sets the options of *.cu files, in the caller's folder.
#
# Machine code for Hopper. Files but *_sm90_cuda.cu use nothing of it and carry PTX too, which the driver of any GPU from
# Ampere on compiles. A fused multiply-add is one because we wrote it. -O1 is of the host's part, which launches: for the
# device nvcc optimises all it can in any case.
function(quire_cuda_flags)
  set(common -O1 -fmad=false -lineinfo -Xptxas=-v -Xcompiler=-Wall --Werror=all-warnings
      --expt-relaxed-constexpr --generate-code=arch=compute_90a,code=sm_90a)
  foreach(file ${ARGN})
    set(flags ${common})
    if(NOT file MATCHES "_sm90_cuda\\.cu$")
      list(APPEND flags --generate-code=arch=compute_80,code=compute_80)
    endif()
    set_property(SOURCE ${file} PROPERTY COMPILE_OPTIONS ${flags})
  endforeach()
endfunction()
