"""The package's Python code that the core calls (src/capture/**/package.def) is there, and takes what it is called with."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re

import pytest

pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
(TABLE,) = (ROOT / "src" / "capture").rglob("package.def")
TEXT = "\n".join(line.split("//")[0] for line in TABLE.read_text().splitlines())
MODULES = {
    name: (module, file) for name, module, file in re.findall(r'^PACKAGE_MODULE\((\w+), "(.+)", "(.+)"\)', TEXT, re.M)
}
FUNCTIONS = re.findall(r'^PACKAGE_FUNCTION\((\w+), \w+, "(\w+)", (\d+)\)', TEXT, re.M)
STAND_INS = re.findall(r'^PACKAGE_STAND_IN\((\w+), \w+, "(\w+)"\)', TEXT, re.M)


def test_the_table_is_read_in_full() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("PACKAGE_")]
    assert len(rows) == len(MODULES) + len(FUNCTIONS) + len(STAND_INS)
    assert {module for module, *_ in [*FUNCTIONS, *STAND_INS]} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_there(name: str) -> None:
    module, file = MODULES[name]
    assert file == "/" + module.replace(".", "/") + ".py"
    assert str(importlib.import_module(module).__file__).endswith(file)


@pytest.mark.parametrize(("name", "function", "arguments"), FUNCTIONS, ids=lambda text: str(text))
def test_a_function_takes_the_arguments(name: str, function: str, arguments: str) -> None:
    found = getattr(importlib.import_module(MODULES[name][0]), function)
    if isinstance(found, type) and issubclass(found, Exception):
        assert str(found(*["text"] * int(arguments))) == "text"
    else:
        inspect.signature(found).bind(*range(int(arguments)))


@pytest.mark.parametrize(("name", "function"), STAND_INS)
def test_a_stand_in_is_there(name: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(MODULES[name][0]), function))


def test_no_other_source_names_the_package() -> None:
    named = re.compile(r'"/?tatara[./](torch|report|_(?!core\b)\w)')
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in (".cpp", ".h", ".def", ".inc") and path != TABLE:
            assert not named.search(path.read_text()), path
