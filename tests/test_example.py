"""The example trains, draws and reports; what it cannot do it says in one line."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gradops

SCRIPT = Path(__file__).parent.parent / "examples" / "train_digits.py"
ACCURACY = re.compile(r"^test accuracy ([\d.]+)%", flags=re.MULTILINE)

# Looked for, but not imported by each worker that collects tests.
for package in "sklearn", "matplotlib", "rich", "threadpoolctl":
    if importlib.util.find_spec(package) is None:
        reason = f"examples/train_digits.py needs {package}: pip install '.[examples]'"
        pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def example():
    """The script as a module of its own."""
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def train(example, tmp_path, monkeypatch, capsys):
    """Runs the script in a folder of its own, wide enough that no line is wrapped; gives what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    threads = gradops.get_num_threads()

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        example.main()
        return capsys.readouterr().out

    yield run
    gradops.set_num_threads(threads)


@pytest.mark.parametrize(
    ("dtype", "layout"), [("float16", "NHWC"), ("bfloat16", "NCHW"), ("float32", "NCHW"), ("float64", "NHWC")]
)
def test_network_learns_within_a_few_epochs(dtype, layout, train, tmp_path):
    if dtype == "bfloat16":
        pytest.importorskip(
            "ml_dtypes", reason="bfloat16 is the dtype of the package ml_dtypes, which is not installed"
        )
    printed = train("--dtype", dtype, "--layout", layout, "--epochs", 3)
    assert float(ACCURACY.search(printed)[1]) > 90
    assert (tmp_path / "train_digits.png").read_bytes().startswith(b"\x89PNG")
    for op in "conv2d", "depthwise_conv2d_native", "fractional_avg_pool":
        assert f" {op} " in printed
    for op in "conv2d", "depthwise_conv2d_native":
        assert {f"{op}_backprop_input", f"{op}_backprop_filter"} <= set(printed.split())
    assert "fractional_avg_pool_grad" in printed


def test_script_repeats_a_run(train, tmp_path):
    arguments = ["--epochs", "1", "--seed", "3", "--batch-size", "300"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ACCURACY.search(train(*arguments))[1] == ACCURACY.search(done.stdout)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs", "0"), "argument --epochs: '0' is not a whole number from 1 to 4294967295"),
        (("--batch-size", "many"), "argument --batch-size: 'many' is not a whole number from 1 to 4294967295"),
        (("--threads", "-1"), "argument --threads: '-1' is not a whole number from 1 to 4294967295"),
        (("--dtype", "int8"), "argument --dtype: invalid choice: 'int8'"),
        (
            ("--output", "nowhere/x.png"),
            "--output nowhere/x.png: not the name of a .png file in a folder that can be written to",
        ),
    ],
)
def test_bad_option_is_one_clear_line(arguments, message, example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    with pytest.raises(SystemExit) as stopped:
        example.parse_options()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_help_describes_every_option(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--help"])
    with pytest.raises(SystemExit):
        example.parse_options()
    shown = capsys.readouterr().out
    for option in "dtype", "layout", "epochs", "batch-size", "seed", "threads", "output":
        assert re.search(rf"^  --{option} .*\w", shown, flags=re.MULTILINE)
