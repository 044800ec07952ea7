# thinwire_warnings(target): our own sources compile without a warning; other people's headers are SYSTEM.
option(TW_WERROR "Treat warnings as errors" ${TW_DEVELOPER})
function(thinwire_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
                         -Wno-psabi $<$<BOOL:${TW_WERROR}>:-Werror>)
endfunction()
