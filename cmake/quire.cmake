# Helpers that every room's CMakeLists.txt uses.
add_library(quire_options INTERFACE)
target_compile_options(quire_options INTERFACE
                       # CUDA files have options of their own (cuda.cmake)
                       "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Werror;-fno-math-errno>"
                       # the bits contract: only explicit FMAs are FMAs
                       $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffp-contract=off>)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")  # MLX's headers make gcc tell of a change of the ABI in gcc 10
  target_compile_options(quire_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi>)
endif()
target_include_directories(quire_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
                           $<INSTALL_INTERFACE:include/quire>)
if(QUIRE_SANITIZE)
  target_compile_options(quire_options INTERFACE -fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer
                         -O1  # -O2 takes the compiler half as long again
                         $<$<CXX_COMPILER_ID:GNU>:-fno-var-tracking>)
  target_link_options(quire_options INTERFACE -fsanitize=${QUIRE_SANITIZE})
  if(QUIRE_SANITIZE MATCHES "undefined")
    target_compile_options(quire_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
  if(QUIRE_FUZZ)  # the fuzzers must see which branches of the rooms an input takes
    target_compile_options(quire_options INTERFACE -fsanitize=fuzzer-no-link
                           -Wno-deprecated-declarations)  # libstdc++ 12 uses what it deprecates
  endif()
  if(QUIRE_SANITIZE MATCHES "thread")
    target_compile_options(quire_options INTERFACE -Wno-tsan)
  endif()
endif()

# quire_room(NAME SOURCES... DEPENDS libs...): one static library per room.
function(quire_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(quire_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(quire_${name} PUBLIC quire_options ${ARG_DEPENDS})
endfunction()

# quire_test(NAME SOURCES... DEPENDS libs... [LABELS ...]): one gtest binary, one ctest entry a test case. The target
# quire_tests builds them all, without the command line program.
add_custom_target(quire_tests)
function(quire_test name)
  if(NOT QUIRE_TESTS OR QUIRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)  # an empty value would swallow the next property's name
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(quire_tests ${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  # What a test does itself is little; its expectations are much code.
  set(level -O1)
  if(QUIRE_SANITIZE)
    set(level -O0)
  endif()
  set_property(SOURCE ${ARG_SOURCES} APPEND PROPERTY COMPILE_OPTIONS ${level})
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT 1800 LABELS "${ARG_LABELS}"
                       ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp")
endfunction()

# quire_bench(NAME SOURCES... DEPENDS libs...): a google-benchmark binary; never a timed test.
function(quire_bench name)
  if(NOT QUIRE_TESTS OR QUIRE_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} benchmark::benchmark)
endfunction()
