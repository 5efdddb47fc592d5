#!/usr/bin/env python3
"""Train a small convolutional network on scikit-learn's handwritten digits, with gradops and NumPy alone.

gradops computes every convolution, every pooling and all of their gradients; the rest (bias, ReLU, the linear layer,
cross-entropy, Adam) is a few lines of NumPy each. 1437 images train the network, 360 that it never sees test it.
"""

import argparse
import math
import os
import time
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

import gradops

LOSS_SCALE = {"float16": 256.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0}
SECONDS, CALLS = Counter(), Counter()


def timed(op, *args, **kwargs):
    """Call an op and book the time it took under its name."""
    start = time.perf_counter()
    result = op(*args, **kwargs)
    SECONDS[op.__name__] += time.perf_counter() - start
    CALLS[op.__name__] += 1
    return result


# The layers. forward() keeps what backward() needs; backward() takes the gradient of the layer's output, sets the
# gradients of its parameters and returns the gradient of its input. Activations have the dtype of the run; parameters
# are float32 (float64 in a float64 run) and narrowed where a layer uses them, as 16-bit networks are usually trained.


class Parameter:
    def __init__(self, value, decays=False):
        self.value, self.decays = value, decays
        self.gradient = self.mean = self.square = np.zeros_like(value)


class Convolution:
    forward_op = staticmethod(gradops.conv2d)
    input_op = staticmethod(gradops.conv2d_backprop_input)
    filter_op = staticmethod(gradops.conv2d_backprop_filter)
    summed_axes = (0, 1, 2)

    def __init__(self, random, filter_shape, data_format, **attributes):
        fan_in = math.prod(filter_shape[axis] for axis in self.summed_axes)
        self.filter = Parameter(random.normal(0, math.sqrt(2 / fan_in), filter_shape), decays=True)
        self.attributes = {"strides": 1, "padding": "SAME", "data_format": data_format} | attributes
        self.parameters = [self.filter]

    def forward(self, x):
        self.x, self.w = x, self.filter.value.astype(x.dtype)
        return timed(self.forward_op, x, self.w, **self.attributes)

    def backward(self, dy):
        self.filter.gradient = timed(self.filter_op, self.x, self.w.shape, dy, **self.attributes)
        return timed(self.input_op, self.x.shape, self.w, dy, **self.attributes)


class DepthwiseConvolution(Convolution):
    forward_op = staticmethod(gradops.depthwise_conv2d_native)
    input_op = staticmethod(gradops.depthwise_conv2d_native_backprop_input)
    filter_op = staticmethod(gradops.depthwise_conv2d_native_backprop_filter)
    summed_axes = (0, 1)


class BiasReLU:
    def __init__(self, channels, data_format):
        self.shape, self.axes = ((channels, 1, 1), (0, 2, 3)) if data_format == "NCHW" else ((channels,), (0, 1, 2))
        self.bias = Parameter(np.zeros(self.shape))
        self.parameters = [self.bias]

    def forward(self, x):
        y = np.maximum(x + self.bias.value.astype(x.dtype), 0)
        self.alive = y > 0
        return y

    def backward(self, dy):
        dx = dy * self.alive
        self.bias.gradient = dx.sum(self.axes, dtype=self.bias.value.dtype).reshape(self.shape)
        return dx


class FractionalAveragePooling:
    """Pools by a ratio that need not be whole, over cells drawn anew in every call, or the same for the same seed."""

    def __init__(self, random, ratio, data_format):
        self.random, self.seed, self.data_format = random, None, data_format
        self.ratio = (1, 1, ratio, ratio) if data_format == "NCHW" else (1, ratio, ratio, 1)
        self.parameters = []

    def forward(self, x):
        seed = self.seed or int(self.random.integers(1, 2**31))
        options = {"pseudo_random": True, "deterministic": True, "seed": seed, "data_format": self.data_format}
        y, *self.sequences = timed(gradops.fractional_avg_pool, x, self.ratio, **options)
        self.shape = x.shape
        return y

    def backward(self, dy):
        return timed(gradops.fractional_avg_pool_grad, self.shape, dy, *self.sequences, data_format=self.data_format)


class Linear:
    """Flattens its input and computes in the dtype of its parameters."""

    def __init__(self, random, inputs, outputs):
        self.weight = Parameter(random.normal(0, math.sqrt(1 / inputs), (inputs, outputs)), decays=True)
        self.bias = Parameter(np.zeros(outputs))
        self.parameters = [self.weight, self.bias]

    def forward(self, x):
        self.shape, self.dtype = x.shape, x.dtype
        self.x = x.reshape(len(x), -1).astype(self.weight.value.dtype)
        return self.x @ self.weight.value + self.bias.value

    def backward(self, dy):
        self.weight.gradient, self.bias.gradient = self.x.T @ dy, dy.sum(0)
        return (dy @ self.weight.value.T).reshape(self.shape).astype(self.dtype)


class Network:
    """8x8 pixels -> convolution -> dilated separable block -> pooling to 5x5 -> strided separable block, 3x3 -> linear."""

    def __init__(self, random, dtype, data_format):
        self.pooling = FractionalAveragePooling(random, 1.45, data_format)
        self.layers = [
            Convolution(random, (3, 3, 1, 32), data_format),
            BiasReLU(32, data_format),
            DepthwiseConvolution(random, (3, 3, 32, 1), data_format, dilations=2),
            Convolution(random, (1, 1, 32, 64), data_format),
            BiasReLU(64, data_format),
            self.pooling,
            DepthwiseConvolution(random, (3, 3, 64, 1), data_format, strides=2),
            Convolution(random, (1, 1, 64, 96), data_format),
            BiasReLU(96, data_format),
            Linear(random, 3 * 3 * 96, 10),
        ]
        self.parameters = [parameter for layer in self.layers for parameter in layer.parameters]
        for parameter in self.parameters:
            parameter.value = parameter.value.astype(np.float64 if dtype == "float64" else np.float32)
        self.dtype, self.channel_axis = np.dtype(dtype), 1 if data_format == "NCHW" else 3

    def forward(self, images):
        x = np.expand_dims(images, self.channel_axis).astype(self.dtype)
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, dy):
        for layer in reversed(self.layers):
            dy = layer.backward(dy)

    def predict(self, images, draws=8):
        """Log-probabilities, averaged over several draws of the pooling cells: always the same ones."""
        total = 0
        for seed in range(1, draws + 1):
            self.pooling.seed = seed
            total = total + log_softmax(self.forward(images))
        self.pooling.seed = None
        return total / draws


def log_softmax(scores):
    shifted = scores - scores.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def cross_entropy(scores, labels):
    """Mean loss of a batch and its gradient with respect to the scores."""
    log_probabilities, rows = log_softmax(scores), np.arange(len(labels))
    gradient = np.exp(log_probabilities)
    gradient[rows, labels] -= 1
    return -log_probabilities[rows, labels].mean(), gradient / len(labels)


class Adam:
    """Adam with decoupled weight decay, a short warm-up and a learning rate that falls along a cosine."""

    def __init__(self, parameters, steps, rate=8e-3, decay=1e-2):
        self.parameters, self.steps, self.rate, self.decay, self.step = parameters, steps, rate, decay, 0

    def update(self, loss_scale):
        self.step += 1
        rate = self.rate * (1 + math.cos(math.pi * self.step / self.steps)) / 2
        rate *= min(1, self.step / (0.05 * self.steps))
        for p in self.parameters:
            gradient = p.gradient.astype(p.value.dtype) / loss_scale
            p.mean = 0.9 * p.mean + 0.1 * gradient
            p.square = 0.99 * p.square + 0.01 * gradient**2
            step = p.mean / (1 - 0.9**self.step) / (np.sqrt(p.square / (1 - 0.99**self.step)) + 1e-8)
            p.value = (p.value - rate * (step + self.decay * p.decays * p.value)).astype(p.value.dtype)


def shifted(images, random):
    """Every image moved by up to half a pixel along both axes (bilinear): no two epochs see the same images."""
    index = np.arange(images.shape[1])
    distance = index[:, None] - index + random.uniform(-0.5, 0.5, (2, len(images), 1, 1))
    rows, cols = np.maximum(0, 1 - abs(distance))
    return rows @ images @ cols.swapaxes(1, 2)


def digits(seed):
    """Images in [0, 1] and labels: (training images, test images, training labels, test labels)."""
    data = load_digits()
    return train_test_split(data.images / 16, data.target, test_size=360, stratify=data.target, random_state=seed)


def train(network, data, random, options, console):
    """Returns loss, training accuracy and test accuracy of every epoch."""
    images, test_images, labels, test_labels = data
    batches = math.ceil(len(images) / options.batch_size)
    adam, scale = Adam(network.parameters, options.epochs * batches), LOSS_SCALE[options.dtype]
    history = []
    columns = "[bold]{task.description}", BarColumn(None), "{task.fields[state]}", TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=options.epochs * batches, state="")
        for epoch in range(1, options.epochs + 1):
            loss = right = 0
            for batch in np.array_split(random.permutation(len(images)), batches):
                scores = network.forward(shifted(images[batch], random))
                batch_loss, gradient = cross_entropy(scores, labels[batch])
                network.backward(gradient * scale)
                adam.update(scale)
                loss += batch_loss * len(batch) / len(images)
                right += np.mean(scores.argmax(1) == labels[batch]) * len(batch) / len(images)
                progress.advance(task)
            history.append((loss, right, np.mean(network.predict(test_images).argmax(1) == test_labels)))
            state = f"epoch {epoch}/{options.epochs}  loss {loss:.3f}  test accuracy {history[-1][2]:.2%}"
            progress.update(task, state=state)
            if not math.isfinite(loss):
                raise SystemExit(f"the loss became {loss} in epoch {epoch}: training has failed")
    return np.array(history)


def time_table(seconds):
    table = Table(title="where the time went", title_justify="left")
    table.add_column("op", no_wrap=True)
    for title in "calls", "seconds", "µs/call", "share":
        table.add_column(title, justify="right")
    for op, spent in SECONDS.most_common():
        table.add_row(op, f"{CALLS[op]}", f"{spent:.2f}", f"{1e6 * spent / CALLS[op]:.0f}", f"{spent / seconds:.1%}")
    rest = seconds - SECONDS.total()
    table.add_row("the rest, in NumPy", "", f"{rest:.2f}", "", f"{rest / seconds:.1%}", end_section=True)
    table.add_row("training and tests", "", f"{seconds:.2f}", "", "100.0%")
    return table


def picture(path, history, images, labels, log_probabilities, title):
    """Curves above; below the misread test digits and then the closest calls, at most ten."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    figure.suptitle(title, fontsize=13)
    curves, gallery = figure.subfigures(2, 1, height_ratios=(3, 1.25))
    left, right = curves.subplots(1, 2)
    epochs = np.arange(1, len(history) + 1)
    marker = "o" if len(history) == 1 else None
    left.semilogy(epochs, history[:, 0], color="tab:blue", marker=marker)
    left.set(xlabel="epoch", title="training loss (cross-entropy)")
    for column, name, color in (1, "training (shifted images)", "tab:blue"), (2, "test", "tab:orange"):
        label = f"{name}: {history[-1, column]:.2%}"
        right.plot(epochs, 100 * history[:, column], color=color, marker=marker, label=label)
    right.set(xlabel="epoch", title="accuracy, %", ylim=(max(0, 100 * history[:, 1:].min() - 1), 100.3))
    right.legend(loc="lower right")
    for axes in left, right:
        axes.grid(alpha=0.3, which="both")
        axes.spines[["top", "right"]].set_visible(False)

    rows, read = np.arange(len(labels)), log_probabilities.argmax(1)
    others = np.where(np.eye(10, dtype=bool)[labels], -np.inf, log_probabilities)
    worst = np.argsort(log_probabilities[rows, labels] - others.max(1))[:10]
    misread = np.sum(read != labels) or "none"
    gallery.suptitle(f"{misread} of {len(labels)} test digits misread (red), and the closest calls", fontsize=12)
    for axes, index in zip(gallery.subplots(1, 10), worst, strict=True):
        axes.imshow(images[index], cmap="gray_r")
        relation, color = (", not", "tab:gray") if read[index] == labels[index] else (" read as", "tab:red")
        axes.set_title(f"{labels[index]}{relation} {others[index].argmax()}", fontsize=10, color=color)
        axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=120)


def whole_number(lowest, highest=2**32 - 1):
    def parse(text):
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {lowest} to {highest}")
        return int(text)

    return parse


def parse_options():
    first_line, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=first_line, epilog=rest.strip(), formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--dtype", choices=LOSS_SCALE, default="float32", help="dtype of activations and gradients")
    parser.add_argument("--layout", choices=("NHWC", "NCHW"), default="NHWC", help="order of the axes of an image")
    parser.add_argument("--epochs", type=whole_number(1), default=30, help="passes over the training images")
    parser.add_argument("--batch-size", type=whole_number(1), default=64, help="images per step")
    parser.add_argument("--seed", type=whole_number(0), default=3, help="seed of the split and of training")
    parser.add_argument("--threads", type=whole_number(1), default=1, help="threads of gradops")
    parser.add_argument("--output", type=Path, default=Path("train_digits.png"), help="where to write the picture")
    options = parser.parse_args()
    if options.dtype == "bfloat16":
        if not find_spec("ml_dtypes"):
            parser.error("--dtype bfloat16 needs the package ml_dtypes (pip install ml_dtypes)")
        import_module("ml_dtypes")  # teaches NumPy the dtype
    if options.output.suffix != ".png" or not os.access(options.output.parent, os.W_OK):
        parser.error(f"--output {options.output}: not the name of a .png file in a folder that can be written to")
    return options


def main():
    options, console = parse_options(), Console()
    gradops.set_num_threads(options.threads)
    threadpool_limits(1, "blas")  # its idle threads spin, and would keep those of gradops waiting
    data, random = digits(options.seed), np.random.default_rng(options.seed)
    network = Network(random, options.dtype, options.layout)
    threads = f"{options.threads} thread{'s' * (options.threads > 1)}"
    setup = f"{options.dtype}, {options.layout}, {threads}, seed {options.seed}"
    size = sum(parameter.value.size for parameter in network.parameters)
    console.print(f"{size} parameters, {len(data[0])} training and {len(data[1])} test images; {setup}")
    start = time.perf_counter()
    history = train(network, data, random, options, console)
    seconds = time.perf_counter() - start
    console.print(time_table(seconds))
    title = f"Handwritten digits, trained with gradops in {seconds:.1f} s ({setup})"
    picture(options.output, history, data[1], data[3], network.predict(data[1]), title)
    console.print(f"test accuracy {history[-1, 2]:.2%} in {seconds:.1f} s; the picture is in {options.output}")


if __name__ == "__main__":
    main()
