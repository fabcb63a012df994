"""The command line: tatara demo | env | explain FILE:FUNCTION | cache."""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any


def _env() -> int:
    import tatara
    from tatara import _core

    print(f"tatara {tatara.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in ("torch", "numpy", "llvmlite", "transformers"):
        spec = importlib.util.find_spec(name)
        version = getattr(__import__(name), "__version__", "?") if spec is not None else "not installed"
        print(f"{name}: {version}")
    for name, doc, _ in _core.option_names():
        print(f"{name} = {_core.option(name)!r}   # {doc}")
    return 0


def _load(target: str) -> Any:
    path, _, name = target.rpartition(":")
    if not path:
        raise SystemExit("explain takes FILE:FUNCTION")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module, getattr(module, name)


def _explain(target: str, html: str | None) -> int:
    import tatara

    module, function = _load(target)
    inputs = getattr(module, "inputs", None)
    args = inputs() if callable(inputs) else (inputs or ())
    report = tatara.explain(function)(*args)
    print(report)
    if html:
        report.save(html)
    return 0


def _cache(clear: bool) -> int:
    import tatara

    root = Path(str(tatara.config.cache_dir) or "").expanduser()
    files = [p for p in root.rglob("*") if p.is_file()] if str(root) and root.is_dir() else []
    print(f"{root}: {len(files)} files, {sum(p.stat().st_size for p in files) / 1e6:.1f} MB")
    if clear:
        for path in files:
            path.unlink(missing_ok=True)
        print("cleared")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `tatara` command."""
    import tatara

    try:
        return _run(argv)
    except tatara.Error as error:
        print(f"tatara: {error}", file=sys.stderr)
        return 2


def _run(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="tatara", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="compile a 4-layer BERT and GPT-2 and compare with eager")
    demo.add_argument("--html", default="report.html")
    demo.add_argument("--rounds", type=int, default=7)
    commands.add_parser("env", help="versions and options")
    explain = commands.add_parser("explain", help="FILE:FUNCTION; the file may define inputs() or inputs")
    explain.add_argument("target")
    explain.add_argument("--html")
    cache = commands.add_parser("cache", help="size of the disk cache")
    cache.add_argument("--clear", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.command == "demo":
        from tatara._demo import run

        return run(arguments.html, arguments.rounds)
    if arguments.command == "env":
        return _env()
    if arguments.command == "explain":
        return _explain(arguments.target, arguments.html)
    return _cache(arguments.clear)


if __name__ == "__main__":
    raise SystemExit(main())
