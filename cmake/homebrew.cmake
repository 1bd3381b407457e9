# Where Homebrew has the libraries that tools/setup.sh asked it for; some of them it does not link into its own folder.
find_program(QUIRE_BREW brew HINTS /opt/homebrew/bin REQUIRED)
execute_process(COMMAND ${QUIRE_BREW} --prefix OUTPUT_VARIABLE brew_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(APPEND CMAKE_PREFIX_PATH ${brew_prefix} ${brew_prefix}/opt/openssl@3)
