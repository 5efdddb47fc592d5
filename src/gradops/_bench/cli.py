"""The command line: ``gradops bench``, ``gradops bench compare``, ``gradops bench plot``, ``gradops info`` and ``gradops selftest``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import gradops
from gradops import _dispatch, _threads

QUICK = (
    'mb8ic64ih56oc64kh3ph1n"resnet50:3x3"',
    'mb8ic64ih56oc256kh1n"resnet50:1x1"',
    'mb8ic128ih56oc128oh28kh3sh2n"resnet50:strided"',
    'mb8ic3ih224oc64oh112kh7sh2n"resnet50:stem"',
    'g32mb8ic32ih112oc32kh3ph1n"mobilenet:3x3"',
    'g240mb8ic240ih28oc240kh5ph2n"efficientnet:5x5"',
    'g96mb8ic96ih56oc96kh7ph3n"convnext:7x7"',
    'mb8ic64ih112rh1.73n"fractional"',
)
"""What is run when nothing is asked for."""

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
LAYOUTS = ("NHWC", "NCHW")
OPS = ("forward", "input", "filter")
_EXTRA = "pip install 'gradops[bench]'"


class BadUsage(ValueError):
    """What was asked for cannot be done; the message is one line."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process if left out.

    Returns
    -------
    int
        The exit status: 0, or 1 where a self-test failed, or 2 where what was asked for cannot be done.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return parse_and_run(given)
    except BadUsage as error:
        print(f"gradops: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parse_and_run(given: Sequence[str]) -> int:
    """Run a command and return its exit status, or raise `BadUsage`."""
    if given[:2] == ["bench", "compare"]:
        return _compare(_compare_parser().parse_args(given[2:]))
    if given[:2] == ["bench", "summary"]:
        return _summary(_summary_parser().parse_args(given[2:]))
    if given[:2] == ["bench", "plot"]:
        return _plot(_plot_parser().parse_args(given[2:]))
    options = _parser().parse_args(given)
    status: int = options.command(options)
    return status


def _parser() -> _Parser:
    parser = _Parser(prog="gradops", description="Measure and check gradops on this machine.")
    parser.add_argument("--version", action="version", version=gradops.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_bench(commands.add_parser("bench", help="time gradops, beside other libraries if asked", description=_BENCH))
    info = commands.add_parser("info", help="show versions, CPU, levels and threads")
    info.set_defaults(command=_info)
    selftest = commands.add_parser("selftest", help="check every op, dtype and level against the references")
    selftest.set_defaults(command=_selftest)
    return parser


_BENCH = """Time gradops on suites of layers or on problems; without any, on a quick selection.
`gradops bench summary A.json` prints results as Markdown, `gradops bench compare A.json B.json` says what changed between two,
`gradops bench plot A.json -o DIR` draws them."""


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", nargs="*", metavar="SUITE|PROBLEM", help="such as resnet50, all, or 'mb8ic64ih56oc64kh3ph1'")
    add("--op", type=_list_of("op", OPS), default=["input", "filter"], help="some of forward,input,filter or all")
    add("--layout", type=_list_of("layout", LAYOUTS), default=["NHWC"], help="some of NHWC,NCHW or all")
    add("--dtype", type=_list_of("dtype", DTYPES), default=["float32"], help=f"some of {','.join(DTYPES)} or all")
    add("--threads", type=_positive(int), help="threads of every library (default: all CPUs)")
    add("--isa", choices=_dispatch.LEVELS, help="the level that gradops runs at (default: the best)")
    add("--batch", type=_positive(int), help="images, in place of what the problems say")
    add("--filter", metavar="TEXT", default="", help="only rows whose name, problem or op holds this")
    add("--budget", type=_positive(float), metavar="SECONDS", help="for all rows together (default: 30)", default=30.0)
    add(
        "--vs",
        type=lambda text: text.split(","),
        default=[],
        metavar="PEERS",
        help="some of torch,onednn,tf,jax or all",
    )
    add("--json", type=Path, metavar="FILE", help="write the results there")
    add("-v", "--verbose", action="store_true", help="print how each row is repeated")
    parser.set_defaults(command=_bench)


def _compare_parser() -> _Parser:
    parser = _Parser(prog="gradops bench compare", description="Say what changed between two results.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    return parser


def _summary_parser() -> _Parser:
    parser = _Parser(prog="gradops bench summary", description="Print results as Markdown, against the fastest peer.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", action="store_true", help="every row, not only those where a peer is faster")
    return parser


def _plot_parser() -> _Parser:
    parser = _Parser(prog="gradops bench plot", description="Draw results: roofline, networks, scaling over threads.")
    parser.add_argument("results", type=Path, nargs="+", help="several, of different --threads, for the scaling")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="(default: this one)")
    return parser


def _list_of(name: str, known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        values = list(known) if text == "all" else text.split(",")
        for value in values:
            if value not in known:
                raise argparse.ArgumentTypeError(f"unknown {name} {value!r}; known are {', '.join(known)}")
        return values

    return read


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
        return value

    return read


def _need(module: str, purpose: str, how: str = _EXTRA) -> None:
    if find_spec(module) is None:
        raise BadUsage(f"{purpose} needs {module}; try: {how}")


def _threads_and_level(options: argparse.Namespace) -> tuple[int, str]:
    try:
        threads = _threads.checked(options.threads or _threads.get_num_threads())
        level = options.isa or _dispatch.selected()
    except ValueError as error:
        raise BadUsage(str(error)) from None
    if level not in _dispatch.available():
        raise BadUsage(f"--isa: this CPU does not run {level}; it runs {', '.join(_dispatch.available())}")
    return threads, level


def _bench(options: argparse.Namespace) -> int:
    _need("rich", "the table")
    if "bfloat16" in options.dtype:
        _need("ml_dtypes", "bfloat16", "pip install ml_dtypes")
    from . import peers, report, roof, runner, table

    threads, level = _threads_and_level(options)
    cases = _cases(options, threads, level)
    try:
        if options.json:
            report.check_writable(options.json)
        others = peers.load(options.vs, threads)
    except (peers.MissingPeer, report.BadReport) as error:
        raise BadUsage(str(error)) from None
    with _dispatch.forced(level):
        roofs = {dtype: roof.measure(dtype, threads) for dtype in dict.fromkeys(case.dtype for case in cases)}
        out = table.console()
        same = (next(iter(values)) for values in _distinct(cases) if len(values) == 1)
        out.print(", ".join((gradops.show_config("dicts")["cpu"]["name"], f"{threads} threads", level, *same)))
        for dtype, found in roofs.items():
            out.print(f"roof {dtype}: {found}")
        rows = runner.run(cases, others, roofs.__getitem__, options.budget)
        done = table.show(rows, cases, [peer.name for peer in others], out, options.verbose)
        if options.json:
            roofs = {dtype: found.better(roof.measure(dtype, threads)) for dtype, found in roofs.items()}
            for dtype, found in roofs.items():
                out.print(f"roof {dtype}, the better of two measurements: {found}")
    if options.json:
        done = [replace(row, roof=roofs[row.case.dtype]) for row in done]
        config = {"threads": threads, "isa": level, "budget": options.budget, "vs": options.vs}
        versions = {peer.name: peer.version() for peer in others if peer.name != "torch_cl"}
        try:
            report.write(options.json, report.document(done, roofs, config, versions))
        except report.BadReport as error:
            raise BadUsage(str(error)) from None
    return 0


def _distinct(cases: Sequence[Any]) -> list[set[str]]:
    """The layouts and the dtypes of the cases."""
    return [{case.layout for case in cases}, {case.dtype for case in cases}]


def _cases(options: argparse.Namespace, threads: int, level: str) -> list[Any]:
    """The rows that were asked for: layers, times ops, layouts and dtypes, where an op has them."""
    from gradops.testing import OPS as TABLE

    from .runner import Case
    from .text import short

    cases = [
        Case(suite=suite, count=count, layer=layer, op=op, layout=layout, dtype=dtype, threads=threads, isa=level)
        for suite, count, layer in _layers(options)
        for op in layer.ops
        if short(op) in options.op
        for layout in options.layout
        for dtype in options.dtype
        if dtype in TABLE[op].dtypes and options.filter in f"{suite} {layer} {op}"
    ]
    if not cases:
        raise BadUsage("nothing to run: no layer, op, dtype and --filter fit together")
    return cases


def _layers(options: argparse.Namespace) -> list[tuple[str, int, Any]]:
    from .problems import parse
    from .suites import load, suites

    layers = []
    for what in _expanded(options.what) or QUICK:
        try:
            if what in suites():
                layers += [(what, count, layer) for count, layer in load(what)]
            elif what.isidentifier() and not any(map(str.isdigit, what)):
                raise ValueError(f"unknown suite {what!r}; known are all, {', '.join(suites())}")
            else:
                layers.append(("", 1, parse(what)))
            if options.batch:
                layers = [(suite, count, layer.with_batch(options.batch)) for suite, count, layer in layers]
        except ValueError as error:
            raise BadUsage(str(error)) from None
    return layers


def _expanded(what: Sequence[str]) -> list[str]:
    """What was asked for, "all" being every suite."""
    from .suites import suites

    return [name for each in what for name in (suites() if each == "all" else [each])]


def _compare(options: argparse.Namespace) -> int:
    from . import report

    try:
        lines = report.compare(report.read(options.before), report.read(options.after))
    except report.BadReport as error:
        raise BadUsage(str(error)) from None
    print("\n".join(lines))
    return 0


def _summary(options: argparse.Namespace) -> int:
    from . import report, summary

    try:
        lines = summary.markdown(report.read(options.results), options.rows)
    except report.BadReport as error:
        raise BadUsage(str(error)) from None
    print("\n".join(lines))
    return 0


def _plot(options: argparse.Namespace) -> int:
    _need("matplotlib", "drawing")
    from . import plot, report

    try:
        documents = [report.read(path) for path in options.results]
        options.output.mkdir(parents=True, exist_ok=True)
        drawn = plot.pictures(documents, options.output)
    except report.BadReport as error:
        raise BadUsage(str(error)) from None
    except OSError as error:
        raise BadUsage(f"cannot write to {options.output}: {error.strerror}") from None
    for path in drawn:
        print(path)
    return 0


def _info(_: argparse.Namespace) -> int:
    gradops.show_config()
    return 0


def _selftest(_: argparse.Namespace) -> int:
    from .selftest import verdicts

    start, failed = perf_counter(), 0
    for level, cases, failures in verdicts():
        failed += len(failures)
        print(f"{level}: {cases - len(failures)} of {cases} right")
        for failure in failures:
            print(f"  {failure}")
    if find_spec("ml_dtypes") is None:
        print("bfloat16: not checked, as ml_dtypes is not installed")
    print(f"{'failed' if failed else 'passed'} in {perf_counter() - start:.1f} s")
    return 1 if failed else 0
