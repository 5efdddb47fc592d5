"""The kernels that measure the machine: nothing but arithmetic in the loop, the work that they say, the rates that follow."""

import platform
import re
import shutil
import subprocess
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

from gradops import _dispatch
from gradops._bench.roof import Roof, measure, real_of, run
from gradops.testing import LEVELS

ACCUMULATORS = {
    "generic": 28 if platform.machine() == "aarch64" else 12,
    "x86_64_v3": 12,
    "x86_64_v4": 28,
    "x86_64_v4_bf16": 28,
    "x86_64_v4_amx": 4 * 16 * 16,  # four tiles of sums, of 16 vectors each, for 16 steps
}
VECTOR_BYTES = {"generic": 16, "x86_64_v3": 32, "x86_64_v4": 64, "x86_64_v4_bf16": 64, "x86_64_v4_amx": 64}
TILES = ["x86_64_v4_amx"]
REALS = {"f32": np.float32, "f64": np.float64, "bf16": np.float32}
ARITHMETIC = re.compile(r"(vfmadd\d{3}p|vdpbf16p|mulp|addp)[sd]")


def built(real, level):
    """The level whose build of a precision runs."""
    return level if real == "bf16" else _dispatch.PARTIAL.get(level, level)


def loops(text):
    """Yield the instructions of each innermost loop: from the target of a jump back to the jump, none between."""
    listed = re.findall(r"^ +([0-9a-f]+):\t(\S+) *(.*)$", text, re.MULTILINE)
    where = {address: at for at, (address, _, _) in enumerate(listed)}
    for at, (_, name, arguments) in enumerate(listed):
        start = where.get(arguments.split(" ")[0], at)
        body = listed[start:at]
        if name.startswith("j") and start < at and not any(inner[1].startswith("j") for inner in body):
            yield [(name, arguments) for _, name, arguments in body]


def disassembly(real, level):
    path = find_spec(f"gradops._kernels.{_dispatch.build(f'roof_{real}', level)}").origin
    command = ["objdump", "--disassemble", "--no-show-raw-insn", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(find_spec("gradops._kernels.roof_f32_x86_64_v3") is None, reason="the builds are not for x86-64")
@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("level", [level for level in LEVELS if level not in TILES])
def test_arithmetic_stays_in_registers(level, real):
    text = disassembly(real, level)
    bodies = [body for body in loops(text) if sum(bool(ARITHMETIC.match(name)) for name, _ in body) > 8]
    assert len(bodies) == 1
    arithmetic = [(name, arguments) for name, arguments in bodies[0] if ARITHMETIC.match(name)]
    assert len(arithmetic) == ACCUMULATORS[built(real, level)] * (2 if level == "generic" else 1)
    assert not [line for line in bodies[0] if "(" in line[1]], "the loop touches memory"
    others = [name for name, _ in bodies[0] if not ARITHMETIC.match(name)]
    assert set(others) <= {"add", "sub", "cmp", "inc", "dec"}, "registers are moved"


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(find_spec("gradops._kernels.roof_f32_x86_64_v3") is None, reason="the builds are not for x86-64")
@pytest.mark.parametrize("level", TILES)
def test_each_product_of_tiles_has_a_load(level):
    (body,) = (body for body in loops(disassembly("bf16", level)) if any(name == "tdpbf16ps" for name, _ in body))
    names = [name for name, _ in body]
    assert names.count("tdpbf16ps") == names.count("tileloadd") == 4
    assert {name for name, arguments in body if "(" in arguments} == {"tileloadd"}


def test_loops_are_found_and_memory_in_them_is_seen():
    text = "\n".join(
        [
            "    10:\taddps  %xmm0,%xmm1",
            "    14:\tmovaps %xmm1,0x8(%rsp)",
            "    18:\tcmp    %rax,%rsi",
            "    1c:\tjne    10 <f+0x10>",
        ]
    )
    assert [name for name, _ in next(loops(text))] == ["addps", "movaps", "cmp"]
    assert list(loops(text.replace("jne    10", "jne    40"))) == []


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernel_does_the_work_that_it_reports(level, real, threads):
    work = partial(run, _dispatch.kernel(f"roof_{real}"))
    src = np.full(4 * 8192, 0.5, REALS[real])
    dst = np.zeros_like(src)
    lanes = VECTOR_BYTES[level] // src.itemsize
    pair = 2 if real == "bf16" and level in _dispatch.PARTIAL else 1
    assert work(0, 10, src, dst, threads) == 2 * 10 * ACCUMULATORS[built(real, level)] * lanes * pair * threads
    assert dst[0] == dst[64 * (threads - 1)] != 0
    src[:] = np.repeat([1, 2, 3, 4], 8192)
    assert work(1, 1, src, dst, threads) == src.nbytes
    assert list(dst[:4]) == [8192 // lanes * value for value in (1, 2, 3, 4)]
    assert work(2, 1, src, dst, threads) == 2 * src.nbytes
    assert np.array_equal(src, dst)


def test_rates_are_work_over_the_clock():
    now = iter(range(10**6))
    roof = measure("float32", 1, clock=lambda: next(now))
    assert roof.read == pytest.approx(roof.copy / 2)
    assert roof.bandwidth == roof.copy
    assert 0 < roof.gflops < 1e-2


def test_the_better_of_two_roofs_has_the_higher_of_each_rate():
    both = Roof(gflops=100.0, read=20.0, copy=10.0).better(Roof(gflops=90.0, read=25.0, copy=30.0))
    assert both == Roof(gflops=100.0, read=25.0, copy=30.0)
    assert str(both) == "100 GFLOP/s, 30.0 GB/s"


def test_roof_is_the_higher_of_two_times():
    roof = Roof(gflops=100.0, read=20.0, copy=10.0)
    assert roof.milliseconds(flops=1e9, nbytes=1e6) == pytest.approx(10.0)
    assert roof.milliseconds(flops=1e6, nbytes=1e9) == pytest.approx(50.0)
    assert roof.share(1e9, 1e6, milliseconds=40.0) == pytest.approx(0.25)


def test_types_are_held_to_the_peak_of_what_computes_them(level):
    assert {real_of(dtype) for dtype in ("float16", "float32", "int32")} == {"f32"}
    assert real_of("bfloat16") == "bf16"
    multiplied = "bf16" if level in _dispatch.PARTIAL else "f32"
    assert _dispatch.kernel("roof_bf16").__name__.split(".")[-1] == f"roof_{multiplied}_{level}"
    assert {real_of(dtype) for dtype in ("float64", "int64")} == {"f64"}
