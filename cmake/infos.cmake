# The three ways to add a target.

# infos_library(NAME SOURCES a.cc ... [DEPS ...] [PRIVATE_DEPS ...] [PCH_ASIO])
#   A static library. DEPS are those its headers need, PRIVATE_DEPS those only its .cc files need.
#   A link test makes sure that it needs nothing else.
function(infos_library name)
  cmake_parse_arguments(arg "PCH_ASIO" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  if(arg_PCH_ASIO)
    target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch_asio.h)
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/link/${name}.cc "int main() { return 0; }\n")
  add_executable(link_${name} ${CMAKE_BINARY_DIR}/link/${name}.cc)
  set_target_properties(link_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/link)
  target_link_libraries(link_${name} PRIVATE -Wl,--whole-archive $<TARGET_FILE:${name}> -Wl,--no-whole-archive
                        ${arg_DEPS} ${arg_PRIVATE_DEPS})
  add_dependencies(link_${name} ${name})
endfunction()

# infos_test(NAME SOURCES a_test.cc ... [DEPS ...] [LABELS ...] [TIMEOUT s])
#   One GoogleTest program, run as one ctest test. The label `threads` also puts it under the thread sanitizer.
add_custom_target(tsan_tests)
function(infos_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(INFOS_FUZZ)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} infos_test_support GTest::gtest GTest::gmock Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE INFOS_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(INFOS_SANITIZE MATCHES "undefined")  # not in test code: a quarter of its compilation
    target_compile_options(${name} PRIVATE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  infos_test_properties(${name} "${arg_TIMEOUT}" "${arg_LABELS}")
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${name})
  endif()
endfunction()

# What every ctest test gets, scripts too.
function(infos_test_properties name timeout labels)
  if(NOT timeout)
    set(timeout 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" SKIP_RETURN_CODE 77
    ENVIRONMENT "INFOS_BIN=${CMAKE_BINARY_DIR}/bin;INFOS_SOURCE_DIR=${CMAKE_SOURCE_DIR};UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=halt_on_error=1 suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endfunction()

# infos_fuzzer(NAME SOURCE a_fuzz.cc [DEPS ...]): with -DINFOS_FUZZ=ON a libFuzzer program; otherwise a program that runs the
#   kept corpus tests/fuzz/corpus/NAME once, as a test.
function(infos_fuzzer name)
  cmake_parse_arguments(arg "" "SOURCE" "DEPS" ${ARGN})
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
  if(INFOS_FUZZ)
    add_executable(${name} ${arg_SOURCE})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${arg_SOURCE} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus_main.cc)
    add_test(NAME ${name}_corpus COMMAND ${name} ${corpus})
    infos_test_properties(${name}_corpus 120 fuzz)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

# infos_subdirectories(a b c): add_subdirectory for each, in this order.
function(infos_subdirectories)
  foreach(dir IN LISTS ARGN)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
      add_subdirectory(${dir})
    endif()
  endforeach()
endfunction()
