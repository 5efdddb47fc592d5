"""Every public function has a numpydoc docstring with an example, and the examples run."""

import doctest
import importlib
import inspect
import re

import numpy as np
import pytest

import gradops
import gradops.testing

MODULES = ["gradops", "gradops.raw_ops", "gradops.testing"]
FUNCTIONS = {
    f"{module}.{name}": value
    for module in MODULES
    for name in importlib.import_module(module).__all__
    if inspect.isroutine(value := getattr(importlib.import_module(module), name)) or inspect.isclass(value)
}


def examples(value, name):
    """List the doctests of a function or a class with its methods."""
    return [test for test in doctest.DocTestFinder().find(value, name) if test.examples]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_run(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    for test in examples(FUNCTIONS[name], name):
        test.globs = {"np": np, "gradops": gradops}
        report = []
        result = runner.run(test, out=report.append)
        assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.startswith("gradops.testing.")])
def test_public_functions_show_an_example(name):
    assert examples(FUNCTIONS[name], name)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.count(".") == 1])
def test_docstrings_describe_every_parameter(name):
    text = inspect.getdoc(FUNCTIONS[name])
    for parameter in inspect.signature(FUNCTIONS[name]).parameters:
        assert re.search(rf"^\*?(\w+, )*{parameter}(, \w+)*( : .*)?\n    \S", text, re.MULTILINE), parameter


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.startswith("gradops.raw_ops.")])
def test_raw_ops_name_the_function_that_describes_them(name):
    described = re.search(r"`gradops\.(\w+)`", inspect.getdoc(FUNCTIONS[name]))
    assert described and f"gradops.{described[1]}" in FUNCTIONS
