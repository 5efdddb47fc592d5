#!/usr/bin/env python3
"""Time the gradient ops of gradops beside PyTorch, TensorFlow and JAX on layers of real networks (float32).

Every contender's result is checked against gradops' own before anything is timed. The contenders take turns (A B C A B C ...)
with a pause between, so that the spinning threads of one library do not slow the next; a number is the median over all turns.
"""

import argparse
import math
import os
import statistics
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

import gradops


@dataclass(frozen=True)
class Layer:
    kind: str
    shape: tuple[int, int, int, int]
    out: int = 0
    kernel: int = 0
    stride: int = 1
    dilation: int = 1
    overlapping: bool = False

    def __str__(self):
        parts = [self.kind, ",".join(map(str, self.shape)) + (f"->{self.out} k{self.kernel}" if self.kernel else "")]
        parts += [f"s{self.stride}"] * (self.stride > 1) + [f"d{self.dilation}"] * (self.dilation > 1)
        return " ".join(parts + ["overlapping"] * self.overlapping)

    @property
    def depthwise(self):
        return self.kind == "depthwise"

    @property
    def filter_shape(self):
        k, c = self.kernel, self.shape[3]
        return (k, k, c, self.out // c) if self.depthwise else (k, k, c, self.out)

    @property
    def out_shape(self):
        n, h, w, _ = self.shape
        return (n, -(-h // self.stride), -(-w // self.stride), self.out)

    @property
    def margin(self):  # the symmetric padding with which the output has the size that "SAME" gives
        return self.dilation * (self.kernel - 1) // 2

    @property
    def flops(self):
        return 2 * math.prod(self.out_shape) * self.kernel**2 * (1 if self.depthwise else self.shape[3])


LAYERS = (
    Layer("dense", (8, 56, 56, 64), 64, 3),
    Layer("dense", (8, 14, 14, 256), 256, 3),
    Layer("dense", (8, 7, 7, 512), 512, 3),
    Layer("dense", (8, 56, 56, 128), 128, 3, stride=2),
    Layer("dense", (8, 56, 56, 64), 256, 1),
    Layer("stem", (8, 224, 224, 3), 64, 7, stride=2),
    Layer("depthwise", (8, 112, 112, 32), 32, 3),
    Layer("depthwise", (8, 56, 56, 96), 96, 7),
    Layer("depthwise", (8, 28, 28, 240), 240, 5),
    Layer("depthwise", (8, 28, 28, 64), 128, 3),
    Layer("depthwise", (4, 33, 33, 256), 256, 3, dilation=2),
    Layer("pool", (8, 112, 112, 64)),
    Layer("pool", (8, 112, 112, 64), overlapping=True),
)
RATIO = (1.0, 1.73, 1.73, 1.0)
LAYOUTS = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 3, 1, 2)}


@dataclass
class Case:
    """One gradient of one layer; x and dy are NHWC, the filter is [rows, cols, in, out or multiplier]."""

    layer: Layer
    gradient: str

    def __post_init__(self):
        draw, layer = np.random.default_rng(0).standard_normal, self.layer
        self.x = draw(layer.shape, np.float32)
        if layer.kind == "pool":
            options = dict(overlapping=layer.overlapping, deterministic=True, seed=1)
            y, *self.sequences = gradops.fractional_avg_pool(self.x, RATIO, **options)
            self.dy = draw(y.shape, np.float32)
        else:
            self.w, self.dy = draw(layer.filter_shape, np.float32), draw(layer.out_shape, np.float32)


@dataclass
class Contender:
    name: str
    call: object
    as_numpy: object
    padding: str = "SAME"


def gradops_call(case, data_format="NHWC", padding="SAME"):
    layer, order = case.layer, LAYOUTS[data_format]
    x, dy = (np.ascontiguousarray(array.transpose(order)) for array in (case.x, case.dy))
    if layer.kind == "pool":
        return lambda: gradops.fractional_avg_pool_grad(
            x.shape, dy, *case.sequences, layer.overlapping, data_format=data_format
        )
    spatial = [(layer.margin, layer.margin)] * 2
    pairs = [(0, 0), *spatial, (0, 0)] if data_format == "NHWC" else [(0, 0), (0, 0), *spatial]
    op = getattr(gradops, f"{'depthwise_conv2d_native' if layer.depthwise else 'conv2d'}_backprop_{case.gradient}")
    first, second = (x.shape, case.w) if case.gradient == "input" else (x, layer.filter_shape)
    options = {"data_format": data_format, "dilations": layer.dilation}
    return lambda: op(first, second, dy, layer.stride, padding if padding == "SAME" else pairs, **options)


def gradops_contenders(case):
    for data_format, order in LAYOUTS.items():
        back = order if case.gradient == "filter" else np.argsort(order)
        restore = (lambda y: y) if case.gradient == "filter" else (lambda y, back=back: y.transpose(back))
        yield Contender(f"gradops {data_format}", gradops_call(case, data_format), restore)


def torch_contenders(case, threads):
    import torch

    torch.set_num_threads(threads)
    layer = case.layer
    if layer.kind == "pool":
        return
    x, dy = (torch.from_numpy(array).permute(0, 3, 1, 2) for array in (case.x, case.dy))
    w = (
        torch.from_numpy(case.w).permute(2, 3, 0, 1)
        if layer.depthwise
        else torch.from_numpy(case.w).permute(3, 2, 0, 1)
    )
    w = w.reshape(-1, 1, layer.kernel, layer.kernel) if layer.depthwise else w
    groups = layer.shape[3] if layer.depthwise else 1
    wanted = case.gradient == "filter"
    mask = [not wanted, wanted, False]

    def as_numpy(result):
        if not wanted:
            return result.permute(0, 2, 3, 1).numpy()
        taps = result.permute(2, 3, 0, 1) if layer.depthwise else result.permute(2, 3, 1, 0)
        return taps.reshape(layer.filter_shape).numpy()

    for name, memory in ("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last):
        tensors = [tensor.contiguous(memory_format=memory) for tensor in (dy, x, w)]
        attributes = (None, [layer.stride] * 2, [layer.margin] * 2, [layer.dilation] * 2, False, [0, 0], groups, mask)
        call = partial(torch.ops.aten.convolution_backward, *tensors, *attributes)
        yield Contender(f"torch {name}", lambda call=call: call()[int(wanted)], as_numpy, "symmetric")


def tf_contenders(case, threads):
    import tensorflow as tf

    if tf.config.threading.get_intra_op_parallelism_threads() != threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    layer, raw = case.layer, tf.raw_ops
    x, dy = tf.constant(case.x), tf.constant(case.dy)
    if layer.kind == "pool":
        size, rows, cols = (tf.constant(array, tf.int64) for array in (layer.shape, *case.sequences))
        arguments = dict(
            orig_input_tensor_shape=size,
            row_pooling_sequence=rows,
            col_pooling_sequence=cols,
            overlapping=layer.overlapping,
        )
        yield Contender("TF", lambda: raw.FractionalAvgPoolGrad(out_backprop=dy, **arguments), lambda y: y.numpy())
        return
    attributes = dict(
        strides=[1, layer.stride, layer.stride, 1], dilations=[1, layer.dilation, layer.dilation, 1], padding="SAME"
    )
    op = getattr(raw, f"{'DepthwiseConv2dNative' if layer.depthwise else 'Conv2D'}Backprop{case.gradient.title()}")
    if case.gradient == "input":
        attributes |= dict(input_sizes=tf.constant(layer.shape), filter=tf.constant(case.w))
    else:
        attributes |= dict(input=x, filter_sizes=tf.constant(layer.filter_shape))
    yield Contender("TF", lambda: op(out_backprop=dy, **attributes), lambda y: y.numpy())


def jax_contenders(case, threads):
    import jax

    layer = case.layer
    if layer.kind == "pool":
        return
    groups = layer.shape[3] if layer.depthwise else 1
    w = case.w.reshape(layer.kernel, layer.kernel, -1, layer.out)

    def forward(x, w):
        return jax.lax.conv_general_dilated(
            x, w, [layer.stride] * 2, "SAME", rhs_dilation=[layer.dilation] * 2, feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    which = int(case.gradient == "filter")
    gradient = jax.jit(lambda x, w, dy: jax.vjp(forward, x, w)[1](dy)[which])
    arrays = [jax.device_put(array) for array in (case.x, w, case.dy)]
    shape = layer.filter_shape if which else layer.shape
    yield Contender("JAX", lambda: gradient(*arrays).block_until_ready(), lambda y: np.asarray(y).reshape(shape))


PEERS = {
    "torch": (torch_contenders, ["torch NCHW", "torch NHWC"]),
    "tf": (tf_contenders, ["TF"]),
    "jax": (jax_contenders, ["JAX"]),
}


def agrees(contender, case, expected):
    if contender.padding not in expected:
        expected[contender.padding] = gradops_call(case, padding=contender.padding)()
    want, got = expected[contender.padding], contender.as_numpy(contender.call())
    return got.shape == want.shape and np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def timed(call, seconds):
    """Milliseconds of single calls, as many as fit into `seconds`, after one call that is not counted."""
    call()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def measure(contenders, options):
    times = {contender.name: [] for contender in contenders}
    turn = options.budget / (options.repeat * max(1, len(contenders)))
    for _ in range(options.repeat):
        for contender in contenders:
            time.sleep(options.pause)
            times[contender.name] += timed(contender.call, max(0.0, turn - options.pause))
    typical = min if options.best else statistics.median
    return {name: typical(values) for name, values in times.items()}


def row(case, names, times, wrong):
    cells = [f"{times[name]:14.3f}" if name in times else f"{'wrong' if name in wrong else '-':>14}" for name in names]
    fastest = min((ms for name, ms in times.items() if not name.startswith("gradops")), default=float("nan"))
    ratios = [f"{times.get(f'gradops {layout}', float('nan')) / fastest:8.2f}" for layout in LAYOUTS]
    rate = case.layer.flops / times.get("gradops NHWC", float("nan")) / 1e6
    return f"{case.layer!s:36}{case.gradient:7}" + "".join(cells) + f"{rate:9.0f}" + "".join(ratios)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help='layers whose "name gradient" holds this, e.g. "depthwise" or "k7 filter"',
    )
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of every library (default: all CPUs)"
    )
    parser.add_argument(
        "--peers", default="torch,tf,jax", help='some of torch,tf,jax, or "" for gradops alone (default: all)'
    )
    parser.add_argument("--repeat", type=int, default=5, help="turns of every contender (default: 5)")
    parser.add_argument(
        "--budget", type=float, default=3.0, help="seconds per row of the table, checks not counted (default: 3)"
    )
    parser.add_argument("--pause", type=float, default=0.03, help="seconds of rest before every turn (default: 0.03)")
    parser.add_argument(
        "--best", action="store_true", help="the fastest call instead of the median: for a machine that is busy"
    )
    options = parser.parse_args()
    options.peers = [peer for peer in options.peers.split(",") if peer]
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"--peers: unknown {', '.join(sorted(unknown))}; known are {', '.join(PEERS)}")
    return options


def main():
    options = parse_arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    gradops.set_num_threads(options.threads)
    names = [f"gradops {layout}" for layout in LAYOUTS] + [name for peer in options.peers for name in PEERS[peer][1]]
    print(f"float32, {options.threads} threads, milliseconds; the last two columns: gradops / fastest peer")
    print(
        f"{'layer':36}{'of':7}"
        + "".join(f"{name:>14}" for name in names)
        + f"{'GFLOP/s':>9}"
        + "".join(f"{x:>8}" for x in LAYOUTS)
    )
    cells = [
        (layer, gradient) for layer in LAYERS for gradient in ("input", "filter")[: 1 if layer.kind == "pool" else 2]
    ]
    for layer, gradient in cells:
        if options.only not in f"{layer} {gradient}":
            continue
        case, expected = Case(layer, gradient), {}
        contenders = list(gradops_contenders(case))
        contenders += [contender for peer in options.peers for contender in PEERS[peer][0](case, options.threads)]
        wrong = {contender.name for contender in contenders if not agrees(contender, case, expected)}
        times = measure([c for c in contenders if c.name not in wrong], options)
        print(row(case, names, times, wrong), flush=True)


if __name__ == "__main__":
    main()
