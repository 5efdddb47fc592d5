"""README.md says what is true: its calls give the output that stands there, its commands and files exist."""

import doctest
import re
from pathlib import Path

import gradops

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fences(language):
    """List the contents of the fenced blocks of a language, in order."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", README, flags=re.DOTALL | re.MULTILINE)


def test_calls_give_the_output_that_is_shown():
    calls = doctest.DocTestParser().get_doctest("\n".join(fences("pycon")), {}, "README.md", "README.md", 0)
    shown = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        calls, out=shown.append
    )
    assert not result.failed, "".join(shown)
    assert len(fences("pycon")) >= 6


def test_each_command_is_one_line_that_installs_first():
    commands = [line for block in fences("sh") for line in block.splitlines()]
    assert len(commands) == 2
    assert all(command.startswith("pip install ") for command in commands)


def test_extras_that_commands_install_exist():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in re.findall(r"pip install '\.\[(\w+)\]'", README):
        assert re.search(rf"^{extra} = \[", declared, flags=re.MULTILINE)


def test_headings_that_are_linked_exist():
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.*)", README, re.MULTILINE)}
    linked = re.findall(r"\]\(#([^)]+)\)", README)
    assert linked
    assert set(linked) <= headings


def test_files_that_are_mentioned_exist():
    mentioned = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"\b(?:examples|benchmarks)/\w+\.\w+", README)
    assert mentioned
    assert [name for name in mentioned if not (ROOT / name).exists()] == []


def test_names_that_are_mentioned_exist():
    for name in set(re.findall(r"gradops\.(\w+)\(", README)):
        assert hasattr(gradops, name)
