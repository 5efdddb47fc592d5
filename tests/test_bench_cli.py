"""The command line, as a user meets it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gradops
from gradops._bench import cli, peers, selftest
from gradops._bench.suites import suites
from gradops.testing import LEVELS, runnable

pytest.importorskip("rich", reason="the table needs rich")

TINY = 'mb1ic8ih7oc8kh3ph1n"small"'
FAST = ("--threads", "1", "--budget", "0.1")


def run(*arguments, **environment):
    command = [sys.executable, "-m", "gradops", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def good(*arguments, **environment):
    done = run(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def table(output):
    """Return the rows of the table by heading."""
    lines = output.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("layer "))
    headings = lines[start].split()
    rows = [line.split() for line in lines[start + 1 :]]
    return [dict(zip(headings, row, strict=True)) for row in rows if len(row) == len(headings) and "e" in row[-1]]


def test_rows_are_ops_layouts_and_dtypes():
    rows = table(good("bench", TINY, "--op", "all", "--layout", "all", "--dtype", "float32,float64", *FAST))
    assert len(rows) == 12
    assert {row["op"] for row in rows} == {"forward", "input", "filter"}
    assert {row["layout"] for row in rows} == {"NHWC", "NCHW"}
    assert all(float(row["ms"]) > 0 and float(row["error"]) < 1e-5 for row in rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Results on one thread and on two, and what was shown of the first."""
    paths = [str(tmp_path_factory.mktemp("results") / f"{threads}.json") for threads in (1, 2)]
    shown, _ = (
        good("bench", TINY, "--op", "filter", "--batch", "3", "--json", path, "--budget", "0.1", "--threads", path[-6])
        for path in paths
    )
    return paths, shown


def test_json_holds_what_the_table_shows(saved):
    (shown,), results = table(saved[1]), json.loads(Path(saved[0][0]).read_text())
    (row,) = results["rows"]
    assert row["op"] == "conv2d_backprop_filter" and row["problem"].startswith("mb3ic8")
    assert row["flops"] == 2 * 3 * 7 * 7 * 8 * 8 * 9
    assert row["bytes"] == 4 * (2 * 3 * 7 * 7 * 8 + 9 * 8 * 8)
    median = row["times"]["gradops"]["median"]
    assert float(shown["ms"]) == pytest.approx(median, rel=5e-3) and shown["layer"] == "small"
    assert row["gflops"] == pytest.approx(row["flops"] / median / 1e6)
    assert row["gbytes"] == pytest.approx(row["bytes"] / median / 1e6)
    roof = results["roofs"]["float32"]
    least = max(row["flops"] / roof["gflops"], row["bytes"] / max(roof["read"], roof["copy"])) / 1e6
    assert row["roof_share"] == pytest.approx(least / median)
    assert results["config"]["threads"] == row["threads"] == 1
    assert results["versions"]["gradops"] == gradops.__version__


def test_suite_has_all_layers_and_a_total():
    output = good("bench", "dcgan", "--batch", "1", "--op", "filter", *FAST)
    assert output.count("total of dcgan filter NHWC float32: gradops ") == 1
    assert [row["layer"] for row in table(output)] == ["conv1", "conv2", "conv3", "conv4"]
    assert output.count("\ndcgan\n") == 1


def test_command_of_a_row_repeats_it():
    output = good("bench", TINY, "--op", "input", "--isa", "generic", "-v", *FAST)
    repeat = next(line for line in output.splitlines() if line.startswith("gradops bench"))
    again = table(good(*shlex.split(repeat)[1:], "--budget", "0.1"))
    assert [(row["layer"], row["op"]) for row in again] == [("small", "input")]


def test_all_is_every_suite():
    output = good("bench", "all", "--filter", "1", "--batch", "1", "--op", "input", "--dtype", "int32", *FAST)
    assert "\nfractional\n" in output and table(output)


def test_filter_leaves_rows_out():
    rows = table(good("bench", TINY, "mb1ic4ih5rh1.5", "--filter", "pool", *FAST))
    assert [row["op"] for row in rows] == ["input"]


def test_compare_says_what_changed(saved):
    (path, _), _ = saved
    assert "1 rows in both" in good("bench", "compare", path, path)
    assert good("bench", "summary", path, "--rows").count("| small ") == 1


def test_plot_draws_what_the_results_permit(saved, tmp_path):
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    drawn = good("bench", "plot", *saved[0], "-o", str(tmp_path / "pictures")).splitlines()
    assert [Path(path).name for path in drawn] == ["roofline.png", "threads.png"]
    assert all(Path(path).stat().st_size > 10_000 for path in drawn)


def test_info_is_show_config(capsys):
    gradops.show_config()
    assert good("info") == capsys.readouterr().out


def test_selftest_passes_at_every_level():
    output = good("selftest")
    assert [line.split(":")[0] for line in output.splitlines() if " right" in line] == list(filter(runnable, LEVELS))
    assert "passed in" in output


def test_selftest_fails_where_a_result_is_wrong(capsys, monkeypatch):
    def wrong(*arguments, **options):
        raise AssertionError("1 of 2 values differ")

    monkeypatch.setattr(selftest, "assert_close", wrong)
    assert cli.main(["selftest"]) == 1
    assert "1 of 2 values differ" in capsys.readouterr().out


def test_python_gets_the_table_and_an_exception():
    code = f"import gradops\nfor _ in range(2): gradops.bench({TINY!r}, budget=0.1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.count("small") == 4
    with pytest.raises(ValueError, match="nonsense"):
        gradops.bench("nonsense")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "resnet5000x"], "resnet5000x"),
        (["bench", "nonsense"], f"unknown suite 'nonsense'; known are all, {', '.join(suites())}"),
        (["bench", "mb8ic64ih56oc64kq3"], "kq"),
        (["bench", TINY, "--op", "sideways"], "unknown op 'sideways'; known are forward, input, filter"),
        (["bench", TINY, "--dtype", "float8"], "unknown dtype 'float8'"),
        (["bench", TINY, "--layout", "CHWN"], "unknown layout 'CHWN'"),
        (["bench", TINY, "--isa", "mmx"], "mmx"),
        (["bench", TINY, "--threads", "0"], "expected a number above 0, got '0'"),
        (["bench", TINY, "--budget", "nan"], "expected a number above 0, got 'nan'"),
        (["bench", TINY, "--vs", "caffe"], "unknown peer 'caffe'; known are torch, onednn, tf, jax"),
        (["bench", TINY, "--dtype", "int32"], "nothing to run"),
        (["bench", TINY, "--filter", "elephant"], "nothing to run"),
        (["bench", TINY, "--json", "/no/such/folder/a.json"], "cannot write /no/such/folder/a.json: No such file"),
        (["bench", "compare", "/no/such/a.json", "/no/such/b.json"], "cannot read /no/such/a.json: No such file"),
        (["bench", "compare", __file__, __file__], "holds no JSON"),
        (["bench", "summary", "/no/such/a.json"], "cannot read /no/such/a.json: No such file"),
        (["bench", "plot", "/no/such/a.json"], "cannot read /no/such/a.json: No such file"),
        (["dance"], "dance"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value)[-30:] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, said):
    assert cli.main(arguments) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("gradops: ") and said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["GRADOPS_ISA", "GRADOPS_NUM_THREADS"])
def test_bad_environment_is_named(name):
    done = run("bench", TINY, **{name: "many"})
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert name in done.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "how"),
    [
        ("rich", [], "pip install 'gradops[bench]'"),
        ("torch", ["--vs", "torch"], "pip install torch"),
        ("ml_dtypes", ["--dtype", "bfloat16"], "pip install ml_dtypes"),
    ],
)
def test_missing_extra_says_what_to_install(capsys, monkeypatch, module, arguments, how):
    for user in (cli, peers):
        monkeypatch.setattr(user, "find_spec", lambda name: None if name == module else name)
    assert cli.main(["bench", TINY, *arguments]) == 2
    error = capsys.readouterr().err
    assert how in error and error.count("\n") == 1
