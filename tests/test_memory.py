"""Scratch stays small: no op unrolls an image, whatever the filter."""

import math
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from problems import CONVOLUTIONS

from gradops.testing import OPS, Problem, accepting, forced

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


FAULTS = """
import resource, sys
import numpy as np
from gradops.testing import OPS, Problem
op, problem = OPS[sys.argv[1]], Problem.parse(sys.argv[2])
operands = [np.ones(shape, np.float32) for shape in op.shapes(problem)]
out = op(problem, *operands, num_threads=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    op(problem, *operands, out=out, num_threads=2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="the system's allocator is told by glibc's variables to keep nothing"
)
@pytest.mark.parametrize("op", [op for op in CONVOLUTIONS if op.kind == "dense"], ids=str)
def test_scratch_is_not_cleared_for_each_call(op):
    """Even where the allocator gives all memory back to the system, which clears it again: 1 MiB is 256 pages."""
    problem = Problem(h=28, w=28, c=128, k=128, r=3, s=3, padding="SAME")
    strict = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    command = [sys.executable, "-c", FAULTS, op.name, str(problem)]
    assert int(subprocess.run(command, check=True, capture_output=True, text=True, env=strict).stdout) < 40


BOUNDED = [
    Problem(n=2, h=56, w=56, c=64, k=64, r=3, s=3, padding="SAME"),
    Problem(n=2, h=56, w=56, c=64, k=256, r=1, s=1),
    Problem(n=2, h=28, w=28, c=256, k=256, r=3, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=2, h=224, w=224, c=3, k=64, r=7, s=7, strides=(2, 2), padding="SAME"),
    Problem(n=2, h=224, w=224, c=64, k=128, r=2, s=2, strides=(2, 2)),  # many pixels of few channels at a time
    Problem(n=2, h=14, w=14, c=512, k=2048, r=1, s=1),
    Problem(n=2, h=33, w=33, c=640, k=1024, r=1, s=1),
    Problem(n=1, h=40, w=300, c=3, k=5, r=31, s=45, dilations=(3, 3), padding="SAME"),
    Problem(n=2, h=56, w=56, c=32, m=8, r=3, s=3, padding="SAME"),
    Problem(n=1, h=112, w=112, c=96, m=1, r=5, s=5, padding="SAME"),
    Problem(n=2, h=112, w=112, c=256, k=256, r=3, s=3, groups=64, padding="SAME"),
    Problem(n=16, h=5, w=5, c=300, k=1000, r=5, s=5),
    Problem(n=2, h=224, w=224, c=3, k=768, r=16, s=16, strides=(16, 16)),
    Problem(n=1, h=40, w=4096, c=32, m=1, r=7, s=3, strides=(2, 2), padding="SAME"),
    Problem(n=1, h=40, w=4000, c=32, m=1, r=7, s=3, dilations=(1, 2048), padding="SAME"),
    Problem(n=1, h=160, w=2000, c=32, m=1, r=3, s=3, strides=(16, 16), padding="SAME"),
    Problem(n=1, h=400, w=410, c=5, k=40, r=5, s=5, dilations=(3, 1), padding="SAME"),
    Problem(n=1, h=1500, w=1100, c=2, m=1, r=3, s=3, padding="SAME"),  # planes larger than what a thread may take
]


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize(
    ("op", "problem"),
    [
        pytest.param(op, problem, id=f"{op}-{problem}")
        for op in CONVOLUTIONS
        for problem in BOUNDED
        if problem.depthwise == (op.kind == "depthwise")
    ],
)
def test_scratch_is_the_packed_filter_and_two_mebibytes_a_thread(op, problem, layout, threads):
    """tracemalloc sees what the kernels allocate. A filter's distance from panel to panel may be some percent more than its length."""
    problem = Problem.parse(str(problem).replace("nhwc", layout))
    operands = [np.ones(shape, np.float32) for shape in op.shapes(problem)]
    for algorithm in accepting(op, problem):
        with forced(algorithm=algorithm):
            out = op(problem, *operands, num_threads=threads)
            tracemalloc.start()
            op(problem, *operands, out=out, num_threads=threads)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert 1000 < peak < 1.2 * 4 * math.prod(problem.filter_shape) + (threads << 21), (algorithm, peak)
