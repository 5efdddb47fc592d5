"""`conv_general_dilated` in the place of ``jax.lax.conv_general_dilated``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax import lax

from ._convolution import native
from ._functions import conv_general_dilated


def enable() -> None:
    """Put `conv_general_dilated` in the place of ``jax.lax.conv_general_dilated``, where layers of Flax and Keras look it up.

    Whatever JAX has compiled is forgotten, so that functions under ``jit`` are traced again. JAX's own ``conv_transpose``, ``conv`` and
    ``conv_with_general_padding``, and names imported from ``jax.lax`` before, stay as they are.

    Examples
    --------
    >>> import jax, gradops.jax
    >>> gradops.jax.enable()
    >>> jax.lax.conv_general_dilated is gradops.jax.conv_general_dilated
    True
    >>> gradops.jax.disable()
    """
    _install(native, conv_general_dilated)


def disable() -> None:
    """Undo `enable`: ``jax.lax`` is as it was, and what JAX has compiled is forgotten.

    Examples
    --------
    >>> import gradops.jax
    >>> gradops.jax.disable()
    """
    _install(conv_general_dilated, native)


def _install(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    if lax.conv_general_dilated is after:
        return
    if lax.conv_general_dilated is not before:
        raise RuntimeError(
            f"jax.lax.conv_general_dilated must be JAX's own or that of gradops, got {lax.conv_general_dilated!r}: "
            "whoever has replaced it must restore it first"
        )
    lax.conv_general_dilated = after
    jax.clear_caches()


@contextmanager
def enabled() -> Iterator[None]:
    """`enable` inside the block; afterwards as it was before.

    Examples
    --------
    >>> import jax, gradops.jax
    >>> with gradops.jax.enabled():
    ...     jax.lax.conv_general_dilated.__module__.startswith("gradops.jax")
    True
    >>> jax.lax.conv_general_dilated.__module__.startswith("gradops.jax")
    False
    """
    before = lax.conv_general_dilated
    enable()
    try:
        yield
    finally:
        (enable if before is conv_general_dilated else disable)()
