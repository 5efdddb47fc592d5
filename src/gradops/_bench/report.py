"""Results as JSON, and what changed between two of them.

The document is one object:

==============  =============================================================================================
``schema``      1; higher where the meaning of a member changes
``created``     the time in UTC, as ISO 8601
``machine``     ``cpu``, ``architecture``, ``usable`` (CPUs), ``platform``
``versions``    of gradops, numpy, python and the peers
``config``      what was asked for: ``threads``, ``isa``, ``budget``, ``vs``
``roofs``       by dtype: ``gflops``, ``read``, ``copy`` (1e9 a second), measured before and after the rows, the better of both
``rows``        a list of objects, see below
==============  =============================================================================================

A row has ``suite``, ``name``, ``problem``, ``count``, ``op``, ``layout``, ``dtype``, ``threads``, ``isa``, ``flops``, ``bytes``
(compulsory), ``error`` (largest difference from float64 over the largest value, null if not finite), ``scratch`` (bytes that
gradops held at most beside operands and result, as tracemalloc saw it), ``gflops``,
``gbytes``, ``roof_share`` (null where gradops was not timed), ``times`` (by contender: ``median``, ``low`` and ``high`` quartile in
milliseconds, ``calls``), ``ratios`` (by peer: its median over gradops') and ``notes`` (by contender: why it was not timed).
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gradops

from .roof import Roof
from .runner import Row, Timing

SCHEMA = 1
NOISE = 0.03
_KEY = ("suite", "problem", "op", "layout", "dtype", "threads", "isa")


class BadReport(ValueError):
    """A file that cannot be read or written, or holds no results."""


def document(
    rows: Sequence[Row], roofs: Mapping[str, Roof], config: Mapping[str, object], peers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the document of a run; `peers` holds their versions."""
    facts = gradops.show_config("dicts")
    cpu = facts["cpu"]
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu["name"],
            "architecture": cpu["architecture"],
            "usable": cpu["usable"],
            "platform": platform.platform(),
        },
        "versions": facts["versions"] | dict(peers),
        "config": dict(config),
        "roofs": {dtype: roof.record() for dtype, roof in roofs.items()},
        "rows": [record(row) for row in rows],
    }


def record(row: Row) -> dict[str, Any]:
    """Return the object of a row."""
    case = row.case
    return {
        "suite": case.suite,
        "name": case.layer.name,
        "problem": str(case.layer),
        "count": case.count,
        "op": case.op,
        "layout": case.layout,
        "dtype": case.dtype,
        "threads": case.threads,
        "isa": case.isa,
        "flops": case.flops,
        "bytes": case.nbytes,
        "error": _number(row.error),
        "scratch": row.scratch,
        "gflops": _number(row.gflops),
        "gbytes": _number(row.gbytes),
        "roof_share": _number(row.share),
        "times": {name: _timing(timing) for name, timing in row.times.items()},
        "ratios": {name: _number(ratio) for name, ratio in row.ratios.items()},
        "notes": dict(row.notes),
    }


def _number(value: float) -> float | None:
    """Seven digits, which is more than a measurement has."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _timing(timing: Timing) -> dict[str, float | int | None]:
    milliseconds = {name: _number(getattr(timing, name)) for name in ("median", "low", "high")}
    return {**milliseconds, "calls": timing.calls}


def check_writable(path: Path) -> None:
    """Raise `BadReport` unless the file can be written: before the run, not after it."""
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise BadReport(f"cannot write {path}: {error.strerror}") from None


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write a document."""
    try:
        path.write_text(_text(results))
    except OSError as error:
        raise BadReport(f"cannot write {path}: {error.strerror}") from None


def _text(results: Mapping[str, Any]) -> str:
    """JSON with a line per row, so that two files can be compared line by line."""
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in results["rows"])
    head = json.dumps({**results, "rows": []}, indent=1, allow_nan=False)
    return head.removesuffix("[]\n}") + f"[\n{rows}\n]\n}}\n"


def read(path: Path) -> dict[str, Any]:
    """Read a document."""
    try:
        results = json.loads(path.read_text())
    except OSError as error:
        raise BadReport(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise BadReport(f"{path} holds no JSON") from None
    if not isinstance(results, dict) or results.get("schema") != SCHEMA or not isinstance(results.get("rows"), list):
        raise BadReport(f"{path} holds no results of gradops bench (schema {SCHEMA})")
    return results


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what changed, a line per row that both have and one that sums up.

    A change is called significant where the quartiles do not overlap and the medians are more than 3 % apart.
    """
    earlier = {tuple(row[name] for name in _KEY): row for row in before["rows"]}
    lines, verdicts = [], []
    if before["machine"] != after["machine"]:
        lines.append("the machines differ: what follows compares them as much as gradops")
    for row in after["rows"]:
        old = earlier.pop(tuple(row[name] for name in _KEY), None)
        if old is None or "gradops" not in old["times"] or "gradops" not in row["times"]:
            continue
        was, now = old["times"]["gradops"], row["times"]["gradops"]
        verdicts.append(verdict(was, now))
        label = f"{row['name'] or row['problem']} {row['op']} {row['layout']} {row['dtype']}"
        change = f"{was['median']:.3f} -> {now['median']:.3f} ms"
        lines.append(f"{label}: {change}, {was['median'] / now['median']:.2f}x, {verdicts[-1]}")
    lines.append(
        f"{len(verdicts)} rows in both: {verdicts.count('faster')} faster, {verdicts.count('slower')} slower, "
        f"{verdicts.count('not significant')} not significant"
    )
    return lines


def verdict(was: Mapping[str, float], now: Mapping[str, float]) -> str:
    """Say what a change of a timing is worth: "faster", "slower" or "not significant"."""
    apart = abs(now["median"] - was["median"]) > NOISE * was["median"]
    if apart and now["high"] < was["low"]:
        return "faster"
    if apart and now["low"] > was["high"]:
        return "slower"
    return "not significant"
