"""How often convolutions were taken, and declined by reason."""

from __future__ import annotations

from collections import Counter

taken: Counter[str] = Counter()
declined: Counter[str] = Counter()


def stats() -> dict[str, dict[str, int]]:
    """How often convolutions were taken and declined, by reason, since the import. A function under ``jit`` counts once for each trace.

    Returns
    -------
    dict
        ``"taken"`` by name and ``"declined"`` by reason.

    Examples
    --------
    >>> import gradops.jax
    >>> sorted(gradops.jax.stats())
    ['declined', 'taken']
    """
    return {"taken": dict(taken), "declined": dict(declined)}
