# cmake -DFROM=a.c -DTO=b.c -P RenameModule.cmake: a copy of module a's C code that is module b, in its own eyes and the interpreter's.
cmake_path(GET FROM STEM stem)
cmake_path(GET TO STEM module)
file(READ "${FROM}" code)
string(REPLACE "${stem}\"" "${module}\"" code "${code}")
string(REPLACE "PyInit_${stem}(" "PyInit_${module}(" code "${code}")
file(WRITE "${TO}" "${code}")
