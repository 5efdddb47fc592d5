"""The builds hold the instructions that their level promises, and no others."""

import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec

import pytest

from gradops._dispatch import PARTIAL
from gradops.testing import LEVELS, OPS

ALL_STEMS = {stem for op in OPS.values() if op.kind != "pool" for stem in op.stems}
STEMS = sorted(stem for stem in ALL_STEMS if not stem.endswith("_bf16"))
PAIRED = sorted(ALL_STEMS - set(STEMS))
REGISTERS = {"generic": "%xmm", "x86_64_v3": "%ymm", "x86_64_v4": "%zmm"}
FULL = [level for level in LEVELS if level not in PARTIAL]
FUSED = re.compile(r"\tvfn?m(?:add|sub)\d{3}(?P<kind>p[sd])\s.*?(?P<register>%[xyz]mm)\d+$", re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")


@cache
def disassembly(stem, level):
    spec = find_spec(f"gradops._kernels.{stem}_{level}")
    assert spec is not None, f"{stem} is not built for {level}"
    command = ["objdump", "--disassemble", "--no-show-raw-insn", spec.origin]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def built_for_x86():
    return find_spec("gradops._kernels.conv_gather_f32_x86_64_v3") is not None


needs_x86 = pytest.mark.skipif(not built_for_x86(), reason="the builds are not for x86-64")


@needs_x86
@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("level", FULL[1:])
def test_better_levels_multiply_and_add_whole_registers_at_once(stem, level):
    kind = "ps" if stem.endswith("f32") else "pd"
    found = [
        match["kind"] for match in FUSED.finditer(disassembly(stem, level)) if match["register"] == REGISTERS[level]
    ]
    assert found.count(kind) >= 12


@needs_x86
@pytest.mark.parametrize("stem", PAIRED)
@pytest.mark.parametrize(
    ("level", "product", "least"),
    [("x86_64_v4_bf16", r"vdpbf16ps\s.*%zmm\d+", 12), ("x86_64_v4_amx", r"tdpbf16ps\s.*%tmm\d", 4)],
)
def test_bfloat16_is_multiplied_in_pairs_by_whole_registers_or_tiles(stem, level, product, least):
    assert len(re.findall(rf"\t{product}$", disassembly(stem, level), re.MULTILINE)) >= least


@needs_x86
@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("level", FULL[:-1])
def test_no_level_uses_the_registers_of_a_better_one(stem, level):
    text = disassembly(stem, level)
    for better in FULL[FULL.index(level) + 1 :]:
        assert REGISTERS[better] not in text


@needs_x86
@pytest.mark.parametrize("stem", STEMS)
def test_generic_build_neither_fuses_nor_uses_avx(stem):
    text = disassembly(stem, "generic")
    assert not FUSED.search(text)
    assert re.search(r"\tmul(ps|pd)\s", text)
    assert not re.search(r"\tv(add|mul|mov|broadcast)", text)


def test_pattern_tells_packed_from_scalar_and_wide_from_narrow():
    line = "    1f20:\tvfmadd231ps {},%zmm1,%zmm2\n"
    assert FUSED.search(line.format("%zmm0"))["register"] == "%zmm"
    assert FUSED.search(line.format("0x40(%rax,%rcx,1){1to16}"))["kind"] == "ps"
    assert not FUSED.search("    1f20:\tvfmadd231ss %xmm0,%xmm1,%xmm2\n")
    assert FUSED.search("    1f20:\tvfnmadd132pd %ymm0,%ymm1,%ymm2\n")["register"] == "%ymm"
