"""Scratch stays small: no op unrolls an image, whatever the filter."""

import subprocess
import sys

import pytest
from problems import CONVOLUTIONS

from gradops.testing import OPS, Problem

LIMIT = 8 << 20

# Unrolled, these images take 25 or 49 times their size: hundreds of MiB.
PROBLEMS = {
    "dense": Problem(h=512, w=520, c=16, k=16, r=5, s=5, padding="SAME"),
    "depthwise": Problem(h=512, w=520, c=16, m=1, r=7, s=7, dilations=(1, 3), padding="SAME"),
}

CHILD = """
import re, sys
from pathlib import Path
import numpy as np
from gradops.testing import OPS, Problem
def most():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
op, problem = OPS[sys.argv[1]], Problem.parse(sys.argv[2])
small = Problem(h=2, w=2, r=1, s=1, **({"m": 1} if problem.depthwise else {"k": 1}))
op(small, *(np.ones(shape, np.float32) for shape in op.shapes(small)), num_threads=2)
operands = [np.ones(shape, np.float32) for shape in op.shapes(problem)]
shapes = {"": problem.output_shape, "input_sizes": problem.input_shape, "filter_sizes": problem.filter_shape}
out = np.ones(shapes[op.sizes], np.float32)
before = most()
held = np.ones(int(sys.argv[3]), np.uint8)
op(problem, *operands, out=out, num_threads=2)
print(most() - before)
"""


def growth(op, problem, held=0):
    """Return by how many bytes a child's memory grew at most while it ran an op and held some bytes more."""
    command = [sys.executable, "-c", CHILD, op.name, str(problem), str(held)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
@pytest.mark.parametrize("op", CONVOLUTIONS, ids=str)
def test_scratch_is_a_fraction_of_the_unrolled_image(op):
    problem = PROBLEMS[op.kind]
    for layout in ("nhwc", "nchw"):
        assert growth(op, Problem.parse(str(problem).replace("nhwc", layout))) < LIMIT


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
def test_growth_sees_memory_that_is_held():
    assert growth(OPS["conv2d"], PROBLEMS["dense"], held=200 << 20) > 190 << 20
