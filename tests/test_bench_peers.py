"""The other libraries, where they are installed: each computes what gradops computes, or says why not."""

import os
from importlib.util import find_spec

import pytest

from gradops._bench import peers, runner
from gradops._bench.problems import parse
from gradops._bench.roof import Roof
from gradops._bench.runner import Case

ROOF = Roof(gflops=100.0, read=20.0, copy=10.0)
LAYERS = {
    "dense": "mb2ic6ih9oc8kh3ph1",
    "strided": "mb1ic6ih9oc8oh5kh3sh2ph1",
    "same": "mb1ic6ih8oc8oh4kh3sh2",
    "dilated": "mb1ic6ih9oc8kh3ph2dh1",
    "grouped": "g2mb1ic6ih9oc8kh3ph1",
    "depthwise": "g6mb2ic6ih9oc12kh5ph2",
    "pool": "mb2ic6ih9rh1.5",
}
REASONS = {
    "torch": {"same": "has no padding that differs between the sides", "pool": "has no fractional average pooling"},
    "tf": {
        "NCHW": "takes NHWC only on the CPU",
        "grouped_backprop": "has no gradients of grouped convolutions on the CPU",
        "dilated_backprop": "has no gradients of dilated convolutions on the CPU",
        "float16_pool": "pools no float16",
        "bfloat16_pool": "pools no bfloat16",
    },
    "jax": {"pool": "has no fractional average pooling"},
}
REASONS["onednn"] = REASONS["torch"] | dict.fromkeys(
    ("float64", "bfloat16", "float16"), "convolves float32 alone in its blocked format"
)


@pytest.fixture(scope="module")
def restored():
    before = os.sched_getaffinity(0), os.environ.get("OMP_NUM_THREADS")
    yield
    os.sched_setaffinity(0, before[0])
    if before[1] is None:
        os.environ.pop("OMP_NUM_THREADS", None)
    else:
        os.environ["OMP_NUM_THREADS"] = before[1]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_agree_or_say_why_not(restored, name, dtype):
    module = peers.PEERS[name][0]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    try:
        loaded = peers.load([name], len(os.sched_getaffinity(0)))
    except RuntimeError as error:
        pytest.skip(f"{module} already runs in this process, with other threads (test this file by itself): {error}")
    cases = [
        (label, Case(layer=layer, op=op, dtype=dtype, layout=layout))
        for label, layer in ((label, parse(text)) for label, text in LAYERS.items())
        for op in layer.ops
        for layout in ("NHWC", "NCHW")
    ]
    rows = list(runner.run([case for _, case in cases], loaded, lambda dtype: ROOF, 0.0, sleep=lambda seconds: None))
    for (label, case), row in zip(cases, rows, strict=True):
        for peer in loaded:
            assert (peer.name in row.times) != (peer.name in row.notes)
            traits = {
                label,
                dtype,
                case.layout,
                f"{label}_backprop" if "backprop" in case.op else "",
                f"{dtype}_{label}",
            }
            reasons = [reason for trait, reason in REASONS[name].items() if trait in traits]
            assert row.notes.get(peer.name, "") == (reasons[0] if reasons else ""), f"{peer.name} {case}"


def test_padding_of_an_even_output_is_not_symmetric():
    assert peers._symmetric(parse("mb1ic3ih8oc4oh4kh3sh2").problem()) == [(0, 1), (0, 1)]
    assert peers._symmetric(parse("mb1ic3ih9oc4oh5kh3sh2ph1").problem()) == [(1, 1), (1, 1)]
    assert peers._symmetric(parse("mb1ic3ih8oc4oh4kh3sh2ph1").problem()) == [(1, 1), (1, 1)]
