"""What is timed, in which order, and what is made of the numbers: with a clock and peers that only pretend."""

import json
import math

import numpy as np
import pytest

from gradops._bench import report, runner, summary
from gradops._bench.problems import parse
from gradops._bench.roof import Roof
from gradops._bench.runner import Case, Contender, Row, Timing, error_of, expected, take_turns
from gradops.testing import OPS, dtype_named, random_normal

ROOF = Roof(gflops=100.0, read=20.0, copy=10.0)
DENSE = Case(layer=parse('mb2ic3ih6oc4kh3ph1n"net:first"'), op="conv2d_backprop_input", suite="net", count=3)


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self):
        self.now, self.events = 0.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.events.append("pause")

    def worker(self, name, *seconds):
        durations = iter(seconds)

        def work():
            self.now += next(durations, seconds[-1])
            self.events.append(name)

        return Contender(name, work, lambda result: result)


class Double:
    """A peer that returns a multiple of gradops' result."""

    errors = (OverflowError,)

    def __init__(self, name, factor=1.0, reason="", fails=False, shape=None):
        self.name, self.factor, self.reason, self.fails, self.shape = name, factor, reason, fails, shape

    def version(self):
        return "1.0"

    def can(self, case):
        return self.reason

    def contender(self, case, operands):
        if self.fails:
            raise OverflowError("too much\nof it")
        result = OPS[case.op](case.problem, *operands) * np.float32(self.factor)
        return Contender(self.name, lambda: result, lambda got: got if self.shape is None else got.reshape(self.shape))


def row_with(**medians):
    times = {name: Timing(median, 0.9 * median, 1.1 * median, 5) for name, median in medians.items()}
    return Row(DENSE, ROOF, 1e-7, times, {})


def test_contenders_take_turns_after_pauses():
    clock = Clock()
    times = take_turns([clock.worker("a", 0.1), clock.worker("b", 0.3)], 0.0, clock=clock, sleep=clock.sleep)
    assert clock.events == ["pause", "a", "a", "pause", "b", "b"] * 2
    assert times["a"].median == pytest.approx(100) and times["b"].median == pytest.approx(300)
    assert times["a"].calls == 2


def test_first_call_of_a_turn_is_not_counted():
    clock = Clock()
    times = take_turns([clock.worker("a", 0.9, 0.1, 0.9, 0.2)], 0.0, clock=clock, sleep=clock.sleep)
    assert times["a"] == pytest.approx(Timing(150.0, 125.0, 175.0, 2))


def test_calls_are_not_counted_until_a_turn_is_warm():
    clock = Clock()
    cold, warm = [0.0025] * 2, [0.0001]
    times = take_turns([clock.worker("a", *cold, *warm)], 0.0, clock=clock, sleep=clock.sleep)
    assert times["a"].high == pytest.approx(0.1)
    assert clock.events.count("a") > 2 * runner.LEAST / 0.0001


def test_who_takes_too_long_is_called_once():
    clock = Clock()
    times = take_turns([clock.worker("slow", 5.0, 6.0), clock.worker("b", 0.1)], 4.0, clock=clock, sleep=clock.sleep)
    assert times["slow"] == Timing(5000.0, 5000.0, 5000.0, 1)
    assert clock.events.count("slow") == 1 and times["b"].calls >= 2
    times = take_turns([clock.worker("slow", 5.0)], 60.0, clock=clock, sleep=clock.sleep)
    assert times["slow"].calls > 1


def test_time_is_spent_in_as_many_turns_as_there_are():
    clock = Clock()
    times = take_turns([clock.worker("a", 0.001)], 2.0, clock=clock, sleep=clock.sleep)
    assert clock.events.count("pause") == runner.TURNS
    assert clock.now == pytest.approx(2.0, rel=0.1)
    assert times["a"].calls > 1000


def test_timing_is_the_median_and_the_quartiles():
    timing = Timing.of([4.0, 1.0, 3.0, 2.0, 5.0])
    assert timing == Timing(3.0, 2.0, 4.0, 5)
    assert timing.spread == pytest.approx(1 / 3)
    assert Timing.of([2.0]) == Timing(2.0, 2.0, 2.0, 1)


def test_rates_share_and_ratios_of_a_known_row():
    row = row_with(gradops=2.0, slow=5.0, fast=1.0)
    products = 2 * 6 * 6 * 4 * 3 * 9
    numbers = 2 * 6 * 6 * 3 + 3 * 3 * 3 * 4 + 2 * 6 * 6 * 4
    assert (row.case.flops, row.case.nbytes) == (2 * products, 4 * numbers)
    assert row.gflops == pytest.approx(2 * products / 2e-3 / 1e9)
    assert row.gbytes == pytest.approx(4 * numbers / 2e-3 / 1e9)
    assert row.share == pytest.approx(max(2 * products / 100e9, 4 * numbers / 20e9) / 2e-3)
    assert row.ratios == {"slow": 2.5, "fast": 0.5}
    assert row.fastest == 0.5


def test_row_without_peers_has_no_fastest():
    assert math.isnan(row_with(gradops=2.0).fastest)


def test_error_is_relative_to_the_largest_value():
    assert error_of(np.array([1.0, -4.0]), np.array([1.5, -4.0])) == pytest.approx(0.125)
    assert error_of(np.array([1.0]), np.array([[1.0]])) == math.inf
    assert error_of(np.array([math.nan]), np.array([1.0])) == math.inf


def timed_by(peers, case=DENSE, budget=0.0):
    return next(runner.run([case], peers, lambda dtype: ROOF, budget, sleep=lambda seconds: None))


def test_who_computes_something_else_is_named_and_not_timed():
    row = timed_by([Double("same"), Double("twice", 2.0), Double("flat", shape=-1)])
    assert set(row.times) == {"gradops", "same"}
    assert row.notes["twice"] == "computes something else: error 1"
    assert row.notes["flat"].startswith("computes something else: shape")
    assert row.error < 1e-6


def test_who_cannot_says_why():
    row = timed_by([Double("unable", reason="has no such op"), Double("failing", fails=True)])
    assert row.notes == {"unable": "has no such op", "failing": "cannot run it: too much"}
    assert set(row.times) == {"gradops"}


def test_wrong_gradops_is_not_timed_either(monkeypatch):
    monkeypatch.setattr(
        runner, "gradops_contender", lambda case, operands: Double("gradops", 2.0).contender(case, operands)
    )
    row = timed_by([Double("same")])
    assert row.notes["gradops"].startswith("computes something else")
    assert set(row.times) == {"same"}
    assert report.record(row)["gflops"] is None


@pytest.mark.parametrize("text", ["g8mb1ic8ih5oc8kh3ph1", "mb1ic4ih7oc4kh3ph1", "mb1ic3ih9rh1.5"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float64_by_kernels_is_that_of_the_references(monkeypatch, text, dtype):
    layer = parse(text)
    for op in layer.ops:
        case = Case(layer=layer, op=op, dtype=dtype)
        operands = random_normal(OPS[op].shapes(case.problem), dtype_named(dtype), seed=3)
        naive = expected(case, operands)
        with monkeypatch.context() as patch:
            patch.setattr(runner, "_NAIVE_FLOPS", 0)
            assert error_of(expected(case, operands), naive) < 1e-13


def test_document_holds_the_row_and_survives_json():
    document = report.document([row_with(gradops=2.0, torch=5.0)], {"float32": ROOF}, {"threads": 1}, {"torch": "2"})
    again = json.loads(json.dumps(document, allow_nan=False))
    (row,) = again["rows"]
    assert row["times"]["gradops"] == {"median": 2.0, "low": 1.8, "high": 2.2, "calls": 5}
    assert row["ratios"] == {"torch": 2.5}
    assert (row["suite"], row["count"], row["problem"]) == ("net", 3, str(DENSE.layer))
    assert again["versions"]["torch"] == "2" and again["roofs"]["float32"]["gflops"] == 100.0


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ((2.0, 1.9, 2.1), (1.0, 0.9, 1.1), "faster"),
        ((1.0, 0.9, 1.1), (2.0, 1.9, 2.1), "slower"),
        ((1.0, 0.8, 1.2), (1.3, 1.1, 1.5), "not significant"),
        ((1.0, 1.0, 1.0), (1.02, 1.02, 1.02), "not significant"),
    ],
)
def test_changes_count_beyond_noise_and_quartiles(was, now, said):
    assert report.verdict(*(dict(zip(("median", "low", "high"), each, strict=True)) for each in (was, now))) == said


def test_compare_names_rows_and_sums_up():
    before, after = (report.document([row_with(gradops=ms)], {"float32": ROOF}, {}, {}) for ms in (2.0, 1.0))
    lines = report.compare(before, after)
    assert lines[0] == "net:first conv2d_backprop_input NHWC float32: 2.000 -> 1.000 ms, 2.00x, faster"
    assert lines[-1] == "1 rows in both: 1 faster, 0 slower, 0 not significant"
    assert "machines differ" in report.compare(before | {"machine": {}}, after)[0]


def test_scaling_divides_totals():
    plot = pytest.importorskip("gradops._bench.plot", reason="drawing needs matplotlib")
    one = report.document([row_with(gradops=4.0)], {"float32": ROOF}, {}, {})
    two = {"rows": [one["rows"][0] | {"threads": 2, "times": {"gradops": {"median": 2.5}}}]}
    assert dict(plot.speedups([one, two])) == {"conv2d_backprop_input": [(1, 1.0), (2, 1.6)]}
    assert dict(plot.speedups([one, one])) == {}


def test_scaling_shows_what_the_machine_gains():
    plot = pytest.importorskip("gradops._bench.plot", reason="drawing needs matplotlib")
    one, two, again = (
        {"config": {"threads": threads}, "roofs": {"float32": {"gflops": gflops}}}
        for threads, gflops in ((1, 100.0), (2, 150.0), (2, 190.0))
    )
    assert plot.roof_speedups([two, one, again]) == {"float32": [(1, 1.0), (2, 1.9)]}


def test_networks_weigh_layers():
    one = report.document([row_with(gradops=4.0, torch=6.0)], {"float32": ROOF}, {}, {})
    rows = [one["rows"][0] | {"count": 1, "times": {"gradops": {"median": 2.0}}, "ratios": {}}, *one["rows"]]
    assert summary.ratio_of(rows, "torch") == pytest.approx(1.5)
    assert math.isnan(summary.ratio_of(rows, "jax"))


def test_fastest_peer_is_that_of_any_layout():
    document = two_layouts()
    assert list(summary.fastest_peers(document["rows"]).values()) == [1.0]
    alone = report.document([row_with(gradops=2.0)], {}, {}, {})["rows"]
    assert math.isnan(*summary.fastest_peers(alone).values())


def test_summary_is_markdown_with_the_rows_behind():
    lines = summary.markdown(two_layouts())
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| net ")]
    assert cells == [
        ["net", "dense input", "NHWC", "float32", "1", "6.00", "0%", "2.50", "2.00", "0.50", "0.50", "1"],
        ["net", "dense input", "NCHW", "float32", "1", "6.00", "0%", "0.50", "-", "0.50", "0.50", "1"],
    ]
    assert "**Rows where a peer is faster: 2 of 2.**" in lines
    assert len({len(line) for line in lines if line.startswith("| net")}) == 2


def two_layouts():
    rows = [row_with(gradops=2.0, a=5.0, b=4.0), row_with(gradops=2.0, a=1.0)]
    document = report.document(rows, {"float32": ROOF}, {"threads": 1, "isa": "generic"}, {})
    document["rows"][1]["layout"] = "NCHW"
    return document
