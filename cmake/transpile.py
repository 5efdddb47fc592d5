"""Transpile Cython sources: `transpile.py FOLDER INTO STEM...` writes INTO/STEM.c of each FOLDER/STEM.pyx that is newer, or includes what is.

Cython takes as long to begin as it then takes for a file. Here it begins once, and as many processes as there are CPUs go on from there.
"""

import os
import sys

import setuptools  # noqa: F401 (Cython asks for distutils, which newer Pythons have from here)
from Cython.Build import cythonize

if __name__ == "__main__":
    folder, into, *stems = sys.argv[1:]
    os.chdir(folder)
    cythonize(
        [f"{stem}.pyx" for stem in stems], build_dir=into, include_path=["."], nthreads=os.cpu_count(), quiet=True
    )
