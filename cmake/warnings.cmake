# thinwire_warnings(target): our own sources compile without a warning; other people's headers are SYSTEM.
# They are errors under the compiler that the project is checked with; a newer one may know more of them. The same in
# every preset, so that 'make test' need not compile again what 'make demo' did.
set(checked OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12[.]")
  set(checked ON)
endif()
option(TW_WERROR "Treat warnings as errors" ${checked})
function(thinwire_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
                         -Wno-psabi $<$<BOOL:${TW_WERROR}>:-Werror>)
endfunction()
