"""The rules of the house: who imports whom, what a kernel file may hold, and that no kernel is left out."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gradops
from gradops.testing import OPS

SOURCES = Path(gradops.__file__).parent
REPOSITORY = Path(__file__).parent.parent
CHECKOUT = pytest.mark.skipif(
    not (REPOSITORY / "CMakeLists.txt").exists(), reason="the tests do not lie in a checkout with its sources"
)

# What each file may import besides the standard library; nobody imports from a higher floor. An adapter is called like its framework.
MAY_IMPORT = {
    "__init__": {"raw_ops", "_config", "_conv_ops", "_pool_ops", "_threads", "_version", "_bench"},  # _bench: late
    "__main__": {"_bench.cli"},
    "_version": set(),
    "raw_ops": {"numpy", "_arrays", "_conv_ops", "_pool_ops", "_geometry", "_values"},
    "_config": {"numpy", "_dispatch", "_threads", "_version"},
    "_conv_ops": {"numpy", "_geometry", "_values", "_arrays", "_call"},
    "_pool_ops": {"numpy", "_pooling", "_values", "_arrays", "_call"},
    "_call": {"_arrays", "_dispatch", "_threads"},
    "_arrays": {"numpy", "_kernels.runtime"},
    "_geometry": {"_algorithms", "_problem", "_values"},
    "_problem": {"_algorithms", "_values"},
    "_pooling": {"_algorithms", "_values"},
    "_values": set(),
    "_threads": set(),
    "_xla": {
        "_algorithms",
        "_arrays",
        "_call",
        "_dispatch",
        "_geometry",
        "_kernels.xla",
        "_pooling",
        "_problem",
        "_values",
        "_version",
    },
    "autograd": {"autograd", "numpy", "gradops"},
    "_dispatch": {"_algorithms", "_kernels.entry", "_kernels.runtime"},
}
TESTING_MAY_IMPORT = {"numpy", "ml_dtypes", "gradops", "_algorithms", "_dispatch", "_problem"}
# The same for _bench/, whose files are named without the folder; testing stands for all of it.
BENCH_MAY_IMPORT = {
    "__init__": {"cli"},
    "problems": {"numpy", "testing"},
    "suites": {"problems"},
    "roof": {"numpy", "_dispatch", "_threads"},
    "runner": {"numpy", "_arrays", "testing", "problems", "roof"},
    "peers": {"numpy", "testing", "runner", "torch", "tensorflow", "jax"},
    "text": set(),
    "table": {"rich", "runner", "text"},
    "summary": {"text"},
    "report": {"gradops", "roof", "runner"},
    "plot": {"matplotlib", "summary", "text"},
    "selftest": {"testing"},
    "cli": {
        "gradops", "testing", "_dispatch", "_threads",
        "problems", "suites", "roof", "runner", "peers", "table", "text", "summary", "report", "plot", "selftest",
    },
}  # fmt: skip
BUILT_ONCE = {"entry", "runtime", "tensorflow_kernels", "torch_convolution", "xla"}
"""The compiled modules that are no kernels."""
LENT = {"storage_blocks"}
"""What is no kernel, but lends each kernel of its level and precision some functions."""
CALLING = {"_band", "_partials", "_patches", "_ring"}
"""What kernels share that calls those."""
# The same for packages. Only users import adapters; they take from the floors below what is named here.
TORCH_MAY_IMPORT = {
    "__init__": {"torch", "torch._functions", "torch._override"},
    "_functions": {"torch", "torch._convolution", "torch._pooling", "torch._tensors"},
    "_convolution": {"torch", "_geometry", "_problem", "torch._case", "torch._tensors"},
    "_pooling": {"torch", "_call", "_pooling", "torch._case", "torch._tensors"},
    "_override": {"torch._boxed", "torch._stable"},
    "_boxed": {"torch", "torch._answers", "torch._case", "torch._table", "torch._tensors"},
    "_stable": {
        "torch", "numpy", "_arrays", "_kernels.torch_convolution", "_threads",
        "torch._answers", "torch._case", "torch._tensors",
    },
    "_answers": {"torch._case", "torch._table"},
    "_case": {
        "torch",
        "_arrays",
        "_call",
        "_dispatch",
        "_geometry",
        "_problem",
        "_values",
        "torch._table",
        "torch._tensors",
    },
    "_table": set(),
    "_tensors": {"torch", "numpy", "_arrays"},
}  # fmt: skip
JAX_MAY_IMPORT = {
    "__init__": {"jax", "jax._functions", "jax._override", "jax._pooling", "jax._stats"},
    "_override": {"jax", "jax._convolution", "jax._functions"},
    "_functions": {"jax", "numpy", "jax._convolution", "jax._matching", "jax._stats"},
    "_matching": {"jax", "_values", "_xla", "jax._convolution"},
    "_convolution": {"jax", "_values", "_xla", "jax._batching", "jax._primitives"},
    "_pooling": {"jax", "numpy", "_values", "_xla", "jax._batching", "jax._primitives"},
    "_primitives": {"jax", "numpy", "_xla"},
    "_batching": {"jax", "_values"},
    "_stats": set(),
}
TENSORFLOW_MAY_IMPORT = {
    "__init__": {"tensorflow", "tensorflow._override"},
    "_override": {"tensorflow", "_kernels.tensorflow_kernels", "tensorflow._ops", "tensorflow._registration"},
    "_registration": {"tensorflow", "_kernels.tensorflow_kernels", "tensorflow._answers", "tensorflow._ops"},
    "_answers": {
        "tensorflow", "_arrays", "_call", "_geometry", "_kernels.tensorflow_kernels", "_pooling", "_values",
        "tensorflow._native", "tensorflow._nodes", "tensorflow._ops", "tensorflow._table",
    },
    "_native": {"tensorflow", "_values", "tensorflow._nodes"},
    "_table": {"_arrays", "_problem"},
    "_nodes": {"tensorflow", "_arrays", "_geometry", "_values", "tensorflow._ops"},
    "_ops": set(),
}  # fmt: skip
ALGORITHMS_MAY_IMPORT = {
    "__init__": {
        f"_algorithms.{name}"
        for name in (
            "col2im",
            "exchange",
            "gemv",
            "inplace",
            "mirror",
            "multipliers",
            "patches",
            "planes",
            "sharing",
            "stem",
            "task",
            "winograd",
        )
    },
    "col2im": {"_algorithms.patches", "_algorithms.task"},
    "exchange": {"_algorithms.multipliers", "_algorithms.patches", "_algorithms.task"},
    "gemv": {"_algorithms.patches", "_algorithms.sharing", "_algorithms.task"},
    "inplace": {"_algorithms.task"},
    "mirror": {"_algorithms.stem", "_algorithms.task"},
    "multipliers": {"_algorithms.task"},
    "patches": {"_algorithms.task"},
    "planes": {"_algorithms.inplace", "_algorithms.task"},
    "sharing": set(),
    "stem": {"_algorithms.patches", "_algorithms.task", "_algorithms.tiles"},
    "task": {"_algorithms.sharing"},
    "tiles": {"_algorithms.patches", "_algorithms.task"},
    "winograd": {"_algorithms.task"},
}
PACKAGES = {
    "_algorithms": ALGORITHMS_MAY_IMPORT,
    "jax": JAX_MAY_IMPORT,
    "tensorflow": TENSORFLOW_MAY_IMPORT,
    "torch": TORCH_MAY_IMPORT,
}
MEASURING = {"roof_f32", "roof_f64", "roof_bf16"}
"""The kernels that serve `gradops bench` and no op."""


def imports(path):
    """List what a file imports: other packages by name, gradops' own modules by their name inside the package."""
    package = path.relative_to(SOURCES.parent).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            prefix = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (prefix, node.module)))
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else base for name in names}
    inside = {name.removeprefix("gradops.") for name in found if name.startswith("gradops.")}
    outside = {name.partition(".")[0] for name in found if not name.startswith("gradops.")}
    return inside | (outside - sys.stdlib_module_names)


def is_module(name):
    path = SOURCES.parent.joinpath(*name.split("."))
    compiled = path.parent.name == "_kernels" and path.name in BUILT_ONCE
    return compiled or path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def python_files():
    return sorted(SOURCES.rglob("*.py"))


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.py")), ids=lambda path: path.stem)
def test_files_import_only_from_lower_floors(path):
    assert path.stem in MAY_IMPORT, f"give {path.name} a row in MAY_IMPORT"
    assert imports(path) <= MAY_IMPORT[path.stem]


def test_every_rule_is_about_a_file():
    assert {path.stem for path in SOURCES.glob("*.py")} == set(MAY_IMPORT)
    for name, rows in PACKAGES.items():
        assert {path.stem for path in (SOURCES / name).glob("*.py")} == set(rows)


def test_no_import_goes_in_a_circle():
    order = []
    while len(order) < len(MAY_IMPORT):
        ready = {
            name
            for name, below in MAY_IMPORT.items()
            if name not in order and (below - {name}) & set(MAY_IMPORT) <= set(order)
        }
        assert ready, "MAY_IMPORT permits a circle"
        order += sorted(ready)


@pytest.mark.parametrize("path", sorted((SOURCES / "testing").glob("*.py")), ids=lambda path: path.stem)
def test_testing_imports_the_public_package_and_the_dispatcher(path):
    own = {name for name in imports(path) if name.startswith("testing")}
    assert imports(path) - own <= TESTING_MAY_IMPORT


@pytest.mark.parametrize("path", sorted((SOURCES / "_bench").glob("*.py")), ids=lambda path: path.stem)
def test_bench_imports_what_its_row_permits(path):
    found = {re.sub(r"^testing\..*", "testing", name.removeprefix("_bench.")) for name in imports(path)}
    assert path.stem in BENCH_MAY_IMPORT, f"give {path.name} a row in BENCH_MAY_IMPORT"
    assert found <= BENCH_MAY_IMPORT[path.stem]


@pytest.mark.parametrize(
    "path",
    sorted(path for name in PACKAGES for path in (SOURCES / name).glob("*.py")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_packages_import_what_their_rows_permit(path):
    rows = PACKAGES[path.parent.name]
    assert path.stem in rows, f"give {path.name} a row in {path.parent.name.strip('_').upper()}_MAY_IMPORT"
    assert imports(path) <= rows[path.stem]


def test_peers_and_extras_are_imported_where_they_are_used():
    late = {"torch", "tensorflow", "jax", "rich", "matplotlib", "ml_dtypes"}
    code = f"import gradops._bench.cli, sys; print({late!r} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_only_the_dispatcher_loads_kernels():
    mentioning = {path.name for path in python_files() if re.search(r"import_module|__import__", path.read_text())}
    assert mentioning == {"_dispatch.py"}
    assert not [
        path.name
        for path in python_files()
        if re.search(rf"\b_kernels\.(?!{'|'.join(BUILT_ONCE)})\w+_", path.read_text())
    ]


def test_importing_gradops_imports_no_framework_and_no_kernel():
    code = "import gradops, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "jax", "tensorflow", "ml_dtypes", "scipy", "gradops.testing", "gradops._bench"} & set(modules)
    assert {name for name in modules if name.startswith("gradops._kernels.")} <= {
        f"gradops._kernels.{name}" for name in BUILT_ONCE
    }


def handlers(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            names = [node.type] if not isinstance(node.type, ast.Tuple) else node.type.elts
            yield from ("" if name is None else ast.unparse(name) for name in names)


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(SOURCES)))
def test_no_handler_hides_a_broken_build(path):
    assert not set(handlers(path)) & {"", "Exception", "BaseException", "ImportError", "ModuleNotFoundError"}


def kernel_sources():
    return sorted((REPOSITORY / "src" / "gradops" / "_kernels").glob("*.pyx"))


def kernel_parts():
    return sorted((REPOSITORY / "src" / "gradops" / "_kernels").glob("*.pxi"))


def kernels():
    return [path for path in kernel_sources() if path.stem not in BUILT_ONCE | LENT]


def code_of(path):
    """Return a file's text without comments and docstrings."""
    text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
    return re.sub(r"#.*", "", text)


def stems_of(path):
    """List the stems that CMake builds of a kernel file."""
    lines = re.findall(
        rf"^gradops_kernel\({path.stem}((?: \w+)*)\)", (REPOSITORY / "CMakeLists.txt").read_text(), re.MULTILINE
    )
    assert len(lines) == 1, f"{path.name} needs one gradops_kernel line in CMakeLists.txt"
    partial = re.findall(
        r"^ *gradops_build\(\S+ \S+ (\w+)(.*)\)", (REPOSITORY / "CMakeLists.txt").read_text(), re.MULTILINE
    )
    reals = [*lines[0].split(), *(real for real, stems in partial if path.stem in stems.split())]
    return {f"{path.stem}_{real}" for real in reals} or {path.stem}


@CHECKOUT
@pytest.mark.parametrize("path", kernel_sources(), ids=lambda path: path.stem)
def test_kernels_are_built_and_belong_to_an_op(path):
    if path.stem in BUILT_ONCE:
        assert f"gradops_runtime({path.stem})" in (REPOSITORY / "CMakeLists.txt").read_text()
        return
    if path.stem in LENT:
        assert stems_of(path) == {f"{path.stem}_{real}" for real in ("f32", "f64", "bf16")}
        return
    assert stems_of(path) <= MEASURING | {stem for op in OPS.values() for stem in op.stems}


@CHECKOUT
def test_ops_name_no_kernel_that_is_not_built():
    built = {stem for path in kernels() for stem in stems_of(path)}
    assert {stem for op in OPS.values() for stem in op.stems} | MEASURING == built


@CHECKOUT
@pytest.mark.parametrize("path", kernels(), ids=lambda path: path.stem)
def test_python_sees_no_function_of_a_kernel_but_its_entry(path):
    code = code_of(path)
    assert not re.search(r"^(?:def|cpdef|class)\b", code, re.MULTILINE)
    assert re.findall(r"^(\w+) = (.*?) *$", code, re.MULTILINE)[0] == ("entry", "exported(compute)")
    assert "numpy" not in code


@CHECKOUT
def test_what_kernels_borrow_has_no_door_but_its_capsules():
    for stem in LENT:
        code = code_of(REPOSITORY / "src" / "gradops" / "_kernels" / f"{stem}.pyx")
        assert not re.search(r"^(?:def|cpdef|class|entry)\b", code, re.MULTILINE)
        assert re.findall(r"^(\w+) = (\w+)\(", code, re.MULTILINE) == [
            ("widen_blocks", "lent"),
            ("narrow_blocks", "lent"),
        ]


@CHECKOUT
@pytest.mark.parametrize("path", kernels(), ids=lambda path: path.stem)
def test_kernels_borrow_what_they_call(path):
    parts = [part for part in kernel_parts() if part.stem.startswith(f"{path.stem}_")]
    calls = re.search(r"\b(?:widen_block|narrow_block)\(", "".join(map(code_of, [path, *parts])))
    borrows = re.findall(r"^borrow_blocks\(\)\nentry = ", code_of(path), re.MULTILINE)
    assert len(borrows) == bool(
        calls or re.search(rf"^from (?:{'|'.join(CALLING)}) cimport", code_of(path), re.MULTILINE)
    )


@CHECKOUT
def test_code_that_calls_what_is_borrowed_is_known():
    shared = [path for path in (REPOSITORY / "src" / "gradops" / "_kernels").glob("*.pxd") if path.stem != "_storage"]
    calling = {path.stem for path in shared if re.search(r"\b(?:widen_block|narrow_block)\(", code_of(path))}
    assert calling == CALLING


@CHECKOUT
@pytest.mark.parametrize("path", kernel_parts(), ids=lambda path: path.stem)
def test_a_part_of_a_kernel_is_included_by_that_alone(path):
    including = [whole.stem for whole in kernel_sources() if f'include "{path.name}"' in code_of(whole)]
    assert len(including) == 1
    assert path.stem.startswith(f"{including[0]}_")
    assert not re.search(r"^(?:def|cpdef|class|include)\b", code_of(path), re.MULTILINE)


@CHECKOUT
@pytest.mark.parametrize("path", [*kernel_sources(), *kernel_parts()], ids=lambda path: path.stem)
def test_kernels_share_only_code_without_a_module(path):
    shared = {name.stem for name in path.parent.glob("*.pxd")}
    imported = {name.split(".")[0] for name in re.findall(r"^(?:from|cimport)\s+([\w.]+)", code_of(path), re.MULTILINE)}
    assert imported <= shared | {"cpython", "cython", "libc", "openmp"} | (
        {"numpy"} if path.stem in BUILT_ONCE else set()
    )
    assert not re.search(r"^\s*import\b|^from\s+\S+\s+import\b", code_of(path), re.MULTILINE)


@CHECKOUT
def test_kernels_share_one_function_with_parallel_loops_without_the_gil():
    parallel = set()
    for path in (REPOSITORY / "src" / "gradops" / "_kernels").glob("*.p[xy][dxi]"):
        functions = [text for text in re.split(r"\n(?=\S)", code_of(path)) if "prange(" in text]
        assert all("noexcept nogil:" in text for text in functions)
        assert "omp_set_num_threads" not in code_of(path)
        parallel |= {path.name} if functions else set()
    assert parallel == {"_blocks.pxd", "_problem.pxd", "roof.pyx"}  # kernels, their clearing of results, measurements
    assert all(
        re.search(r"\b(do_blocks|do_both|sum_spans)\(", code_of(path)) for path in kernels() if path.stem != "roof"
    )


@CHECKOUT
def test_kernels_divide_as_c_does():
    """Python's division may raise: in a parallel loop, Cython has each thread take the GIL to be able to."""
    for path in (REPOSITORY / "src" / "gradops" / "_kernels").glob("*.p[xy][dx]"):
        assert "cdivision=True" in path.read_text().partition("\n")[0], path.name


@CHECKOUT
def test_no_pxd_has_a_pyx():
    folder = REPOSITORY / "src" / "gradops" / "_kernels"
    assert not {path.stem for path in folder.glob("*.pxd")} & {path.stem for path in folder.glob("*.pyx")}


def test_every_op_is_public():
    assert {op.name for op in OPS.values()} <= set(gradops.__all__)
    assert {op.raw_name for op in OPS.values()} <= set(gradops.raw_ops.__all__)
