"""Results as Markdown: networks, the rows where gradops is behind, and all rows.

A row is held against the fastest peer in any layout: the one time that the same layer, op and dtype took anybody in the same run,
whatever the layout of the rows it was measured in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from .text import compared, described, milliseconds, percent, ratio

_SAME_WORK = ("suite", "problem", "op", "dtype")
_NETWORK = ("suite", "op", "layout", "dtype")


def markdown(document: Mapping[str, Any], every_row: bool = False) -> list[str]:
    """Return the lines of a summary.

    Parameters
    ----------
    document : dict
        As `gradops._bench.report` describes it.
    every_row : bool, optional
        Whether to list every row, besides those where a peer is faster.
    """
    rows = [row for row in document["rows"] if "gradops" in row["times"]]
    peers = list(dict.fromkeys(name for row in document["rows"] for name in row["ratios"]))
    against = fastest_peers(rows)
    ratios = [against[_key(row, _SAME_WORK)] / row["times"]["gradops"]["median"] for row in rows]
    lines = [*_heading(document), "", *_networks(rows, ratios, peers)]
    behind = sorted((at for at in range(len(rows)) if ratios[at] < 1), key=ratios.__getitem__)
    if peers:
        lines += ["", f"**Rows where a peer is faster: {len(behind)} of {len(rows)}.**"]
        lines += ["", *_rows([rows[at] for at in behind], [ratios[at] for at in behind], peers)] if behind else []
    if every_row:
        lines += ["", f"**All {len(rows)} rows.**", "", *_rows(rows, ratios, peers)]
    return lines


def fastest_peers(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], float]:
    """Return the milliseconds of the fastest peer in any layout, by layer, op and dtype; NaN without one."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = _key(row, _SAME_WORK)
        theirs = [timing["median"] for name, timing in row["times"].items() if name != "gradops"]
        before = found.get(key, math.nan)
        found[key] = min([*theirs, before] if before == before else theirs, default=math.nan)
    return found


def _key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _heading(document: Mapping[str, Any]) -> Iterator[str]:
    config, roofs = document["config"], document["roofs"]
    yield f"{document['machine']['cpu']}, {config['threads']} threads, {config['isa']}, {document['created'][:10]}."
    for dtype, roof in roofs.items():
        bandwidth = max(roof["read"], roof["copy"])
        yield f"Roof for {dtype}: {roof['gflops']:.0f} GFLOP/s, {bandwidth:.1f} GB/s."
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in document['versions'].items())}."


def _networks(rows: Sequence[Mapping[str, Any]], ratios: Sequence[float], peers: Sequence[str]) -> Iterator[str]:
    """A line per network, op, layout and dtype."""
    networks: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        networks[_key(row, _NETWORK)].append(at)
    compared = ["geometric mean", "worst", "behind"] if peers else []
    lines = [["network", "op", "layout", "dtype", "rows", "ms", "roof", *peers, *compared]]
    for (suite, op, layout, dtype), members in networks.items():
        mine = [rows[at] for at in members]
        total = sum(row["count"] * row["times"]["gradops"]["median"] for row in mine)
        shares = median(row["roof_share"] for row in mine)
        known = [ratios[at] for at in members if ratios[at] == ratios[at]]
        theirs = [ratio(ratio_of(mine, peer)) for peer in peers]
        verdict = [ratio(geometric_mean(known)), ratio(min(known)), str(sum(r < 1 for r in known))] if known else []
        own = [suite or "problems", described(op), layout, dtype, str(len(mine)), f"{total:.2f}", percent(shares)]
        lines.append([*own, *theirs, *(verdict or ["-"] * len(compared))])
    yield from _aligned(lines, words=4)


def ratio_of(rows: Sequence[Mapping[str, Any]], peer: str) -> float:
    """Return a peer's time over gradops' for rows that both ran, each as often as it occurs; NaN without any."""
    shared = [row for row in rows if peer in row["ratios"]]
    own = sum(row["count"] * row["times"]["gradops"]["median"] for row in shared)
    return sum(row["count"] * row["times"][peer]["median"] for row in shared) / own if own else math.nan


def _rows(rows: Sequence[Mapping[str, Any]], ratios: Sequence[float], peers: Sequence[str]) -> Iterator[str]:
    """A line per row."""
    extra = ["any layout"] if peers else []
    lines = [["layer", "op", "layout", "dtype", "ms", "GFLOP/s", "GB/s", "roof", *peers, *extra]]
    for row, against in zip(rows, ratios, strict=True):
        name = row["name"] or row["problem"]
        label = name if not row["suite"] or name.startswith(row["suite"]) else f"{row['suite']}:{name}"
        rates = [f"{row['gflops']:.1f}", f"{row['gbytes']:.1f}", percent(row["roof_share"])]
        theirs = [compared(peer, row["ratios"], row["notes"]) for peer in peers]
        time = milliseconds(row["times"]["gradops"]["median"])
        lines.append([label, described(row["op"]), row["layout"], row["dtype"], time, *rates, *theirs])
        lines[-1] += [ratio(against)] if peers else []
    yield from _aligned(lines, words=4)


def _aligned(lines: Sequence[Sequence[str]], words: int) -> Iterator[str]:
    """A Markdown table; as many columns as there are words begin at the left, numbers end at the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def placed(at: int, text: str) -> str:
        return text.ljust(widths[at]) if at < words else text.rjust(widths[at])

    for number, line in enumerate(lines):
        yield f"| {' | '.join(placed(at, text) for at, text in enumerate(line))} |"
        if not number:
            rules = ("-" * width if at < words else "-" * (width - 1) + ":" for at, width in enumerate(widths))
            yield f"| {' | '.join(rules)} |"
