"""The command line: tatara demo | env | explain FILE:FUNCTION | cache."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tatara import _core
from tatara._errors import Error, InvalidArgument
from tatara.report._svg import bytes_text

_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


def _version() -> str:
    import tatara

    return tatara.__version__


def _env(arguments: argparse.Namespace) -> int:
    print(f"tatara {_version()}")
    print(f"python {platform.python_version()}, {platform.platform()}")
    for name in ("torch", "numpy", "llvmlite", "transformers", "jinja2", "rich"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    if importlib.util.find_spec("torch") is not None:
        # Kernels run on torch's threads, so torch tells how many there are.
        import torch

        print(f"torch uses {torch.get_num_threads()} threads")
    for name, value in _core.machine().items():
        print(f"{name}: {value}")
    cache = _core.cache()
    print(f"cache: {cache['directory'] or 'off'} ({cache['entries']} entries, {bytes_text(cache['bytes'])})")
    if cache["directory"] and cache["why_not"]:
        print(f"  not used: {cache['why_not']}")
    print("options (also tatara.config.NAME, or the environment):")
    for name, doc, _ in _core.option_names():
        print(f"  {name} = {_core.option(name)!r}   {doc}")
    return 0


def _load(target: str) -> tuple[Any, Any]:
    """The module of FILE and the object that FUNCTION names in it (dots allowed)."""
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise InvalidArgument(f"explain takes FILE:FUNCTION, not {target!r}")
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Beside the file are the modules that it imports.
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InvalidArgument(f"{error.filename or path}:{error.lineno}: {error.msg}") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            functions = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
            raise InvalidArgument(f"{path} has no {name!r}; it has: {', '.join(functions) or 'no functions'}")
        found = getattr(found, part)
    return module, found


def _tensor(text: str) -> Any:
    """`f32[4,128]`: a tensor of random numbers; `i64[4,128]<1000`: of integers below 1000."""
    import torch

    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\](?:<(\d+))?", text.strip())
    dtype = getattr(torch, _DTYPES.get(match[1], match[1]), None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise InvalidArgument(f"--input takes a dtype and sizes such as f32[4,128] or i64[4]<1000, not {text!r}")
    sizes = [int(part) for part in match[2].split(",") if part.strip()]
    if dtype == torch.bool:
        return torch.rand(sizes) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, int(match[3] or 10), sizes, dtype=dtype)
    return torch.randn(sizes, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)


def _page_path(path: str) -> str:
    """`path`, where a page can be written; asked for before the work."""
    directory = Path(path).resolve().parent
    if Path(path).is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise InvalidArgument(f"no page can be written to {path}")
    return path


def _check_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The arguments fit the signature, where there is one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArgument(
            f"{getattr(function, '__name__', function)}{signature}: {error}; give --input once for each argument, or "
            "define `inputs` in the file"
        ) from error


def _explain(arguments: argparse.Namespace) -> int:
    import tatara

    if arguments.html:
        _page_path(arguments.html)
    module, function = _load(arguments.target)
    if isinstance(function, type):
        raise InvalidArgument(f"{function.__name__} is a class: name an instance or a function")
    inputs: Any = [_tensor(text) for text in arguments.input]
    if not inputs:
        given = getattr(module, "inputs", ())
        inputs = given() if callable(given) else given
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
    if callable(function):
        _check_call(function, args, kwargs)
    no_grad: Any = contextlib.nullcontext()
    torch = sys.modules.get("torch")
    if torch is not None and not arguments.grad:
        no_grad = torch.no_grad()
    with no_grad:
        report = tatara.explain(function, fullgraph=arguments.fullgraph)(*args, **kwargs)
    print(report)
    if arguments.html:
        report.save(arguments.html)
        print(f"report: {arguments.html}")
    return 0


def _cache(arguments: argparse.Namespace) -> int:
    cache = _core.cache()
    if not cache["directory"]:
        print("the cache is off (option cache), or there is no home directory for it")
        return 0
    print(f"{cache['directory']}: {cache['entries']} entries, {bytes_text(cache['bytes'])}")
    if cache["why_not"]:
        print(f"not used: {cache['why_not']}")
        return 1 if arguments.clear else 0
    if cache["key"]:
        print(f"its entries are sealed with the key {cache['key']}")
    if arguments.clear:
        _core.clear_cache()
        print(f"cleared: {_core.cache()['entries']} entries are left")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from tatara._demo import run

    return run(_page_path(arguments.html), arguments.rounds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tatara", description="A compiler for tensor programs in Python.")
    parser.add_argument("--version", action="version", version=f"tatara {_version()}")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    demo = command("demo", _demo, "Compile a 4-layer BERT and a GPT-2 with random weights and compare with eager.")
    demo.add_argument("--html", default="report.html", help="where the report goes (default: %(default)s)")
    demo.add_argument("--rounds", type=int, default=7, help="timed calls of each (default: %(default)s)")
    command("env", _env, "Versions, machine, cache and options.")
    explain = command("explain", _explain, "Run one function of a file compiled and say what became of it.")
    explain.add_argument("target", metavar="FILE:FUNCTION", help="a function, method or module instance of the file")
    explain.add_argument(
        "--input", action="append", default=[], metavar="DTYPE[SIZES]",
        help="a random tensor, f32[4,128] or i64[4,128]<1000; once per argument. Without: `inputs` of the file, a "
        "function or a value: a sequence of arguments, or a dict of keywords",
    )  # fmt: skip
    explain.add_argument("--html", metavar="PATH", help="also write the report as a page")
    explain.add_argument("--fullgraph", action="store_true", help="fail at a graph break")
    explain.add_argument("--grad", action="store_true", help="do not switch gradients off")
    cache = command("cache", _cache, "Place and size of the disk cache, and why it is not used where it is not.")
    cache.add_argument("--clear", action="store_true", help="remove every entry")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `tatara` command: 0, 1 when the demo finds a wrong result or the reader of the output is gone, 2 for
    a wrong call.
    """
    arguments = _parser().parse_args(argv)
    try:
        result = int(arguments.run(arguments))
        sys.stdout.flush()
        return result
    except BrokenPipeError:
        # As in `tatara env | head`: nobody wants the rest, nor what the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Error as error:
        print(f"tatara: {error}", file=sys.stderr)
        return 2
