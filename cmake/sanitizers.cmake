if(TW_SANITIZE)
  add_compile_options(-fsanitize=${TW_SANITIZE} -fno-omit-frame-pointer -g -O1)
  add_link_options(-fsanitize=${TW_SANITIZE})
endif()
