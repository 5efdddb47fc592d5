"""How a batch of arrays becomes one array: the batch is merged into a dimension, and comes out of it again."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from gradops._values import Shape


def into(array: jax.Array, axis: int, batch: int | None, size: int) -> jax.Array:
    """An array whose dimension `batch`, or copies of it, are merged into its dimension `axis`, outermost."""
    if batch is None:
        array, batch = jnp.broadcast_to(array, (size, *array.shape)), 0
    moved = jnp.moveaxis(array, batch, axis)
    return moved.reshape(*moved.shape[:axis], size * moved.shape[axis + 1], *moved.shape[axis + 2 :])


def out_of(array: jax.Array, axis: int, size: int) -> jax.Array:
    """The inverse: dimension `axis` becomes the batch and what is left of it."""
    return array.reshape(*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])


def scaled(shape: Shape, axis: int, size: int) -> Shape:
    """The shape of what is merged."""
    return (*shape[:axis], shape[axis] * size, *shape[axis + 1 :])
