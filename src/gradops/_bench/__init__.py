"""Measuring gradops: ``gradops bench`` on the command line, ``gradops.bench()`` from Python.

==============  ====================================================================
`problems`      layers as strings
`suites`        the layers of networks
`roof`          what the machine permits
`peers`         other libraries
`runner`        what is run, checked and timed
`table`         the live table; needs rich
`text`          how numbers are written
`report`        results as JSON, and what changed between two of them
`summary`       results as Markdown
`plot`          pictures of results; needs matplotlib
`selftest`      every op, storage type and level against the references
`cli`           the command line
==============  ====================================================================

Nothing of it is imported by ``import gradops``.
"""


def bench(*what: str, budget: float) -> None:
    """`gradops.bench`."""
    from .cli import BadUsage, parse_and_run

    try:
        parse_and_run(["bench", f"--budget={budget}", "--", *what])
    except BadUsage as error:
        raise ValueError(str(error)) from None
