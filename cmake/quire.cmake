# Helpers that every room's CMakeLists.txt uses.
add_library(quire_options INTERFACE)
set(quire_warnings -Wall -Wextra -Werror)
if(APPLE)  # nobody has tried which warnings its compilers have
  list(REMOVE_ITEM quire_warnings -Werror)
endif()
target_compile_options(quire_options INTERFACE
                       # CUDA files have options of their own (cuda.cmake)
                       "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${quire_warnings};-fno-math-errno>"
                       # the bits contract: only explicit FMAs are FMAs
                       $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffp-contract=off>)
if(QUIRE_METAL)
  target_compile_definitions(quire_options INTERFACE QUIRE_METAL)
endif()
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")  # MLX's headers make gcc tell of a change of the ABI in gcc 10
  target_compile_options(quire_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi>)
endif()
target_include_directories(quire_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
                           $<INSTALL_INTERFACE:include/quire>)
if(QUIRE_SANITIZE)
  target_compile_options(quire_options INTERFACE -fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer
                         # -O2 takes the compiler half as long again, and tests do little themselves
                         $<IF:$<BOOL:$<TARGET_PROPERTY:QUIRE_TEST>>,-O0,-O1>
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

# quire_precompile(TARGET HEADERS...): compiles headers that most files of a target include once for all of them; parsing
# them is most of what small files cost. Sanitizer builds do without, so a file that lacks an include fails there.
function(quire_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT QUIRE_SANITIZE)
    target_precompile_headers(${target} PRIVATE ${ARGN} <algorithm> <functional> <map> <memory> <optional> <string>
                              <string_view> <vector>)
    # the compiler cache asks for it
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

# quire_room(NAME SOURCES... DEPENDS libs... [HEADERS precompiled...]): one static library per room.
function(quire_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;HEADERS" ${ARGN})
  add_library(quire_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(quire_${name} PUBLIC quire_options ${ARG_DEPENDS})
  if(ARG_HEADERS)
    quire_precompile(quire_${name} ${ARG_HEADERS})
  endif()
endfunction()

# quire_list_test(NAME GTEST COMMAND...): an entry of tests.json, which tools/run_tests.py reads. GTEST: true if the command
# is a GoogleTest program, false if it is one test.
function(quire_list_test name gtest)
  list(TRANSFORM ARGN REPLACE "(.+)" "\"\\1\"")
  list(JOIN ARGN ", " command)
  set_property(GLOBAL APPEND_STRING PROPERTY QUIRE_TEST_LIST
               "{\"name\": \"${name}\", \"gtest\": ${gtest}, \"command\": [${command}]},\n")
endfunction()

# The environment of every test: where the sources are (base/source_dir.h), and which reports of TSan are false.
set(QUIRE_TEST_ENVIRONMENT "QUIRE_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp:halt_on_error=1")

# quire_check(NAME COMMAND...): a test that is a program of its own; status 77 means skipped.
function(quire_check name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT "${QUIRE_TEST_ENVIRONMENT}")
  quire_list_test(${name} false ${ARGN})
endfunction()

# Writes tests.json, when all tests are known.
function(quire_write_test_list)
  get_property(tests GLOBAL PROPERTY QUIRE_TEST_LIST)
  string(REGEX REPLACE ",\n$" "\n" tests "${tests}")
  list(TRANSFORM QUIRE_TEST_ENVIRONMENT REPLACE "([^=]+)=(.*)" "\"\\1\": \"\\2\"")
  list(JOIN QUIRE_TEST_ENVIRONMENT ", " environment)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tests.json @ONLY
       CONTENT "{\"environment\": {@environment@},\n\"tests\": [\n@tests@]}\n")
endfunction()

# quire_test(NAME SOURCES... DEPENDS libs... [HEADERS precompiled...] [LABELS ...]): one gtest binary; for ctest, each of its cases is a test. The
# target quire_tests builds them all, without the command line program.
add_custom_target(quire_tests)
function(quire_test name)
  if(NOT QUIRE_TESTS OR QUIRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;HEADERS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)  # an empty value would swallow the next property's name
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(quire_tests ${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  # What a test does itself is little; its expectations are much code.
  if(QUIRE_SANITIZE)
    set_target_properties(${name} PROPERTIES QUIRE_TEST ON)
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  list(LENGTH ARG_SOURCES count)
  if(count GREATER 2)
    quire_precompile(${name} <gmock/gmock.h> <gtest/gtest.h> ${ARG_HEADERS})
    # gcc 12 warns of its own std::string once that is precompiled.
    target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>")
  endif()
  # CMAKE_CROSSCOMPILING_EMULATOR is empty but where programs are built for another machine.
  quire_list_test(${name} true ${CMAKE_CROSSCOMPILING_EMULATOR} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                       PROPERTIES TIMEOUT 1800 LABELS "${ARG_LABELS}" ENVIRONMENT "${QUIRE_TEST_ENVIRONMENT}")
endfunction()
