"""Pictures of results: the roofline, networks beside every peer, scaling over threads. Needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .summary import ratio_of
from .text import ratio, short

_SIZE = (9.0, 4.8)
_DPI = 150
_COLOURS = ("#0b6e99", "#e07b39", "#4f9d4f", "#9b59b6", "#c0392b", "#7f8c8d", "#d4ac0d", "#1a1a6e")
_SAME_IN_SCALING = ("suite", "problem", "op", "layout", "dtype", "isa")


def pictures(documents: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw what the results permit, and return the files.

    Parameters
    ----------
    documents : sequence of dict
        As `gradops._bench.report` describes them. Scaling needs several, of different numbers of threads; the other pictures
        show the last.
    folder : Path
        It must exist.
    """
    drawn = [
        ("roofline.png", roofline(documents[-1])),
        ("networks.png", networks(documents[-1])),
        ("threads.png", scaling(documents)),
    ]
    return list(starmap(_saved, ((folder / name, figure) for name, figure in drawn if figure is not None)))


def _saved(path: Path, figure: Figure) -> Path:
    figure.savefig(path, dpi=_DPI, bbox_inches="tight")
    return path


def _axes(title: str, document: Mapping[str, Any], threads: bool = True) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE)
    axes = figure.subplots()
    axes.set_title(_title(title, document, threads), fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _title(title: str, document: Mapping[str, Any], threads: bool = True) -> str:
    used = f"{document['config']['threads']} threads, " if threads else ""
    return f"{title}\n{document['machine']['cpu']}, {used}{document['created'][:10]}"


def roofline(document: Mapping[str, Any]) -> Figure | None:
    """Draw operations a second over operations per byte: a point per row, the roof of each dtype above them."""
    rows = [row for row in document["rows"] if row["gflops"]]
    if not rows:
        return None
    figure, axes = _axes("gradops below the roof", document)
    intensities = [row["flops"] / row["bytes"] for row in rows]
    ends = min(intensities) / 2, max(intensities) * 2
    xs = [ends[0] * (ends[1] / ends[0]) ** (i / 200) for i in range(201)]
    for dtype, roof in document["roofs"].items():
        bandwidth = max(roof["read"], roof["copy"])
        axes.plot(xs, [min(roof["gflops"], bandwidth * x) for x in xs], color="black", lw=1.2)
        ridge = min(max(roof["gflops"] / bandwidth, xs[0]), xs[-1])
        axes.annotate(dtype, (ridge, min(roof["gflops"], bandwidth * ridge)), ha="right", va="bottom", fontsize=9)
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row, intensity in zip(rows, intensities, strict=True):
        points[row["op"]].append((intensity, row["gflops"]))
    for colour, (op, found) in zip(_COLOURS, points.items(), strict=False):
        across, up = zip(*found, strict=True)
        axes.scatter(across, up, s=22, alpha=0.8, label=op, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="operations per compulsory byte", ylabel="GFLOP/s")
    axes.legend(fontsize=8)
    return figure


def networks(document: Mapping[str, Any]) -> Figure | None:
    """Draw each peer's time for the layers of each network over gradops', on the rows that both ran: a panel per op."""
    panels: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in document["rows"]:
        panels[short(row["op"])][row["suite"] or "problems"].append(row)
    peers = list(dict.fromkeys(name for row in document["rows"] for name in row["ratios"]))
    if not peers:
        return None
    figure = Figure(figsize=(_SIZE[0] + 3, _SIZE[1] * (0.4 + 0.7 * len(panels))), layout="constrained")
    figure.suptitle(
        _title("Time of other libraries over that of gradops: above 1, gradops is faster", document), fontsize=11
    )
    for axes, (op, suites) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True):
        _bars(axes, suites, peers)
        axes.set_ylabel(op)
    axes.legend(fontsize=8, ncols=len(peers), loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def _bars(axes: Axes, suites: Mapping[str, Sequence[Mapping[str, Any]]], peers: Sequence[str]) -> None:
    width = 0.85 / len(peers)
    for at, (peer, colour) in enumerate(zip(peers, _COLOURS, strict=False)):
        heights = [ratio_of(rows, peer) for rows in suites.values()]
        across = [i + (at + 0.5) * width - 0.425 for i in range(len(suites))]
        bars = axes.bar(across, [height - 1 for height in heights], width, bottom=1, label=peer, color=colour)
        axes.bar_label(
            bars, labels=[ratio(height).strip("-") for height in heights], fontsize=7, rotation=90, padding=3
        )
    axes.axhline(1.0, color="black", lw=1)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_yscale("log")
    axes.margins(x=0.01, y=0.2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(suites)), list(suites), rotation=20, ha="right", fontsize=9)


def scaling(documents: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw how many times faster the ops become with more threads, over all rows that all results share."""
    curves = dict(speedups(documents))
    if not curves:
        return None
    figure, axes = _axes("gradops with more threads", documents[-1], threads=False)
    for colour, (op, curve) in zip(_COLOURS, curves.items(), strict=False):
        axes.plot(*zip(*curve, strict=True), marker="o", label=op, color=colour)
    threads = sorted({at for curve in curves.values() for at, _ in curve})
    for (dtype, curve), dashes in zip(roof_speedups(documents).items(), ("--", "-."), strict=False):
        axes.plot(
            *zip(*curve, strict=True), color="black", ls=dashes, lw=1, label=f"multiply-adds in registers, {dtype}"
        )
    axes.plot(threads, [at / threads[0] for at in threads], color="black", ls=":", label="ideal")
    axes.set_xticks(threads)
    axes.set(xlabel="threads", ylabel=f"times as fast as with {threads[0]}")
    axes.legend(fontsize=8)
    return figure


def roof_speedups(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Return each dtype with the (threads, speedup) points of its roof, which CPUs that share a core or a clock do not multiply."""
    roofs: dict[str, dict[int, float]] = defaultdict(dict)
    for document in documents:
        for dtype, roof in document["roofs"].items():
            at = document["config"]["threads"]
            roofs[dtype][at] = max(roof["gflops"], roofs[dtype].get(at, 0.0))
    return {
        dtype: [(threads, found[threads] / found[min(found)]) for threads in sorted(found)]
        for dtype, found in roofs.items()
    }


def speedups(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """Yield each op with its (threads, speedup) points, where there are at least two numbers of threads."""
    runs: dict[int, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for document in documents:
        for row in document["rows"]:
            if "gradops" in row["times"]:
                runs[row["threads"]][tuple(row[name] for name in _SAME_IN_SCALING)] = row["times"]["gradops"]["median"]
    shared = sorted(set.intersection(*(set(run) for run in runs.values()))) if len(runs) > 1 else []
    for op in dict.fromkeys(key[2] for key in shared):
        totals = {threads: sum(runs[threads][key] for key in shared if key[2] == op) for threads in sorted(runs)}
        yield op, [(threads, totals[min(totals)] / total) for threads, total in totals.items()]
