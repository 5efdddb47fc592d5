"""The training step of whole models in TensorFlow, with and without gradops, turn by turn in two processes on one machine.

    python benchmarks/training_tensorflow.py            # a few minutes, on an idle machine
    python benchmarks/training_tensorflow.py --quick    # small images, to see that it runs

The models are built from Keras' own layers. Both processes start from the same weights and see the same images, and their losses are
compared. A row shows the median time of a step (`train_on_batch`, SGD with momentum) and of what it adds to the forward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODELS = ("mobilenet_v2", "convnext_t", "resnet50", "convnext_t:depthwise")


# The models


def mobilenet_v2(layers, x):
    def normed(x, relu=True):
        x = layers.BatchNormalization()(x)
        return layers.ReLU(6.0)(x) if relu else x

    x = normed(layers.Conv2D(32, 3, 2, "same", use_bias=False)(x))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, filters, blocks, first in stages:
        for stride in (first, *[1] * (blocks - 1)):
            y, channels = x, x.shape[-1]
            if expansion > 1:
                y = normed(layers.Conv2D(expansion * channels, 1, use_bias=False)(y))
            y = normed(layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(y))
            y = normed(layers.Conv2D(filters, 1, use_bias=False)(y), relu=False)
            x = x + y if stride == 1 and channels == filters else y
    return normed(layers.Conv2D(1280, 1, use_bias=False)(x))


def convnext_t(layers, x):
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Conv2D(96, 4, 4)(x))
    for filters, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if filters > x.shape[-1]:
            x = layers.Conv2D(filters, 2, 2)(layers.LayerNormalization(epsilon=1e-6)(x))
        for _ in range(blocks):
            y = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
            x = x + layers.Conv2D(filters, 1)(layers.Conv2D(4 * filters, 1, activation="gelu")(y))
    return x


def convnext_t_depthwise(layers, x):
    """Of convnext_t, the depthwise layers of each stage, and nothing but what brings the image to its size."""
    x = layers.Conv2D(96, 4, 4)(x)
    for filters, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if filters > x.shape[-1]:
            x = layers.Concatenate()([layers.AveragePooling2D(2)(x)] * 2)
        for _ in range(blocks):
            x = layers.DepthwiseConv2D(7, padding="same")(x)
    return x


def resnet50(layers, x):
    def normed(x, filters, taps, stride=1):
        return layers.BatchNormalization()(layers.Conv2D(filters, taps, stride, "same", use_bias=False)(x))

    x = layers.MaxPooling2D(3, 2, "same")(layers.ReLU()(normed(x, 64, 7, 2)))
    for filters, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for stride in (first, *[1] * (blocks - 1)):
            y = layers.ReLU()(normed(x, filters, 1))
            y = normed(layers.ReLU()(normed(y, filters, 3, stride)), 4 * filters, 1)
            x = normed(x, 4 * filters, 1, stride) if x.shape[-1] != 4 * filters else x
            x = layers.ReLU()(x + y)
    return x


# A process that trains


def serve(given):
    """Answer each line of the standard input, a request, with a line: a time in seconds, or the losses."""
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(given["threads"])
    if given["gradops"]:
        import gradops.tensorflow

        gradops.tensorflow.enable()
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    image = layers.Input((given["size"], given["size"], 3))
    body = globals()[given["model"].replace(":", "_")](layers, image)
    model = tf.keras.Model(image, layers.Dense(1000)(layers.GlobalAveragePooling2D()(body)))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(1e-3, momentum=0.9), loss)
    rng = np.random.default_rng(1)
    x = tf.constant(rng.standard_normal((given["batch"], given["size"], given["size"], 3)), given["dtype"])
    y = tf.constant(rng.integers(0, 1000, given["batch"]))
    forward = tf.function(lambda: loss(y, model(x, training=True)))
    requests = {"step": lambda: model.train_on_batch(x, y), "forward": forward}
    losses = [float(requests["step"]()) for _ in range(2)]
    forward()
    print(json.dumps(losses), flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        float(requests[line.strip()]())
        print(json.dumps(time.perf_counter() - started), flush=True)


# The process that asks


class Worker:
    def __init__(self, **given):
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", json.dumps(given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self.losses = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with status {self.process.wait()}")
        return json.loads(line)

    def time(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, model):
    """Return a row: the median times of both workers in ms, steps and what they add to the forward pass, and the ratios."""
    given = {name: getattr(options, name) for name in ("threads", "batch", "size", "dtype")}
    workers = [Worker(model=model, gradops=enabled, **given) for enabled in (False, True)]
    times = [{"step": [], "forward": []} for _ in workers]
    started = time.perf_counter()
    while time.perf_counter() - started < options.seconds or len(times[0]["step"]) < 3:
        for what in ("step", "forward"):
            for worker, taken in zip(workers, times, strict=True):
                taken[what].append(worker.time(what))
    for worker in workers:
        worker.close()
    apart = max(abs(a - b) / abs(a) for a, b in zip(*(worker.losses for worker in workers), strict=True))
    if not apart < options.tolerance:
        raise RuntimeError(f"{model}: the losses differ, {workers[0].losses} and {workers[1].losses}")
    steps, forwards = ([1e3 * statistics.median(taken[what]) for taken in times] for what in ("step", "forward"))
    backwards = [step - forward for step, forward in zip(steps, forwards, strict=True)]
    return steps, backwards


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"some of {', '.join(MODELS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="images of 32x32, 3 turns")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="rows and columns of an image")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40, help="for each model")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="how far losses may be apart")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(json.loads(options.serve))
    if options.quick:
        options.size, options.seconds = 32, 0
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no models: {', '.join(sorted(unknown))}")
    print("| model | step, TensorFlow | with gradops | ratio | backward, TensorFlow | with gradops | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for model in options.models or MODELS:
        steps, backwards = measure(options, model)
        cells = [cell for a, b in (steps, backwards) for cell in (f"{a:.1f} ms", f"{b:.1f} ms", f"{a / b:.2f}")]
        print("|", " | ".join([model, *cells]), "|", flush=True)
    return None


if __name__ == "__main__":
    main()
