"""Named lists of layers: one file per network, each line how often a layer occurs and the layer.

The files lie beside this module in an installed package, and in ``benchmarks/shapes`` of a checkout. Lines that begin
with ``#`` are comments; the first ones say where the architecture was published.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gradops._bench.problems import AnyLayer, parse

__all__ = ["describe", "load", "suites"]


def suites() -> list[str]:
    """List the names of all suites, sorted."""
    return sorted(entry.name for entry in _folder().iterdir() if entry.is_file() and "." not in entry.name)


def load(name: str) -> list[tuple[int, AnyLayer]]:
    """Read the layers of a suite.

    Parameters
    ----------
    name : str
        One of `suites`.

    Returns
    -------
    list of (int, Layer or PoolLayer)
        How often the layer occurs in the network, and the layer, in the order of the network.

    Raises
    ------
    ValueError
        If there is no such suite, or a line of its file cannot be read; the message names the line.
    """
    lines = enumerate(_text(name).splitlines(), start=1)
    return [_entry(name, number, line) for number, line in lines if line.strip() and not line.startswith("#")]


def describe(name: str) -> str:
    """Return the comment at the head of a suite's file: the network and where it was published.

    Parameters
    ----------
    name : str
        One of `suites`.

    Returns
    -------
    str
        Its lines, without the ``#``.

    Raises
    ------
    ValueError
        If there is no such suite.
    """
    head = _text(name).partition("\n\n")[0]
    return "\n".join(line.removeprefix("#").strip() for line in head.splitlines() if line.startswith("#"))


def _entry(name: str, number: int, line: str) -> tuple[int, AnyLayer]:
    count, _, problem = line.strip().partition(" ")
    if not count.isdecimal() or int(count) < 1 or not problem:
        raise ValueError(f"suite {name}, line {number}: got {line!r}, expected a count and a problem")
    try:
        return int(count), parse(problem)
    except ValueError as error:
        raise ValueError(f"suite {name}, line {number}: {error}") from None


def _text(name: str) -> str:
    known = suites()
    if name not in known:
        raise ValueError(f"suite: got {name!r}, expected one of {', '.join(known)}")
    return (_folder() / name).read_text(encoding="utf-8")


def _folder() -> Traversable:
    packaged = files("gradops._bench") / "shapes"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "benchmarks" / "shapes"
