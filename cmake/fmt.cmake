# torch brings headers of fmt, of another version than the library that fmt::fmt links. The library's own come first, so
# that there is one fmt, and it is compiled already.
find_package(fmt REQUIRED)
if(TW_TORCH)
  find_path(TW_FMT_HEADERS fmt/format.h REQUIRED)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/gen/fmt_alone)
  file(CREATE_LINK ${TW_FMT_HEADERS}/fmt ${PROJECT_BINARY_DIR}/gen/fmt_alone/fmt SYMBOLIC)
  include_directories(BEFORE SYSTEM ${PROJECT_BINARY_DIR}/gen/fmt_alone)
endif()
