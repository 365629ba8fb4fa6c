# Build-wide switches: sanitizers, warnings, ccache, linker.
set(INFOS_SANITIZE "" CACHE STRING "Comma-separated sanitizers for every target: address,undefined or thread")
option(INFOS_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

find_program(INFOS_CCACHE ccache)
if(INFOS_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${INFOS_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${INFOS_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -fno-omit-frame-pointer)
# Results must not depend on which contraction a compiler likes: kernels spell their FMAs out.
add_compile_options(-ffp-contract=off)
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")

if(INFOS_SANITIZE)
  add_compile_options(-fsanitize=${INFOS_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${INFOS_SANITIZE})
  if(INFOS_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # GCC 12 warns of std::optional wrongly when it instruments
  endif()
endif()
if(INFOS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

find_program(INFOS_LLD ld.lld)
if(INFOS_LLD)
  add_link_options(-fuse-ld=lld)
endif()
