"""The pooling sequences of fractional_avg_pool: TensorFlow's, bit for bit, and what each combination of seeds promises."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradops
from gradops._pooling import Attributes, _cells_of, sequence
from gradops.testing import pooling_sequence

CASES = [
    case
    for case in json.loads((Path(__file__).parent / "data" / "tf_cases.json").read_text())
    if case["op"] == "FractionalAvgPool" and "expected_row_pooling_sequence" in case
]
RATIO = (1, 1.73, 2.3, 1)
IMAGE = np.zeros((1, 97, 89, 1), np.float32)


def sequences(ratio=RATIO, image=IMAGE, **attributes):
    pooled = gradops.fractional_avg_pool(image, ratio, **attributes)
    return pooled.row_pooling_sequence.tolist(), pooled.col_pooling_sequence.tolist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_sequences_are_those_of_tensorflow(case):
    arguments = dict(case["args"])
    value = arguments.pop("value")
    shape = next(value[key] for key in ("ramp", "full", "shape") if key in value)
    got = sequences(arguments.pop("pooling_ratio"), np.zeros(shape, np.float32), **arguments)
    assert got == (case["expected_row_pooling_sequence"], case["expected_col_pooling_sequence"])


def test_tensorflow_agrees_on_random_configurations(level):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: its sequences cannot be drawn")
    rng = random.Random(0)
    for _ in range(150):
        h, w = rng.randint(1, 60), rng.randint(1, 60)
        ratio = [1.0, rng.uniform(1, min(h, 6)), rng.choice([rng.uniform(1, w), float(rng.randint(1, w))]), 1.0]
        seed, seed2 = rng.choice([0, rng.getrandbits(31), -rng.getrandbits(63)]), rng.choice([7, rng.getrandbits(62)])
        given = {"pseudo_random": rng.random() < 0.5, "overlapping": rng.random() < 0.5, "deterministic": True}
        given |= {"seed": seed, "seed2": seed2}
        dtype = rng.choice(["float32", "float64", "int32", "int64"])
        x = (np.random.default_rng(0).standard_normal((2, h, w, 3)) * 1000).astype(dtype)
        theirs = tf.raw_ops.FractionalAvgPool(value=x, pooling_ratio=ratio, **given)
        ours = gradops.fractional_avg_pool(x, ratio, **given)
        np.testing.assert_array_equal(ours.row_pooling_sequence, theirs.row_pooling_sequence)
        np.testing.assert_array_equal(ours.col_pooling_sequence, theirs.col_pooling_sequence)
        np.testing.assert_allclose(ours.output, theirs.output, rtol=1e-4 if dtype == "float32" else 1e-11, atol=1e-3)
        shared = {"row_pooling_sequence": ours.row_pooling_sequence, "col_pooling_sequence": ours.col_pooling_sequence}
        shared |= {"out_backprop": ours.output, "orig_input_tensor_shape": x.shape, "overlapping": given["overlapping"]}
        np.testing.assert_array_equal(
            gradops.fractional_avg_pool_grad(**shared), tf.raw_ops.FractionalAvgPoolGrad(**shared)
        )


@given(
    size=st.integers(1, 400),
    shrink=st.floats(1, 8),
    pseudo_random=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
    seed2=st.integers(-(2**63), 2**63 - 1),
    block=st.sampled_from([0, 1, 25, 2**32 - 1]),
)
def test_sequences_are_those_of_the_description(size, shrink, pseudo_random, seed, seed2, block):
    ratio = min(shrink, size)
    described, used = pooling_sequence(size, ratio, pseudo_random, seed, seed2, block)
    assert sequence(size, len(described) - 1, pseudo_random, seed, seed2, block) == (described, used)


@given(size=st.integers(1, 2000), shrink=st.floats(1, 40), pseudo_random=st.booleans(), seed=st.integers(1, 2**62))
def test_cells_differ_by_one_pixel_at_most(size, shrink, pseudo_random, seed):
    ratio = min(shrink, size)
    given = {"pseudo_random": pseudo_random, "deterministic": True, "seed": seed}
    rows, _ = sequences((1, ratio, 1, 1), np.zeros((1, size, 1, 1), np.int32), **given)
    assert len(rows) == int(np.float32(size) / np.float32(ratio)) + 1
    assert (rows[0], rows[-1]) == (0, size)
    assert set(np.diff(rows)) <= {size // (len(rows) - 1), size // (len(rows) - 1) + 1}


def test_output_size_is_divided_in_float32():
    assert len(sequences((1, 1.1, 1, 1), np.zeros((1, 33, 1, 1), np.float32))[0]) == 31


def test_axes_beyond_the_precision_of_float32_do_not_get_more_cells_than_pixels():
    given = Attributes((1.0, 1.0, 1.0, 1.0), False, False, False, 0, 0, "NHWC")
    assert _cells_of("rows", (1, 2**24 + 3, 1, 1), given, 1) == 2**24 + 3


def test_layouts_draw_the_same_sequences():
    seeds = {"deterministic": True, "seed": 3}
    nchw = sequences((1, 1, *RATIO[1:3]), IMAGE.transpose(0, 3, 1, 2), data_format="NCHW", **seeds)
    assert nchw == sequences(**seeds)


# deterministic, seed and seed2


def test_calls_without_seeds_differ():
    assert len({str(sequences()) for _ in range(8)}) == 8
    assert len({str(sequences(pseudo_random=True)) for _ in range(8)}) > 1


@pytest.mark.parametrize("seeds", [(0, 0), (1, 0), (0, 1), (-5, 2**63 - 1)])
def test_deterministic_calls_agree(seeds):
    given = {"deterministic": True, "seed": seeds[0], "seed2": seeds[1]}
    assert len({str(sequences(**given)) for _ in range(4)}) == 1


def test_seeds_make_a_difference():
    pairs = [(0, 1), (1, 0), (1, 1), (2, 1), (1 + 2**32, 1), (1, 1 + 2**32), (-1, 1)]
    assert len({str(sequences(deterministic=True, seed=seed, seed2=seed2)) for seed, seed2 in pairs}) == len(pairs)


def test_zero_seeds_are_chosen_once_per_process_and_attributes():
    wide = np.zeros((1, 97, 89, 2), np.float32)
    assert sequences(deterministic=True) == sequences(image=wide, deterministic=True)
    assert sequences(deterministic=True) != sequences(deterministic=True, overlapping=True)


def test_processes_choose_different_seeds():
    program = (
        "import gradops, numpy as np;"
        "x = np.zeros((1, 97, 1, 1));"
        "print(gradops.fractional_avg_pool(x, (1, 1.73, 1, 1), deterministic=True, seed={}).row_pooling_sequence)"
    )
    for seed, different in (0, 2), (5, 1):
        command = [sys.executable, "-c", program.format(seed)]
        outputs = {subprocess.run(command, env=os.environ, capture_output=True, check=True).stdout for _ in range(2)}
        assert len(outputs) == different


@pytest.mark.parametrize("seeds", [(1, 0), (0, 1), (-1, 1)])
def test_seeds_need_deterministic(seeds):
    with pytest.raises(
        ValueError, match=r"seed and seed2 must be 0 unless deterministic is True, got seed -?\d and seed2 \d"
    ):
        sequences(seed=seeds[0], seed2=seeds[1])
