# One static library per folder of src/. The list is the order of dependence: each library may use those before it.
set(TATARA_CORE_FOLDERS support symbolic ir loops ops transforms schedule codegen runtime compiler)
# Those whose code runs when a function is compiled; a call of it only evaluates sizes (symbolic).
set(TATARA_COMPILING_FOLDERS symbolic ir loops ops transforms schedule codegen compiler)

set(tatara_previous "")
foreach(folder IN LISTS TATARA_CORE_FOLDERS)
  set(target tatara_${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp")
  if(NOT sources)
    # A folder without sources (headers only) still takes its place in the order.
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tatara_flags ${tatara_previous})
  elseif(TATARA_PREBUILT_CORE)
    add_library(${target} STATIC IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${TATARA_PREBUILT_CORE}/lib${target}.a")
    target_link_libraries(${target} INTERFACE tatara_flags ${tatara_previous})
  else()
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC tatara_flags ${tatara_previous})
    set_target_properties(${target} PROPERTIES ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
    tatara_unity(${target})
    if(folder IN_LIST TATARA_COMPILING_FOLDERS)
      tatara_optimize_less(${target})
    endif()
    if(folder STREQUAL support)
      tatara_precompile(${target})
    else()
      tatara_reuse_precompiled(${target} tatara_support)
    endif()
  endif()
  set(tatara_previous ${target})
endforeach()

# Everything that needs neither Python nor a host.
add_library(tatara_core INTERFACE)
target_link_libraries(tatara_core INTERFACE tatara_compiler)

# Code in the disk cache is good only for the emitter that made it: its sources are a part of every key.
include("${CMAKE_CURRENT_LIST_DIR}/source_hash.cmake")
tatara_source_hash(emitter_hash "${PROJECT_SOURCE_DIR}/src" "codegen/*" "loops/*" "runtime/jit/llvm_provider.cpp")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/compiler/kernel_store.cpp" PROPERTIES COMPILE_DEFINITIONS
                            "TATARA_EMITTER_HASH=\"${emitter_hash}\"")

# The innermost loops of matrix products, compiled for instruction sets that not every machine has (chosen at run time).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(tatara_gemm_flags -O3 -ffp-contract=fast -mavx2 -mfma)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND tatara_gemm_flags -fschedule-insns2 -fgcse)
  endif()
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/runtime/host/gemm_avx2.cpp" PROPERTIES COMPILE_OPTIONS
                              "${tatara_gemm_flags}")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/runtime/host/gemm_avx512.cpp" PROPERTIES COMPILE_OPTIONS
                              "${tatara_gemm_flags};-mavx512f;-mavx512dq")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/runtime/host/gemm_avx2.cpp"
                              "${PROJECT_SOURCE_DIR}/src/runtime/host/gemm_avx512.cpp" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endif()
