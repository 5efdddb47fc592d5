"""The same numbers from PyTorch: its convolution, and the gradients of its autograd."""

import numpy as np
import pytest
from peers import PROBLEMS, ROUNDS_PARTIAL_SUMS, check, in_layout, nchw, operands

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def to_torch(array):
    """Hand an array to PyTorch; bfloat16 goes as its bits, which neither side would otherwise take."""
    array = np.ascontiguousarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor):
    return tensor.detach().to(torch.float64).numpy()


def run(problem, x, w, dy):
    """Pad by hand, since PyTorch pads both sides alike, and let autograd go back through the padding."""
    (h, p, r, u, d, top), (width, q, s, v, e, left) = problem.axes
    bottom, right = ((p - 1) * u + (r - 1) * d + 1 - h - top, (q - 1) * v + (s - 1) * e + 1 - width - left)
    image = to_torch(nchw(problem, x)).requires_grad_()
    taps = to_torch(
        w.reshape(r, s, problem.filter_shape[2] if not problem.depthwise else 1, -1).transpose(3, 2, 0, 1)
    ).requires_grad_()
    padded = torch.nn.functional.pad(image, (left, right, top, bottom))
    y = torch.nn.functional.conv2d(
        padded, taps, stride=problem.strides, dilation=problem.dilations, groups=problem.filter_groups[1]
    )
    y.backward(to_torch(nchw(problem, dy)))
    dw = to_numpy(taps.grad).transpose(2, 3, 1, 0).reshape(problem.filter_shape)
    return in_layout(problem, to_numpy(y)), in_layout(problem, to_numpy(image.grad)), dw


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_convolutions_agree_with_pytorch(problem, dtype):
    y, dx, dw = run(problem, *operands(problem, dtype))
    if dtype == "bfloat16" and ROUNDS_PARTIAL_SUMS:
        dx = dw = None
    check(problem, dtype, (y, dx, dw))


@pytest.mark.parametrize("problem", PROBLEMS[::4], ids=str)
def test_float16_convolutions_agree_with_pytorch(problem):
    """Forward alone: PyTorch's float16 gradients on a CPU round partial sums."""
    y, _, _ = run(problem, *operands(problem, "float16"))
    check(problem, "float16", (y, None, None))
