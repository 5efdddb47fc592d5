"""How the table fits any terminal: no number is cut, less important columns and the middles of names give way."""

import io

import pytest

pytest.importorskip("rich", reason="the table needs rich")

from rich.console import Console

from gradops._bench import table, text
from gradops._bench.problems import parse
from gradops._bench.roof import Roof
from gradops._bench.runner import Case, Row, Timing

PEERS = ["torch", "torch_cl", "onednn", "tf", "jax"]
LAYERS = [parse(f'mb2ic3ih6oc4kh3ph1n"net:{name}"') for name in ("first", "a_layer_with_quite_a_long_name_1")]
CASES = [Case(layer=layer, op="conv2d_backprop_filter", suite="net") for layer in LAYERS]
ROWS = [
    Row(
        case,
        Roof(100.0, 20.0, 10.0),
        1e-7,
        {"gradops": Timing(1234.567, 1200.0, 1300.0, 5), "jax": Timing(1e6, 1e6, 1e6, 2)},
    )
    for case in CASES
]


def shown(width, peers=PEERS, terminal=True):
    file = io.StringIO()
    out = Console(file=file, width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    table.show(iter(ROWS), CASES, peers, out)
    return [line.rstrip() for line in file.getvalue().replace("\r", "\n").split("\n")]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_lines_fit_and_no_number_is_cut(width):
    lines = shown(width)
    rows = [line for line in lines if "1234.567" in line]
    assert len(rows) == 2 and all(len(line) <= width for line in lines if "\x1b" not in line)
    assert all(line.split()[-1 if "e-07" not in line else -2] == "810" for line in rows)
    heading = next(line for line in lines if line.startswith("layer "))
    assert {"layer", "op", "ms", "roof", *PEERS, "fastest"} <= set(heading.split())
    missing = {"spread", "GFLOP/s", "GB/s", "error"} - set(heading.split())
    assert any("not shown" in line and all(name in line for name in missing) for line in lines) == bool(missing)


def test_wide_table_shows_everything():
    columns = table.columns(CASES, PEERS)
    assert table.fitting(columns, 200) == (columns, [])


def test_columns_that_are_everywhere_the_same_are_left_out():
    assert not {"layout", "dtype"} & {column.heading for column in table.columns(CASES, [])}
    mixed = [*CASES, Case(layer=LAYERS[0], op="conv2d", layout="NCHW", dtype="float16")]
    assert {"layout", "dtype"} <= {column.heading for column in table.columns(mixed, [])}


def test_names_are_cut_in_the_middle():
    assert table.shortened("abcdefghij", 7) == "abc…hij"
    assert table.shortened("abc", 7) == "abc"


def test_a_peer_that_differs_is_marked():
    row = Row(CASES[0], ROWS[0].roof, 1e-7, ROWS[0].times, {"tf": "computes something else: error 1"})
    (column,) = (column for column in table.columns(CASES, PEERS) if column.heading == "tf")
    assert column.text(row) == "≠" and column.text(ROWS[0]) == "-"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.1234, "0.12"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (1234.4, "1234"), (float("nan"), "-")],
)
def test_ratios_have_three_digits(value, written):
    assert text.ratio(value) == written
