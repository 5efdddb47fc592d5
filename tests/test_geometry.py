"""Output sizes, paddings and lanes, against definitions written out by brute force."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradops._algorithms import Arithmetic, Axis, Task, winograd
from gradops._geometry import OPS, attributes, plan
from gradops._problem import Lane, Problem, forward_lanes, gradient_lanes, in_windows, tap_lanes, without_padding
from gradops._values import LAYOUTS, integers, sizes


def touched(n, taps, stride, dilation, before, out):
    """All (output, tap, input) that meet inside the input, from the definition."""
    return {
        (o, k, o * stride - before + k * dilation)
        for o in range(out)
        for k in range(taps)
        if 0 <= o * stride - before + k * dilation < n
    }


def enumerated(lanes, sources):
    """All (destination, tap, source) of lanes, as the kernels read them, as a list."""
    return [
        (
            lane.out_start + lane.out_step * t,
            lane.filter_start + lane.filter_step * k,
            lane.src_start + lane.src_unit * (lane.z_step * t + lane.tap_step * k),
        )
        for lane in lanes
        for t in range(lane.count)
        for k in range(lane.taps)
        if 0 <= lane.src_start + lane.src_unit * (lane.z_step * t + lane.tap_step * k) < sources
    ]


def truncated(a, b):
    """a / b without its fraction, as C++ divides, for b > 0."""
    return abs(a) // b * (1 if a >= 0 else -1)


def windows(n, taps, stride, dilation, before, after):
    """How many windows lie in the padded input, by trying."""
    last = (taps - 1) * dilation
    return sum(1 for first in range(-before, n + after, stride) if first + last < n + after)


def axis_of(n, taps, stride=1, dilation=1, padding="VALID", pads=(0, 0)):
    """The row axis of a plan; the columns are those of a single pixel."""
    explicit = (0, 0, *pads, 0, 0, 0, 0) if padding == "EXPLICIT" else ()
    given_ = attributes((stride, 1), padding, explicit, "NHWC", (dilation, 1))
    return plan("conv2d", (1, n, 1, 1), (taps, 1, 1, 1), None, given_).rows


axes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 20),
        "taps": st.integers(1, 7),
        "stride": st.integers(1, 8),
        "dilation": st.integers(1, 7),
        "before": st.integers(0, 9),
        "out": st.integers(1, 20),
    }
)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@given(axis=axes)
def test_forward_lanes_enumerate_every_meeting_once(split, axis):
    lanes = forward_lanes(
        Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"]), split
    )
    found = enumerated(lanes, axis["n"])
    assert len(found) == len(set(found))
    assert set(found) == touched(**axis)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@given(axis=axes)
def test_gradient_lanes_enumerate_every_meeting_once(split, axis):
    lanes = gradient_lanes(
        Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"]), split
    )
    found = enumerated(lanes, axis["out"])
    assert len(found) == len(set(found))
    assert set(found) == {(source, tap, destination) for destination, tap, source in touched(**axis)}


@pytest.mark.parametrize("make", [forward_lanes, gradient_lanes])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@given(axis=axes)
def test_lanes_share_no_destination_and_stay_inside(make, split, axis):
    lanes = make(Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"]), split)
    found = [lane.out_start + lane.out_step * t for lane in lanes for t in range(lane.count)]
    assert len(found) == len(set(found))
    assert all(0 <= i < (axis["out"] if make is forward_lanes else axis["n"]) for i in found)
    assert all(lane.count > 0 and lane.taps > 0 for lane in lanes)


@pytest.mark.parametrize("make", [forward_lanes, gradient_lanes])
@given(axis=axes)
def test_taps_of_split_lanes_are_neighbours_in_ascending_order(make, axis):
    lanes = make(Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"]), True)
    assert all(lane.tap_step == 1 and lane.src_unit > 0 and lane.z_step > 0 for lane in lanes)


@given(axis=axes, strided=st.booleans())
def test_windows_of_three_neighbouring_taps_enumerate_every_meeting_once(axis, strided):
    axis |= {"dilation": 1} if strided else {"stride": 1}
    given_ = Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"])
    outputs, inputs = in_windows(tap_lanes(given_)), in_windows(gradient_lanes(given_, True))
    assert all(lane.taps in (1, 2, 3) and lane.tap_step == lane.z_step == 1 for lane in (*outputs, *inputs))
    found = enumerated(outputs, axis["n"])
    assert len(found) == len(set(found))
    assert set(found) == touched(**axis)
    found = enumerated(inputs, axis["out"])
    assert len(found) == len(set(found))
    assert set(found) == {(source, tap, destination) for destination, tap, source in touched(**axis)}


@pytest.mark.parametrize("taps", range(3, 7))
@given(n=st.integers(2, 20), before=st.integers(0, 9))
def test_a_stride_of_2_leaves_one_window_for_gradients_of_inputs(taps, n, before):
    given_ = Axis(n, taps, 2, 1, before, out=9)
    task = Task("input", False, given_, given_, 1, 64, 64, "NHWC")
    lanes = gradient_lanes(given_, True)
    start = min(lane.src_start - (lane.taps == 1) for lane in lanes)
    assert winograd.accepts(task) == all(lane.src_start + lane.taps <= start + 3 for lane in lanes)
    assert all(lane.src_start == start + 1 for lane in lanes if lane.taps == 1)


@pytest.mark.parametrize("make", [forward_lanes, gradient_lanes])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@given(axis=axes)
def test_lanes_without_padding_meet_the_same_and_nothing_outside(make, split, axis):
    lanes = make(Axis(axis["n"], axis["taps"], axis["stride"], axis["dilation"], axis["before"], axis["out"]), split)
    sources = axis["n"] if make is forward_lanes else axis["out"]
    inner = without_padding(lanes, sources)
    assert sorted(enumerated(inner, sources)) == sorted(enumerated(lanes, sources))
    assert sum(lane.count * lane.taps for lane in inner) == len(enumerated(inner, sources))


@given(
    n=st.integers(1, 40),
    taps=st.integers(1, 8),
    stride=st.integers(1, 9),
    dilation=st.integers(1, 5),
    before=st.integers(0, 9),
    after=st.integers(0, 9),
)
def test_explicit_output_size_counts_the_windows(n, taps, stride, dilation, before, after):
    reach = (taps - 1) * dilation + 1
    if reach > n + before + after:
        return
    axis = axis_of(n, taps, stride, dilation, "EXPLICIT", (before, after))
    assert (axis.out, axis.before) == (windows(n, taps, stride, dilation, before, after), before)


@given(n=st.integers(1, 40), taps=st.integers(1, 8), stride=st.integers(1, 9), dilation=st.integers(1, 5))
def test_same_pads_as_little_as_the_windows_need_and_more_at_the_end(n, taps, stride, dilation):
    axis = axis_of(n, taps, stride, dilation, "SAME")
    assert axis.out == len(range(0, n, stride))
    total = next(p for p in range(1000) if (axis.out - 1) * stride + (taps - 1) * dilation + 1 <= n + p)
    assert axis.before == total // 2


@given(n=st.integers(0, 12), taps=st.integers(1, 12), stride=st.integers(1, 6), dilation=st.integers(1, 3))
def test_output_size_is_truncated_toward_zero_and_never_negative(n, taps, stride, dilation):
    expected = truncated(n - ((taps - 1) * dilation + 1) + stride, stride)
    if expected < 0:
        with pytest.raises(ValueError, match="which is negative"):
            axis_of(n, taps, stride, dilation)
    else:
        assert axis_of(n, taps, stride, dilation).out == expected


@pytest.mark.parametrize(
    ("n", "taps", "stride", "expected"),
    [(3, 5, 2, 0), (3, 8, 3, 0), (3, 4, 1, 0), (3, 3, 1, 1), (7, 3, 2, 3), (1, 1, 5, 1)],
)
def test_output_sizes_that_tensorflow_gives(n, taps, stride, expected):
    assert axis_of(n, taps, stride).out == expected


@pytest.mark.parametrize(("dilation", "expected"), [(1, 4), (2, 5)])
def test_a_filter_without_rows_reaches_back(dilation, expected):
    shapes = (1, 3, 1, 1), (0, 1, 1, 1), (1, expected, 1, 1)
    made = plan("conv2d_backprop_filter", *shapes, attributes(1, "VALID", (), "NHWC", (dilation, 1)))
    assert made.rows.out == expected
    assert made.zero


def unpacked(problem):
    """The fields and lanes of a packed problem."""
    fields = struct.unpack(f"={len(problem) // 8}q", problem)
    width = len(Lane._fields)
    head, tail = Problem(*fields[: len(Problem._fields)]), fields[len(Problem._fields) :]
    lanes = [Lane(*tail[i : i + width]) for i in range(0, len(tail), width)]
    return head, lanes[: head.row_lanes], lanes[head.row_lanes :]


def test_problem_has_29_fields_and_a_lane_10():
    assert (len(Problem._fields), len(Lane._fields)) == (29, 10)


@pytest.mark.parametrize("data_format", LAYOUTS)
@pytest.mark.parametrize("op", OPS)
def test_packed_problem_is_as_long_as_it_says(op, data_format):
    layout, kind = LAYOUTS[data_format], OPS[op]
    image, output = layout.arranged(2, 9, 7, 6), layout.arranged(2, 5, 3, 12)
    filter_shape = (3, 2, 6, 2) if kind.depthwise else (3, 2, 3, 12)
    dy = None if kind.forward else output
    made = plan(op, image, filter_shape, dy, attributes((2, 3), "SAME", (), data_format, (1, 2)))
    for algorithm in made.algorithms[Arithmetic.FLOATS]:
        head, row_lanes, col_lanes = unpacked(made.problem(algorithm))
        assert len(made.problem(algorithm)) == 8 * (29 + 10 * (head.row_lanes + head.col_lanes))
        assert head.unpadded == 0
    assert unpacked(made.problem(made.exact, unpadded=True))[0].unpadded == 1
    assert (len(row_lanes), len(col_lanes)) == (head.row_lanes, head.col_lanes)
    assert made.result_shape == (output if kind.forward else image if kind.scatters else filter_shape)


def test_problem_describes_a_grouped_input_gradient():
    given_ = attributes(1, "VALID", (), "NCHW", 1)
    made = plan("conv2d_backprop_input", (2, 6, 5, 4), (3, 2, 3, 8), (2, 8, 3, 3), given_)
    head, (row,), (col,) = unpacked(made.problem("conv"))
    assert [made.stem("conv", storage) for storage in range(4)] == [
        f"conv_gather_{real}" for real in ("f32", "bf16", "f32", "f64")
    ]
    assert (head.images, head.groups, head.src_channels, head.dst_channels) == (2, 2, 4, 3)
    assert (head.src_rows, head.src_cols, head.dst_rows, head.dst_cols) == (3, 3, 5, 4)
    assert (head.src_n, head.src_y, head.src_x, head.src_c) == (72, 3, 1, 9)
    assert (head.dst_n, head.dst_y, head.dst_x, head.dst_c) == (120, 4, 1, 20)
    assert (head.filter_y, head.filter_x, head.filter_src, head.filter_dst, head.filter_group) == (48, 24, 1, 8, 4)
    assert head.covered == 1
    assert row == Lane(5, 0, 1, -2, 1, 1, 1, 3, 2, -1)
    assert col == Lane(4, 0, 1, -1, 1, 1, 1, 2, 1, -1)


@given(
    n=st.integers(1, 15),
    taps=st.integers(1, 5),
    stride=st.integers(1, 7),
    dilation=st.integers(1, 5),
    before=st.integers(0, 6),
)
def test_covered_means_that_every_pixel_lies_in_a_lane(n, taps, stride, dilation, before):
    out = axis_of(n, taps, stride, dilation, "EXPLICIT", (before, 40)).out
    given_ = attributes((stride, 1), "EXPLICIT", (0, 0, before, 40, 0, 0, 0, 0), "NHWC", (dilation, 1))
    made = plan("conv2d_backprop_input", (1, n, 2, 1), (taps, 2, 1, 1), (1, out, 1, 1), given_)
    head, row_lanes, _ = unpacked(made.problem("conv"))
    covered = {lane.out_start + lane.out_step * t for lane in row_lanes for t in range(lane.count)}
    assert head.covered == (covered == set(range(n)))


def test_depthwise_lanes_of_columns_are_split_when_a_line_would_be_too_long():
    def col_lanes(dilation):
        given_ = attributes(1, "SAME", (), "NHWC", (1, dilation))
        return unpacked(
            plan("depthwise_conv2d_native", (1, 1, 4000, 1), (1, 3, 1, 1), None, given_).problem("depthwise")
        )[2]

    assert len(col_lanes(511)) == 1
    assert len(col_lanes(512)) == 512


def test_grouped_convolution_with_one_channel_a_group_is_depthwise():
    def found(channels, per_group):
        given_ = attributes(1, "SAME", (), "NHWC", 1)
        made = plan("conv2d", (9, 4, 4, channels), (3, 3, per_group, 6), None, given_)
        return made.algorithms[Arithmetic.FLOATS]

    assert found(3, 1) == ("depthwise", "stem")
    assert found(1, 1) == ("stem", "conv", "winograd", "depthwise")
    assert found(6, 2) == ("depthwise", "stem", "conv", "winograd")


@pytest.mark.parametrize(
    ("channels", "multiplier", "found"),
    [(1, 64, ["depthwise", "conv"]), (3, 15, ["depthwise"]), (300, 2, ["depthwise"]), (3, 65, ["conv"])],
)
def test_depthwise_kernels_take_any_channels_and_some_multipliers(channels, multiplier, found):
    given_ = attributes(1, "SAME", (), "NHWC", 1)
    made = plan("depthwise_conv2d_native", (1, 4, 4, channels), (3, 3, channels, multiplier), None, given_)
    algorithms = made.algorithms[Arithmetic.FLOATS]
    assert [algorithm for algorithm in algorithms if algorithm != "stem"] == found and algorithms[0] == found[0]


def test_two_input_sizes_take_batch_and_channels_from_the_arrays():
    given_ = attributes(1, "SAME", (), "NCHW", 1)
    made = plan("conv2d_backprop_input", (5, 4), (3, 3, 2, 7), (6, 7, 5, 4), given_)
    assert made.result_shape == (6, 2, 5, 4)


ZERO = [
    ("conv2d", (0, 4, 4, 2), (3, 3, 2, 5), None, (0, 4, 4, 5)),
    ("conv2d", (1, 4, 4, 2), (3, 3, 2, 0), None, (1, 4, 4, 0)),
    ("conv2d", (1, 4, 4, 0), (3, 3, 1, 2), None, (1, 4, 4, 2)),
    ("conv2d", (1, 0, 4, 2), (3, 3, 2, 5), None, (1, 0, 4, 5)),
    ("conv2d_backprop_input", (0, 4, 4, 2), (3, 3, 2, 5), (0, 4, 4, 5), (0, 4, 4, 2)),
    ("conv2d_backprop_input", (1, 4, 4, 2), (0, 0, 2, 5), (1, 4, 4, 5), (1, 4, 4, 2)),
    ("conv2d_backprop_input", (1, 4, 4, 2), (3, 3, 2, 0), (1, 4, 4, 0), (1, 4, 4, 2)),
    ("conv2d_backprop_filter", (0, 4, 4, 2), (3, 3, 2, 5), (0, 4, 4, 5), (3, 3, 2, 5)),
    ("conv2d_backprop_filter", (1, 4, 4, 2), (0, 3, 2, 5), (1, 4, 4, 5), (0, 3, 2, 5)),
    ("depthwise_conv2d_native", (1, 4, 4, 2), (0, 3, 2, 5), None, (1, 4, 4, 10)),
    ("depthwise_conv2d_native", (1, 4, 4, 0), (3, 3, 0, 5), None, (1, 4, 4, 0)),
    ("depthwise_conv2d_native_backprop_input", (1, 4, 4, 2), (3, 3, 2, 0), (1, 4, 4, 0), (1, 4, 4, 2)),
    ("depthwise_conv2d_native_backprop_filter", (0, 4, 4, 2), (3, 3, 2, 5), (0, 4, 4, 10), (3, 3, 2, 5)),
]


@pytest.mark.parametrize(("op", "image", "filter_shape", "dy", "result"), ZERO)
def test_plans_without_anything_to_sum_run_no_kernel(op, image, filter_shape, dy, result):
    made = plan(op, image, filter_shape, dy, attributes(1, "SAME", (), "NHWC", 1))
    assert (made.zero, made.result_shape) == (True, result)


def test_the_problem_is_made_only_when_it_is_needed():
    long = 2**40
    given_ = attributes(1, "VALID", (), "NHWC", (2**31 - 1, 1))
    made = plan("depthwise_conv2d_native", (1, long, 1, 1), (2, 1, 1, 1), None, given_)
    assert made.rows.out == long - 2**31 + 1
    assert "problem" not in vars(made)


def test_equal_calls_share_a_plan():
    a = plan("conv2d", (1, 4, 4, 3), (3, 3, 3, 8), None, attributes([1, 2, 2, 1], "SAME", [], "NHWC", (1, 1, 1, 1)))
    b = plan("conv2d", (1, 4, 4, 3), (3, 3, 3, 8), None, attributes((1, 2, 2, 1), "SAME", (), "NHWC", [1, 1, 1, 1]))
    assert a is b


class Index:
    """An integer that is no int."""

    def __index__(self):
        return 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2, 2), (Index(), 2), ((1, 2), (1, 2)), ([1, Index()], (1, 2)), (range(3), (0, 1, 2)), ([], ())],
)
def test_integers_are_plain_afterwards(value, expected):
    found = integers("strides", value)
    assert found == expected
    assert all(type(item) is int for item in (found if isinstance(found, tuple) else (found,)))


def test_a_size_vector_may_be_any_sequence():
    assert sizes("filter_sizes", iter([1, Index()])) == (1, 2)


@pytest.mark.parametrize("op", ["conv2d", "conv2d_backprop_input", "conv2d_backprop_filter"])
def test_columns_of_filters_side_by_side_become_channels(op):
    def head(data_format="NHWC", size=12, stride=(3, 4), padding="VALID"):
        shapes = {"NHWC": ((2, 9, size, 5), (2, 3, 3, 7)), "NCHW": ((2, 5, 9, size), (2, 7, 3, 3))}[data_format]
        given_ = attributes(stride, padding, (), data_format, 1)
        made = plan(op, shapes[0], (3, 4, 5, 7), None if op == "conv2d" else shapes[1], given_)
        return unpacked(made.problem("conv"))[0]

    merged = head()
    assert merged.filter_cols == 1 and merged.filter_rows == 3 and merged.col_lanes == 1
    assert 20 in (merged.src_channels, merged.dst_channels)
    assert 20 in (merged.src_x, merged.dst_x)
    for other in (head("NCHW"), head(size=14)):
        assert other.filter_cols == 4 and 5 in (other.src_channels, other.dst_channels)


def unpacked_of(op, data_format, n, rows, cols, taps, stride=1, algorithm="conv", unpadded=False):
    shape = (n, rows, cols, 5) if data_format == "NHWC" else (n, 5, rows, cols)
    out = (n, -(-rows // stride), -(-cols // stride), 7)
    out = out if data_format == "NHWC" else (n, 7, *out[1:3])
    made = plan(
        op, shape, (*taps, 5, 7), None if op == "conv2d" else out, attributes(stride, "SAME", (), data_format, 1)
    )
    return unpacked(made.problem(algorithm, unpadded))[0]


@pytest.mark.parametrize("op", ["conv2d", "conv2d_backprop_input", "conv2d_backprop_filter"])
def test_pixels_of_pointwise_problems_form_one_row(op):
    flat = unpacked_of(op, "NHWC", 2, 9, 4, (1, 1))
    assert (flat.images, flat.src_rows, flat.src_cols, flat.dst_cols) == (1, 1, 72, 72)
    flat = unpacked_of(op, "NCHW", 2, 9, 4, (1, 1))
    assert (flat.images, flat.src_rows, flat.src_cols, flat.dst_cols) == (2, 1, 36, 36)
    for other in (
        unpacked_of(op, "NHWC", 2, 9, 4, (1, 1), stride=2),
        unpacked_of(op, "NHWC", 2, 9, 4, (1, 2)),
        unpacked_of(op, "NHWC", 2, 9, 4, (1, 1), unpadded=True),
    ):
        assert other.images == 2 and 9 in (other.src_rows, other.dst_rows)


@pytest.mark.parametrize("algorithm", ["conv", "winograd"])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_an_image_of_one_column_is_one_of_one_row(data_format, algorithm):
    head = unpacked_of("conv2d", data_format, 2, 9, 1, (3, 1), algorithm=algorithm)
    assert (head.src_rows, head.src_cols, head.filter_rows, head.filter_cols) == (1, 9, 1, 3)
    head = unpacked_of("conv2d", data_format, 2, 9, 1, (3, 3), algorithm=algorithm)
    assert (head.src_rows, head.src_cols, head.filter_rows, head.filter_cols) == (9, 1, 3, 3)


@pytest.mark.parametrize("op", ["conv2d_backprop_filter", "depthwise_conv2d_native_backprop_input"])
@pytest.mark.parametrize(("taps", "stride", "same"), [(3, 1, True), (1, 1, True), (4, 4, False)])
def test_images_of_one_channel_are_planes_in_either_layout(op, taps, stride, same):
    def made(data_format):
        shape, out = (2, 12, 8, 1), (2, 12 // stride, 8 // stride, 1)
        if data_format == "NCHW":
            shape, out = (2, 1, *shape[1:3]), (2, 1, *out[1:3])
        return plan(op, shape, (taps, taps, 1, 1), out, attributes(stride, "SAME", (), data_format, 1))

    last, first = made("NHWC"), made("NCHW")
    algorithm = "conv" if "filter" in op else "depthwise"
    assert (last.problem(algorithm) == first.problem(algorithm)) is same  # columns side by side become channels
    if same:
        assert last.algorithms == first.algorithms
