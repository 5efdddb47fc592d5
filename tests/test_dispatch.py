"""Which build of a kernel runs: the best one, unless someone says otherwise."""

import os
import subprocess
import sys

import pytest

from gradops import _dispatch
from gradops._algorithms import ALGORITHMS
from gradops._dispatch import PARTIAL
from gradops.testing import LEVELS, OPS, forced, runnable

STEMS = sorted({stem for op in OPS.values() for stem in op.stems})


def in_a_fresh_process(code, level=None, **environment):
    environment |= {
        name: value for name, value in os.environ.items() if name != "GRADOPS_ISA" and name not in environment
    }
    if level is not None:
        environment["GRADOPS_ISA"] = level
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


DOTS = "x86_64_v4_bf16"
SELECTED = "from gradops import _dispatch; print(_dispatch.selected(), _dispatch.kernel('conv_gather_f32').__name__)"


def test_levels_are_ordered_and_generic_always_runs():
    assert LEVELS == ("generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_bf16", "x86_64_v4_amx")
    assert runnable("generic")
    full, known = ([level for level in levels if level != DOTS] for levels in (_dispatch.available(), LEVELS))
    assert full == [level for level in known if runnable(level)]


@pytest.mark.skipif(not runnable(DOTS), reason=f"this CPU lacks the level {DOTS}")
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/cpuinfo is Linux's")
def test_dot_products_are_preferred_to_float32_where_they_are_fast():
    with open("/proc/cpuinfo") as info:
        slow = {"GenuineIntel", "avx512_fp16"} <= set(info.read().split())
    levels = list(_dispatch.available())
    assert levels.index(DOTS) - levels.index("x86_64_v4") == (-1 if slow else 1)


def test_bfloat16_is_widened_for_want_of_better_at_the_best_level_only():
    best = _dispatch.available()[-1]
    for level in _dispatch.available():
        with forced(level):
            assert _dispatch.widens() == (level == best and level not in PARTIAL)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/cpuinfo is Linux's")
@pytest.mark.parametrize(
    ("level", "flags"),
    [
        ("x86_64_v3", {"avx2", "fma", "f16c"}),
        ("x86_64_v4", {"avx512f", "avx512vl"}),
        ("x86_64_v4_bf16", {"avx512f", "avx512vl", "avx512_bf16"}),
        ("x86_64_v4_amx", {"avx512f", "avx512vl", "avx512_bf16", "amx_bf16"}),
    ],
)
def test_levels_are_available_where_the_cpu_has_their_instructions(level, flags):
    with open("/proc/cpuinfo") as info:
        lines = [line for line in info if line.startswith("flags")]
    assert runnable(level) == bool(lines and flags <= set(lines[0].split()))


def test_best_level_is_selected_by_default():
    best = _dispatch.available()[-1]
    assert in_a_fresh_process(SELECTED).stdout.split() == [
        best,
        f"gradops._kernels.conv_gather_f32_{PARTIAL.get(best, best)}",
    ]


def test_environment_selects_a_level(level):
    built = f"gradops._kernels.conv_gather_f32_{PARTIAL.get(level, level)}"
    assert in_a_fresh_process(SELECTED, level).stdout.split() == [level, built]


def test_unknown_level_in_the_environment_is_an_error_that_lists_the_known_ones():
    failed = in_a_fresh_process(SELECTED, "avx2")
    assert failed.returncode != 0
    assert (
        "GRADOPS_ISA must be one of generic, x86_64_v3, x86_64_v4, x86_64_v4_bf16, x86_64_v4_amx, got 'avx2'"
        in failed.stderr
    )


WINOGRADS_SHAPE = """
import numpy as np, gradops
gradops.conv2d(np.ones((1, 6, 6, 32), np.float32), np.ones((3, 3, 32, 32), np.float32), 1, "SAME")
"""


@pytest.mark.parametrize(
    ("named", "ran"), [("", "winograd"), ("conv", "conv"), ("winograd", "winograd"), ("depthwise", "winograd")]
)
def test_environment_selects_an_algorithm_where_it_accepts(named, ran):
    done = in_a_fresh_process(WINOGRADS_SHAPE, GRADOPS_ALGORITHM=named, GRADOPS_VERBOSE="1")
    assert f" {ran}_gather_f32_" in done.stderr


def test_unknown_algorithm_in_the_environment_is_an_error_that_lists_the_known_ones():
    failed = in_a_fresh_process(WINOGRADS_SHAPE, GRADOPS_ALGORITHM="fft")
    assert failed.returncode != 0
    assert f"GRADOPS_ALGORITHM must be one of {', '.join(ALGORITHMS)}, got 'fft'" in failed.stderr


@pytest.mark.parametrize("stem", STEMS)
def test_every_kernel_is_built_for_every_level(stem, level):
    if stem.endswith("_bf16") and level not in PARTIAL:
        stem = stem.replace("_bf16", "_f32")
    elif not stem.endswith("_bf16"):
        level = PARTIAL.get(level, level)
    assert _dispatch.kernel(stem).__name__ == f"gradops._kernels.{stem}_{level}"


def test_forced_level_ends_with_its_block():
    before = _dispatch.selected()
    with forced("generic"):
        assert _dispatch.selected() == "generic"
        with forced(before):
            assert _dispatch.selected() == before
        assert _dispatch.selected() == "generic"
    assert _dispatch.selected() == before


def test_forcing_an_unknown_level_is_an_error():
    with (
        pytest.raises(ValueError, match="must be one of generic, x86_64_v3, x86_64_v4, x86_64_v4_bf16, x86_64_v4_amx"),
        forced("sse9"),
    ):
        pytest.fail("entered")
    assert _dispatch.selected() in LEVELS
