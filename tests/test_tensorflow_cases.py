"""TensorFlow's own test cases, with the answers that TensorFlow 2.21 gave on a CPU, through `gradops.raw_ops`."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gradops import raw_ops

CASES = json.loads((Path(__file__).parent / "data" / "tf_cases.json").read_text())
ERRORS = [case for case in CASES if case["expected_kind"] == "error"]
VALUES = [case for case in CASES if case["expected_kind"] != "error"]

# TensorFlow's words and ours differ; each error must still name what is wrong.
NAMES = {
    "c2-048": "filter",
    "cbi-099": "explicit_paddings",
    "c2-049": "input.*filter|filter.*input",
    "c2-050": "explicit_paddings",
    "c2-051": "explicit_paddings",
    "c2-052": "explicit_paddings",
    "cbi-100": "out_backprop",
    "fpg-026": "row_pooling_sequence",
    "fpg-027": "col_pooling_sequence",
    "fpg-028": "orig_input_tensor_shape",
    "fp-023": "pooling_ratio",
}


def tensor(given, dtype):
    """Build a tensor: a ramp 1..n, a ramp divided by n from 1 or from 0, one value everywhere, or given values."""
    shape = next(given[key] for key in ("ramp", "ramp_div", "ramp0_div", "full", "shape") if key in given)
    count = math.prod(shape)
    values = {
        "ramp": lambda: np.arange(1, count + 1),
        "ramp_div": lambda: np.arange(1, count + 1) / max(count, 1),
        "ramp0_div": lambda: np.arange(count) / max(count, 1),
        "full": lambda: np.full(count, given["value"]),
        "values": lambda: np.array(given["values"]),
    }[next(iter(given))]()
    array = values.astype(given.get("dtype", dtype)).reshape(shape)
    return array.transpose(given["transpose"]) if "transpose" in given else array


def run(case):
    arguments = {
        name: tensor(value, case["dtype"]) if isinstance(value, dict) else value for name, value in case["args"].items()
    }
    return getattr(raw_ops, case["op"])(**arguments)


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case['op']}-{case['id']}")
def test_values_are_those_of_tensorflow(case):
    result = run(case)
    output = result.output if case["op"] == "FractionalAvgPool" else result
    for axis in ("row", "col"):
        sequence = f"expected_{axis}_pooling_sequence"
        if sequence in case:
            assert getattr(result, f"{axis}_pooling_sequence").tolist() == case[sequence]
    expected = np.array(case["expected"], np.float64).reshape(case["expected_shape"])
    assert output.dtype == case["dtype"]
    assert output.shape == expected.shape
    tolerance = case["atol_rel_to_max"] * abs(expected).max(initial=0.0)
    np.testing.assert_allclose(output.astype(np.float64), expected, rtol=case["rtol"], atol=tolerance)


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{case['op']}-{case['id']}")
def test_what_tensorflow_refuses_is_refused(case):
    with pytest.raises((ValueError, TypeError), match=NAMES[case["id"]]):
        run(case)


def test_cases_cover_every_op_of_tensorflow():
    assert Counter(case["op"] for case in CASES) == {
        "Conv2D": 35,
        "Conv2DBackpropInput": 64,
        "Conv2DBackpropFilter": 61,
        "DepthwiseConv2dNative": 12,
        "DepthwiseConv2dNativeBackpropInput": 12,
        "DepthwiseConv2dNativeBackpropFilter": 12,
        "FractionalAvgPool": 16,
        "FractionalAvgPoolGrad": 19,
    }
    assert all(case["confirmed_by"] for case in VALUES)
    assert {case["id"] for case in ERRORS} == set(NAMES)
