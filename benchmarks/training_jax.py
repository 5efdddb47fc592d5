"""Training steps of networks in JAX, with and without gradops.jax.enable(), turn by turn in one process: a Markdown table.

    python benchmarks/training_jax.py [--quick] [--rounds 5] [--batch 8] [--size 224] [network ...]

A step is the loss, all gradients and the update of all parameters, compiled by ``jit``. The networks are written with jax.numpy and
jax.lax alone: MobileNetV2 (depthwise 3x3), ConvNeXt-T (depthwise 7x7) and ResNet-50, channels last.
"""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import gradops.jax


class Parameters:
    """Parameters in the order in which the network asks for them: drawn on the first pass, then read."""

    def __init__(self, values=None, seed=0):
        self.values, self.drawn = values, []
        self.random = np.random.default_rng(seed)
        self.used = 0

    def __call__(self, shape, scale=None):
        if self.values is not None:
            self.used += 1
            return self.values[self.used - 1]
        value = np.ones(shape) if scale is None else self.random.standard_normal(shape) * scale
        self.drawn.append(jnp.asarray(value, jnp.float32))
        return self.drawn[-1]


def conv(p, x, channels, size=3, stride=1, groups=1):
    w = p((size, size, x.shape[-1] // groups, channels), (2 / (size * size * x.shape[-1] / groups)) ** 0.5)
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def normalised(p, x, axes):
    """Normalisation as Flax computes it, in one pass over x."""
    mean, squares = x.mean(axes, keepdims=True), (x * x).mean(axes, keepdims=True)
    variance = jnp.maximum(squares - mean * mean, 0)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p((x.shape[-1],)) + p((x.shape[-1],), 0.0)


batch_norm = partial(normalised, axes=(0, 1, 2))
layer_norm = partial(normalised, axes=(3,))


def classified(p, x, classes):
    return x.mean((1, 2)) @ p((x.shape[-1], classes), 0.01) + p((classes,), 0.0)


def mobilenet_v2(p, x, scale=1.0, classes=1000):
    def wide(channels):
        return max(8, int(channels * scale) // 8 * 8)

    x = jax.nn.relu6(batch_norm(p, conv(p, x, wide(32), 3, 2)))
    for expansion, channels, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(blocks if scale == 1 else 1):
            stride, hidden, y = first if i == 0 else 1, x.shape[-1] * expansion, x
            if expansion > 1:
                y = jax.nn.relu6(batch_norm(p, conv(p, y, hidden, 1)))
            y = jax.nn.relu6(batch_norm(p, conv(p, y, hidden, 3, stride, groups=hidden)))
            y = batch_norm(p, conv(p, y, wide(channels), 1))
            x = x + y if x.shape == y.shape else y
    return classified(p, jax.nn.relu6(batch_norm(p, conv(p, x, wide(1280), 1))), classes)


def convnext(p, x, scale=1.0, classes=1000):
    for channels, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        channels = max(8, int(channels * scale) // 8 * 8)
        stride = 4 if x.shape[-1] == 3 else 2
        x = conv(p, x if stride == 4 else layer_norm(p, x), channels, stride, stride)
        for _ in range(blocks if scale == 1 else 1):
            y = layer_norm(p, conv(p, x, channels, 7, 1, groups=channels))
            y = jax.nn.gelu(y @ p((channels, 4 * channels), (1 / channels) ** 0.5))
            x = x + y @ p((4 * channels, channels), 0.5 * channels**-0.5)
    return classified(p, x, classes)


def resnet(p, x, scale=1.0, classes=1000):
    x = jax.nn.relu(batch_norm(p, conv(p, x, max(8, int(64 * scale)), 7, 2)))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for channels, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        channels = max(8, int(channels * scale) // 8 * 8)
        for i in range(blocks if scale == 1 else 1):
            stride = first if i == 0 else 1
            y = jax.nn.relu(batch_norm(p, conv(p, x, channels, 1)))
            y = jax.nn.relu(batch_norm(p, conv(p, y, channels, 3, stride)))
            y = batch_norm(p, conv(p, y, 4 * channels, 1))
            short = x if x.shape == y.shape else batch_norm(p, conv(p, x, 4 * channels, 1, stride))
            x = jax.nn.relu(short + y)
    return classified(p, x, classes)


NETWORKS = {"MobileNetV2": mobilenet_v2, "ConvNeXt-T": convnext, "ResNet-50": resnet}


def initial(network, images):
    """The parameters that a network asks for, shown an image."""
    p = Parameters()
    network(p, images)
    return p.drawn


def step(network, values, images, labels, rate=0.01):
    """The loss, and the parameters after one step of gradient descent."""

    def loss(values):
        logits = jax.nn.log_softmax(network(Parameters(values), images))
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    value, gradients = jax.value_and_grad(loss)(values)
    return value, [w - rate * dw for w, dw in zip(values, gradients, strict=True)]


def compiled(network, values, images, labels):
    """The step with JAX's own convolutions and with those of gradops."""
    native = jax.jit(partial(step, network)).lower(values, images, labels).compile()
    with gradops.jax.enabled():
        return native, jax.jit(partial(step, network)).lower(values, images, labels).compile()


def milliseconds(run, *arguments):
    start = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    return 1e3 * (time.perf_counter() - start)


def data(batch, size, classes=1000):
    random = np.random.default_rng(1)
    images = jnp.asarray(random.standard_normal((batch, size, size, 3)), jnp.float32)
    return images, jnp.asarray(random.integers(0, classes, batch))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all if none is named")
    parser.add_argument(
        "--quick", action="store_true", help="narrow networks on small images: whether it works, not how fast"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each of both takes its turn")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="rows and columns of an image")
    options = parser.parse_args()
    unknown = set(options.networks) - set(NETWORKS)
    if unknown:
        parser.error(f"networks must be of {', '.join(NETWORKS)}, got {', '.join(sorted(unknown))}")
    if options.quick:
        options.rounds, options.batch, options.size = 1, 2, 32
    print(
        f"batch {options.batch}, {options.size}x{options.size}, float32, the fastest of {options.rounds} steps of each\n"
    )
    print("| network | JAX, ms a step | with gradops, ms | times |\n| --- | ---: | ---: | ---: |")
    for name in options.networks or NETWORKS:
        network = partial(NETWORKS[name], scale=0.1 if options.quick else 1.0)
        images, labels = data(options.batch, options.size)
        values = initial(network, images[:1])
        both = compiled(network, values, images, labels)
        losses = [float(run(values, images, labels)[0]) for run in both]
        if not np.isclose(*losses, rtol=1e-3):
            raise RuntimeError(f"losses of {name} must agree, got {losses[0]} from JAX and {losses[1]} with gradops")
        turns = [[milliseconds(run, values, images, labels) for run in both] for _ in range(options.rounds)]
        native, ours = (min(times) for times in zip(*turns, strict=True))
        print(f"| {name} | {native:.0f} | {ours:.0f} | {native / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
