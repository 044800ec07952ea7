# Release unless told otherwise; ccache and a fast linker where present.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Paths under the source tree are hashed as relative ones, so that every build folder and checkout shares the cache.
find_program(TW_CCACHE ccache)
if(TW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${TW_CCACHE})
endif()
find_program(TW_MOLD mold)
if(TW_MOLD AND NOT TW_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()
