# cmake -DFOLDER=.. -DOUTPUT=.. -P embed_page.cmake: puts the page's files together as one C++ string. The modules share one script, so
# their imports and exports go, and each name may be declared in one of them only.
set(script "")
foreach(module dom markdown store api messages main)
  file(READ "${FOLDER}/${module}.js" text)
  string(REGEX REPLACE "(^|\n)import [^\n]*" "\\1" text "${text}")
  string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
  string(APPEND script "${text}")
endforeach()
file(READ "${FOLDER}/page.html" page)
file(READ "${FOLDER}/style.css" style)
string(REPLACE "{{STYLE}}" "${style}" page "${page}")
string(REPLACE "{{SCRIPT}}" "${script}" page "${page}")
# A string literal may hold 64 KiB for some compilers: so it is several.
set(literals "")
string(LENGTH "${page}" length)
set(at 0)
while(at LESS length)
  string(SUBSTRING "${page}" ${at} 8000 piece)
  string(APPEND literals "R\"=page=(${piece})=page=\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE "${OUTPUT}"
     "#include \"server/page.h\"\nnamespace quire::server {\nextern const std::string_view kPage = ${literals};\n}\n")
