"""Training steps of PyTorch with and without gradops: `python benchmarks/training_torch.py`, `--quick` to see that it runs.

Networks like MobileNetV2, ConvNeXt-T and ResNet-50, built from PyTorch's own layers, are trained on random images. Native and gradops
take turns within one process, one step each, after one step of each that is not counted; the table shows the medians of the backward
pass and of the whole step (forward, backward, stochastic gradient descent), and how many times as fast they are with gradops. "At most"
is how many times as fast the native backward pass would be if the gradients of its convolutions took no longer than the machine's
multiply-adds or memory, whichever takes longer, as `gradops bench` measures them, and all else what it takes.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from statistics import median
from time import perf_counter

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import gradops.torch
from gradops._bench import roof


class MobileNetV2Like(nn.Sequential):
    """Inverted residual blocks with ReLU6 and batch normalisation."""

    BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, depth: int = 7) -> None:
        layers, channels = [normalised(3, 32, 3, 2)], 32
        for expansion, out, repeats, stride in self.BLOCKS[:depth]:
            for at in range(repeats):
                layers.append(inverted(channels, out, stride if at == 0 else 1, expansion))
                channels = out
        super().__init__(
            *layers, normalised(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 100)
        )


def normalised(channels: int, out: int, taps: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU6."""
    convolution = nn.Conv2d(channels, out, taps, stride, taps // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU6(inplace=True))


def inverted(channels: int, out: int, stride: int, expansion: int) -> nn.Module:
    """Expand, filter each channel, project."""
    wide = channels * expansion
    layers = [] if expansion == 1 else [normalised(channels, wide, 1)]
    layers += [normalised(wide, wide, 3, stride, wide), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
    block = nn.Sequential(*layers)
    return Residual(block) if stride == 1 and channels == out else block


class Residual(nn.Module):
    """What is added to its input, or to a projection of it."""

    def __init__(self, block: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.block, self.shortcut, self.after = block, shortcut or nn.Identity(), after or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x + block(x)."""
        return self.after(self.shortcut(x) + self.block(x))


class ChannelsFirstNorm(nn.LayerNorm):
    """Layer normalisation over channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each pixel."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtLike(nn.Sequential):
    """Depthwise 7x7, layer normalisation and two pointwise convolutions."""

    STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))

    def __init__(self, depth: int = 4) -> None:
        layers, channels = [nn.Conv2d(3, 96, 4, 4), ChannelsFirstNorm(96)], 96
        for out, repeats in self.STAGES[:depth]:
            if out != channels:
                layers += [ChannelsFirstNorm(channels), nn.Conv2d(channels, out, 2, 2)]
            channels = out
            for _ in range(repeats):
                layers.append(
                    Residual(
                        nn.Sequential(
                            nn.Conv2d(out, out, 7, padding=3, groups=out),
                            ChannelsFirstNorm(out),
                            nn.Conv2d(out, 4 * out, 1),
                            nn.GELU(),
                            nn.Conv2d(4 * out, out, 1),
                        )
                    )
                )
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))


class ResNetLike(nn.Sequential):
    """Bottlenecks with 3x3 convolutions."""

    STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

    def __init__(self, depth: int = 4) -> None:
        layers: list[nn.Module] = [normalised(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, repeats, stride in self.STAGES[:depth]:
            for at in range(repeats):
                layers.append(bottleneck(channels, width, stride if at == 0 else 1))
                channels = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))


def bottleneck(channels: int, width: int, stride: int) -> nn.Module:
    """Reduce, filter, expand; beside a projection where the shape changes."""
    out = 4 * width
    shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
    layers = (normalised(channels, width, 1), normalised(width, width, 3, stride), nn.Conv2d(width, out, 1, bias=False))
    return Residual(nn.Sequential(*layers, nn.BatchNorm2d(out)), shortcut if channels != out else None, nn.ReLU())


MODELS = {"mobilenet_v2": MobileNetV2Like, "convnext": ConvNeXtLike, "resnet": ResNetLike}
ROWS = (
    ("mobilenet_v2", "float32"),
    ("convnext", "float32"),
    ("resnet", "float32"),
    ("resnet", "float64"),
    ("mobilenet_v2", "bfloat16"),
    ("convnext", "bfloat16"),
    ("resnet", "bfloat16"),
)


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> tuple[float, float, float]:
    """One step: its loss, the seconds of its backward pass, and all its seconds."""
    begin = perf_counter()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images).float(), labels)
    forward = perf_counter()
    loss.backward()
    backward = perf_counter()
    optimizer.step()
    return float(loss.detach()), backward - forward, perf_counter() - begin


def gradients(model: nn.Module, images: torch.Tensor) -> list[tuple[float, float]]:
    """Operations and compulsory bytes of each gradient of a convolution; the images themselves have none."""
    found: list[tuple[float, float]] = []

    def note(convolution: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        weight = convolution.weight
        numbers = inputs[0].numel() + weight.numel() + output.numel()
        each = 2.0 * output.numel() * weight[0].numel(), float(numbers * weight.element_size())
        found.extend([each] * (1 + inputs[0].requires_grad))

    hooks = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    model(images)
    for hook in hooks:
        hook.remove()
    return found


def possible(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, turns: int
) -> float:
    """How many times as fast as natively the backward pass would be with the gradients of its convolutions at the roof."""
    limit = roof.measure(str(images.dtype).removeprefix("torch."), torch.get_num_threads())
    least = sum(limit.milliseconds(*each) for each in gradients(model, images))
    ratios = []
    for _ in range(turns):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            _, backward, _ = step(model, optimizer, images, labels)
        own = sum(event.cpu_time_total for event in seen.key_averages() if event.key == "ConvolutionBackward0")
        ratios.append(1e3 * backward / (1e3 * backward - 1e-3 * own + least))
    return median(ratios)


def compare(
    name: str, dtype: str, channels_last: bool, size: int, batch: int, turns: int, depth: dict[str, int]
) -> list[str]:
    """One row of the table."""
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = MODELS[name](**depth).to(getattr(torch, dtype)).to(memory_format=layout).train()
    images = torch.randn(batch, 3, size, size, dtype=getattr(torch, dtype)).contiguous(memory_format=layout)
    labels = torch.randint(100, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(turns + 1):
        for taken in (False, True):
            with gradops.torch.enabled() if taken else nullcontext():
                _, backward, whole = step(model, optimizer, images, labels)
            if turn:
                seconds[taken].append((backward, whole))
    (native_back, native_all), (back, whole) = (
        [1e3 * median(column) for column in zip(*seconds[taken], strict=True)] for taken in (False, True)
    )
    most = possible(model, optimizer, images, labels, turns)
    cells = (native_back, back, native_back / back, most, native_all, whole, native_all / whole)
    formats = ("{:.1f}", "{:.1f}", "{:.2f}", "{:.2f}", "{:.1f}", "{:.1f}", "{:.2f}")
    shown = [form.format(cell) for form, cell in zip(formats, cells, strict=True)]
    return [name, dtype, "channels_last" if channels_last else "default", *shown]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], help="some of them; all without")
    parser.add_argument("--quick", action="store_true", help="small networks and images, two turns")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="of the images, in pixels")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size, batch, turns = (64, 2, 2) if options.quick else (options.size, options.batch, options.turns)
    head = ("network", "dtype", "layout", "backward ms", "gradops", "times", "at most", "step ms", "gradops", "times")
    print("|", " | ".join(head), "|")
    print("|", " | ".join(["---"] * 3 + ["---:"] * 7), "|")
    for name, dtype in ROWS:
        if not options.models or name in options.models:
            for channels_last in (False, True):
                depth = {"depth": 2} if options.quick else {}
                print("|", " | ".join(compare(name, dtype, channels_last, size, batch, turns, depth)), "|", flush=True)


if __name__ == "__main__":
    main()
