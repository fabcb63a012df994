# tools/tatara-opt: text IR in, passes, text IR out.
file(GLOB tatara_opt_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/tatara-opt/*.cpp")
if(tatara_opt_sources)
  add_executable(tatara-opt ${tatara_opt_sources})
  target_link_libraries(tatara-opt PRIVATE tatara_core)
endif()
