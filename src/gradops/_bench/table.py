"""The table on the terminal, which grows row by row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .runner import Row

_PIPE_WIDTH = 220


def console() -> Console:
    """Return standard output; wide where it is no terminal, so that nothing is cut off."""
    out = Console(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


def show(rows: Iterable[Row], total: int, peers: Sequence[str], out: Console, commands: bool = False) -> list[Row]:
    """Print rows while they come, then each network's total; return them.

    Parameters
    ----------
    rows : iterable of Row
    total : int
        How many there will be.
    peers : sequence of str
        The columns beside gradops' own.
    out : Console
    commands : bool, optional
        Whether to print below the table how each row is repeated.
    """
    done: list[Row] = []
    progress = Progress(TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=out)
    task = progress.add_task("rows", total=total)
    with Live(progress, console=out, refresh_per_second=4, transient=not out.is_terminal) as live:
        for row in rows:
            done.append(row)
            progress.advance(task)
            live.update(Group(table(done, peers), progress) if out.is_terminal else progress)
        live.update(table(done, peers) if out.is_terminal else "")
    if not out.is_terminal:
        out.print(table(done, peers))
    for line in (*_notes(done), *totals(done, peers)):
        out.print(line, soft_wrap=True)
    if commands:
        for row in done:
            out.print(command(row, peers), soft_wrap=True)
    return done


def table(rows: Sequence[Row], peers: Sequence[str]) -> Table:
    """Lay out rows. A peer's column holds its time over gradops': above 1, gradops is faster."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("layer", no_wrap=True)
    made.add_column("op", no_wrap=True)
    for heading in ("layout", "dtype"):
        made.add_column(heading)
    for heading in ("ms", "spread", "GFLOP/s", "GB/s", "roof", *peers, *(["fastest"] if peers else []), "error"):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*cells(row, peers))
    return made


def cells(row: Row, peers: Sequence[str]) -> list[str]:
    """Return the texts of a row."""
    timing = row.times.get("gradops")
    ratios = [_ratio(row, peer) for peer in peers]
    own = [
        milliseconds(timing.median) if timing else "wrong",
        f"±{timing.spread:.0%}" if timing else "",
        f"{row.gflops:.1f}" if timing else "",
        f"{row.gbytes:.1f}" if timing else "",
        f"{row.share:.0%}" if timing else "",
    ]
    fastest = [f"{row.fastest:.2f}" if not math.isnan(row.fastest) else "-"] if peers else []
    label = row.case.layer.name or str(row.case.layer)
    place = f"{row.case.suite}:{label}" if row.case.suite and not label.startswith(row.case.suite) else label
    return [place, short(row.case.op), row.case.layout, row.case.dtype, *own, *ratios, *fastest, f"{row.error:.1e}"]


def milliseconds(value: float) -> str:
    """Write a time with at least three digits."""
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def _ratio(row: Row, peer: str) -> str:
    if peer in row.ratios:
        return f"{row.ratios[peer]:.2f}"
    return "differs" if row.notes.get(peer, "").startswith("computes something else") else "-"


def short(op: str) -> str:
    """Return which of the three ops of a layer it is: forward, input or filter."""
    return {"input": "input", "filter": "filter", "grad": "input"}.get(op.rpartition("_")[2], "forward")


def _notes(rows: Sequence[Row]) -> list[str]:
    """Each reason once, with how many rows it kept somebody from."""
    reasons: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        for item in row.notes.items():
            reasons[item] += 1
    return [f"{name}: {reason} ({count} of {len(rows)} rows)" for (name, reason), count in reasons.items()]


def totals(rows: Sequence[Row], peers: Sequence[str]) -> list[str]:
    """Sum the milliseconds of each network, every layer as often as it occurs; a peer's where it ran all of them."""
    networks: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.case.suite:
            networks[row.case.suite, short(row.case.op), row.case.layout, row.case.dtype].append(row)
    lines = []
    for network, members in networks.items():
        ran_all = [name for name in ("gradops", *peers) if all(name in row.times for row in members)]
        sums = [f"{name} {sum(row.case.count * row.times[name].median for row in members):.2f} ms" for name in ran_all]
        lines.append(f"total of {' '.join(network)}: {', '.join(sums) or 'not all rows ran'}")
    return lines


def command(row: Row, peers: Sequence[str]) -> str:
    """Return the command that repeats a row."""
    case = row.case
    options = f"--op {short(case.op)} --layout {case.layout} --dtype {case.dtype} --threads {case.threads}"
    libraries = ",".join(dict.fromkeys(peer.removesuffix("_cl") for peer in peers))
    versus = f" --vs {libraries}" if peers else ""
    return f"gradops bench '{case.layer}' {options} --isa {case.isa} --budget 5{versus}"
