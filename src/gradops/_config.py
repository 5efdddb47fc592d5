"""What is installed here and what it runs on."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from gradops import _dispatch, _threads
from gradops._version import __version__


@overload
def show_config(mode: Literal["stdout"] = ...) -> None: ...


@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Show versions, the CPU, the instruction set levels and the threads in use.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, optional
        Whether to print or to return it.

    Returns
    -------
    dict or None
        For "dicts", a nested dict of strings, numbers and lists of strings.

    Raises
    ------
    ValueError
        If `mode` is none of these.

    Examples
    --------
    >>> import gradops
    >>> gradops.show_config("dicts")["levels"]["available"][0]
    'generic'
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode must be 'stdout' or 'dicts', got {mode!r}")
    config = _config()
    if mode == "dicts":
        return config
    for section, facts in config.items():
        print(f"{section}:")
        for name, value in facts.items():
            print(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")
    return None


def _config() -> dict[str, Any]:
    return {
        "versions": {"gradops": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "cpu": {"name": _cpu_name(), "architecture": platform.machine(), "usable": _threads.usable_cpus()},
        "levels": {
            "known": list(_dispatch.LEVELS),
            "available": list(_dispatch.available()),
            "selected": _dispatch.selected(),
        },
        "build": {"compiler": _dispatch.runtime.compiler(), "openmp": _dispatch.runtime.openmp()},
        "threads": {"gradops": _threads.get_num_threads(), "openmp": _dispatch.runtime.max_threads()},
    }


def _cpu_name() -> str:
    """As the Linux kernel calls it, or as far as Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")
