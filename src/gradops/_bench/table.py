"""The table, which grows line by line: columns of fixed widths, chosen so that they fit the terminal and no number is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .runner import Case, Row
from .text import compared, milliseconds, number, percent, ratio, short

_PIPE_WIDTH = 220
_LEAST_LABEL, _FAIR_LABEL = 16, 24
_RATIO_WIDTH = 5


class Column(NamedTuple):
    """A heading, a width, and what a row has there. The narrower a terminal, the fewer columns of high `rank` it shows."""

    heading: str
    width: int
    rank: int
    text: Callable[[Row], str]

    def cell(self, text: str) -> str:
        """Bring a text to the width; words begin at the left, numbers end at the right."""
        if self.heading in ("layer", "op", "layout", "dtype"):
            return shortened(text, self.width).ljust(self.width)
        return text.rjust(self.width)


def console() -> Console:
    """Return standard output; wide where it is no terminal, so that nothing is cut off."""
    out = Console(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


def show(
    rows: Iterable[Row], cases: Sequence[Case], peers: Sequence[str], out: Console, commands: bool = False
) -> list[Row]:
    """Print rows while they come, after each network its totals; return them.

    Parameters
    ----------
    rows : iterable of Row
    cases : sequence of Case
        What they are rows of.
    peers : sequence of str
        The columns beside gradops' own.
    out : Console
    commands : bool, optional
        Whether to print below the table how each row is repeated.
    """
    shown, hidden = fitting(columns(cases, peers), out.width)
    done: list[Row] = []
    progress = Progress(
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=out,
        disable=not out.is_terminal,
        transient=True,
    )
    _print(out, " ".join(column.cell(column.heading) for column in shown))
    with progress:
        for row in progress.track(rows, total=len(cases)):
            if row.case.suite and (not done or done[-1].case.suite != row.case.suite):
                _print(out, row.case.suite)
            done.append(row)
            _print(out, " ".join(column.cell(column.text(row)) for column in shown))
    for line in (*_hidden(hidden), *_notes(done), *totals(done, peers)):
        out.print(line, soft_wrap=not out.is_terminal)
    if commands:
        for row in done:
            _print(out, command(row, peers))
    return done


def _print(out: Console, line: str) -> None:
    out.print(line.rstrip(), soft_wrap=True)


def columns(cases: Sequence[Case], peers: Sequence[str]) -> list[Column]:
    """Return all columns for these cases; layout and dtype only where there are several of them.

    A peer's column holds its time over gradops': above 1, gradops is faster.
    """
    layouts, dtypes = ({getattr(case, name) for case in cases} for name in ("layout", "dtype"))
    label_width = max(len("layer"), *(len(label(case)) for case in cases))
    fastest = [Column("fastest", 7, 0, lambda row: ratio(row.fastest))] if peers else []
    return [
        Column("layer", label_width, 0, lambda row: label(row.case)),
        Column("op", max(len(short(case.op)) for case in cases), 0, lambda row: short(row.case.op)),
        *[Column("layout", 6, 0, lambda row: row.case.layout)] * (len(layouts) > 1),
        *[Column("dtype", 8, 0, lambda row: row.case.dtype)] * (len(dtypes) > 1),
        Column("ms", 8, 0, lambda row: milliseconds(row.milliseconds)),
        Column("spread", 6, 2, lambda row: percent(row.spread, "±")),
        Column("GFLOP/s", 7, 3, lambda row: number(row.gflops)),
        Column("GB/s", 6, 5, lambda row: number(row.gbytes)),
        Column("roof", 5, 0, lambda row: percent(row.share)),
        *(Column(peer, max(len(peer), _RATIO_WIDTH), 1, partial(_compared, peer)) for peer in peers),
        *fastest,
        Column("error", 7, 4, lambda row: f"{row.error:.1e}"),
    ]


def fitting(all_columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """Return the columns that fit, and the headings of the others. Layers' names give way first, down to what still tells them apart."""
    shown = list(all_columns)
    while (over := _width(shown) - width) > 0:
        names, last = shown[0], max(shown, key=lambda column: column.rank)
        least = _FAIR_LABEL if last.rank > 1 else _LEAST_LABEL
        if names.width - over >= least or last.rank == 0:
            shown[0] = names._replace(width=max(names.width - over, _LEAST_LABEL))
            break
        shown = [column for column in shown if column is not last]
    return shown, [column.heading for column in all_columns if column.heading not in [each.heading for each in shown]]


def _width(shown: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in shown) - 1


def shortened(text: str, width: int) -> str:
    """Cut a text in its middle: names of layers differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def label(case: Case) -> str:
    """Name a layer, within its network if it has one."""
    return case.layer.name.removeprefix(f"{case.suite}:") or str(case.layer)


def _compared(peer: str, row: Row) -> str:
    return compared(peer, row.ratios, row.notes)


def _hidden(headings: Sequence[str]) -> Iterator[str]:
    if headings:
        yield f"not shown, for want of width: {', '.join(headings)} (--json has them, too)"


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
