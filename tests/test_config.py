"""show_config, the version and what the package exports."""

import importlib.metadata
import os
import subprocess
import sys

import numpy as np
import pytest

import gradops


def test_dicts_hold_what_is_in_use():
    config = gradops.show_config("dicts")
    assert config["versions"]["gradops"] == gradops.__version__
    assert config["versions"]["numpy"] == np.__version__
    assert config["levels"]["selected"] in config["levels"]["available"]
    assert set(config["levels"]["available"]) <= set(config["levels"]["known"])
    assert config["build"]["openmp"] >= 201107
    assert all(isinstance(config["cpu"][name], str) and config["cpu"][name] for name in ("name", "architecture"))


def test_threads_follow_the_settings():
    with gradops.num_threads(3):
        assert gradops.show_config("dicts")["threads"]["gradops"] == 3


def test_best_level_is_selected_by_default():
    code = "import gradops; of = gradops.show_config('dicts')['levels']; print(of['selected'] == of['available'][-1])"
    environment = {name: value for name, value in os.environ.items() if name != "GRADOPS_ISA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "True"


def test_stdout_shows_every_fact(capsys):
    assert gradops.show_config() is None
    shown = capsys.readouterr().out
    for section, facts in gradops.show_config("dicts").items():
        assert f"{section}:\n" in shown
        for name, value in facts.items():
            assert f"  {name}: {', '.join(value) if isinstance(value, list) else value}\n" in shown


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode must be 'stdout' or 'dicts', got 'json'"):
        gradops.show_config("json")


def test_version_is_the_installed_one():
    assert gradops.__version__ == importlib.metadata.version("gradops")


def test_every_public_name_exists():
    for module in (gradops, gradops.raw_ops):
        assert sorted(module.__all__) == module.__all__
        assert all(hasattr(module, name) for name in module.__all__)
