from typing import Any

import numpy as np

threads: object

def set_threads(n: int) -> None: ...
def get_threads() -> int: ...
def run(
    kernel: object,
    problem: bytes,
    storage: int,
    inputs: list[np.ndarray[Any, np.dtype[Any]]],
    out: np.ndarray[Any, np.dtype[Any]],
    num_threads: int,
) -> bool: ...
def make_recipe(steps: list[tuple[object, bytes]], storage: int, size: int) -> object: ...
def follow_recipe(recipe: object, addresses: tuple[int, ...], out: int, num_threads: int = 0) -> None: ...
