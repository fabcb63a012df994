"""Values of every option, good and bad, by every way to set it: a bad one is refused with words that help, and changes nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import numpy as np
import tatara
from tatara import _core

_FILE = str(Path(__file__))
_TEXTS = ["a\0b", "\ud800"]
_PATHS = ["/dev/null/below", _FILE + "/below", _FILE]
_COUNTS = [-1, -(2**63), 2**31, 2**63, 2**200]
# Of the option's own type.
_BAD: dict[str, list[Any]] = {
    "log": ["fusoin", "fusion,,guards", "fusion guards", "ALL", *_TEXTS],
    "dump": [*_PATHS, *_TEXTS],
    "disable": ["fuse", "dce,nonsense", "**", *_TEXTS],
    "cache": [],
    "cache_dir": _TEXTS,  # where it cannot be there is no cache
    "cache_size_mb": _COUNTS,
    "num_threads": [*_COUNTS, 4097],
    "compile_threads": [*_COUNTS, 4097],
    "verify": [],
    "llvm": ["/no/such/library.so", "/", *_TEXTS],
    "opt_level": [*_COUNTS, 4],
    "cpu": ["foo", "help", "i386", "pentium4", "native", "ZNVER4", " ", "x86-64,", *_TEXTS],
    "cpu_features": ["junk", "+junk", "help", "+help", "avx2", "-sse2", "-64bit", "+avx2,junk", "+", ",", *_TEXTS],
    "vector_width": [*_COUNTS, 1, 64, 100, 1024],
    "fallback": [],
    "keep_outputs_mb": _COUNTS,
    "recompile_limit": [*_COUNTS, 0],
    "cuda_graphs": _COUNTS,
    "matmul": ["", "Native", "auto,host", *_TEXTS],
}
_ANYTHING = [None, 3.5, (), [1], {"a": 1}, object, b"1", np.int64(1), np.bool_(True), "", "1", 1, True]
_SCOPES = {name: scope for name, _, scope in _core.option_names()}


def _allowed() -> list[tuple[str, Any]]:
    """Every option with each of its bad values."""
    cases = []
    for name in _SCOPES:
        kind = type(_core.option(name))
        cases += [(name, value) for value in [*_BAD[name], *(each for each in _ANYTHING if type(each) is not kind)]]
    return cases


def _f(x: Any) -> Any:
    return np.sqrt(x) + 1


def _check(error: BaseException, name: str, value: Any) -> None:
    assert isinstance(error, tatara.InvalidArgument)
    text = str(error)
    assert name in text
    assert str(value).split("\0")[0] in text or repr(value) in text
    assert re.search(r"takes \S", text) or "is for the whole process" in text


def _ways(name: str, value: Any) -> Iterator[Any]:
    yield lambda: setattr(tatara.config, name, value)
    yield lambda: tatara.config.patch(**{name: value}).__enter__()
    yield lambda: tatara.compile(_f, options={name: value})


def test_every_option_has_bad_values() -> None:
    assert set(_BAD) == set(_SCOPES)


@pytest.mark.parametrize("name", list(_SCOPES))
def test_bad_values_are_refused(name: str) -> None:
    before = tatara.config.as_dict()
    cases = [value for each, value in _allowed() if each == name]
    assert len(cases) >= 9
    for value in cases:
        for way in _ways(name, value):
            with pytest.raises(tatara.InvalidArgument) as info:
                way()
            _check(info.value, name, value)
        assert tatara.config.as_dict() == before


def _texts(name: str) -> list[str]:
    """What a variable of the environment can hold of the bad values."""
    texts = [str(value) for value in _BAD[name] if str(value) not in _TEXTS]
    if name not in ("dump", "cache_dir", "llvm"):
        texts.append("\udcff")  # a byte that is no text
    if type(_core.option(name)) is not str:
        texts += ["perhaps", "1.5", "--1", "0x1", "1 2"]
    return texts


@pytest.mark.parametrize("name", list(_SCOPES))
def test_bad_variables_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"TATARA_{name.upper()}"
    before = _core.option(name)
    for text in _texts(name):
        monkeypatch.setenv(variable, text)
        with pytest.raises(tatara.InvalidArgument) as info:
            tatara.config.reset(name)
        assert variable in str(info.value)
        assert "takes" in str(info.value)
        assert text in str(info.value) or text == "\udcff"
        assert _core.option(name) == before


def _python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "text"), [("cpu", "foo"), ("opt_level", "9"), ("log", "x"), ("cpu_features", "junk"), ("cache", "x")]
)
def test_bad_variables_are_found_at_import(name: str, text: str) -> None:
    done = _python("import tatara", **{f"TATARA_{name.upper()}": text})
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "InvalidArgument" in last
    assert f"TATARA_{name.upper()}" in last
    assert repr(text) in last


_RUN = """
import numpy as np, tatara
from tatara import _core
tatara.config.cache = False
def f(x, y):
    z = np.exp(-x) * y + np.sqrt(x)
    return z.sum(axis=1), np.where(z > 1, z, x).astype(np.float32), (x * 3).astype(np.int64) // 2
x, y = np.linspace(0.1, 4, 629).reshape(17, 37), np.linspace(1, 3, 37)
wanted = f(x, y)
def words(option):
    return _core.option_takes(option), None
def refused(option, value):
    try:
        _core.check_option(option, value)
    except tatara.InvalidArgument as error:
        return str(error)
def listed(option):
    return refused(option, "?").split(" of ", 1)[1].split(", not '")[0].split(", ")
def run(**options):
    got = tatara.compile(f, options=options)(x, y)
    for a, b in zip(wanted, got):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    fallback = tatara.explain(tatara.compile(f, options=options))(x, y).graphs[0].fallback
    assert not fallback, (options, fallback)
"""


def test_no_allowed_cpu_or_feature_ends_the_process() -> None:
    """Newer CPUs than this machine among them."""
    script = """
cpus, features = listed("cpu"), listed("cpu_features")
for each in cpus:
    run(cpu=each)
for each in features:
    run(cpu_features=each)
run(cpu="x86-64" if "x86-64" in cpus else "generic", cpu_features=features[0], vector_width=128, opt_level=3)
print(len(cpus), len(features))
"""
    done = _python(_RUN + script)
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # where LLVM says what it does not know
    cpus, features = map(int, done.stdout.split())
    assert cpus >= 1
    assert features >= 10


def test_every_allowed_number_and_word_runs() -> None:
    script = """
for level in range(4):
    run(opt_level=level)
for bits in (0, 128, 256, 512):
    run(vector_width=bits)
for name in listed("disable"):
    tatara.compile(f, options={"disable": name})(x, y)
for limit in (1, 2**30):
    run(recompile_limit=limit, keep_outputs_mb=limit, cuda_graphs=limit)
run(keep_outputs_mb=0, cuda_graphs=0)
"""
    done = _python(_RUN + script)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif("x86_64" not in os.uname().machine, reason="the table is for x86-64")
def test_cpus_are_those_of_llvm() -> None:
    """The table in src/runtime/jit/cpu_options.cpp: all that LLVM knows, less spellings with _ and 32-bit processors."""
    script = """
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="help")
"""
    printed = _python(script).stderr.split("Available features")[0]
    known = set(re.findall(r"^\s+(\S+)\s+-", printed, re.MULTILINE))
    assert len(known) > 50
    old = re.compile(r"i\d86|pentium.*|athlon(-(4|mp|tbird|xp))?|c3.*|geode|k6.*|lakemont|prescott|winchip.*|yonah")
    with pytest.raises(tatara.InvalidArgument) as info:
        tatara.config.cpu = "?"
    listed = set(str(info.value).split("one of ")[1].split(", not '")[0].split(", "))
    assert listed == {name for name in known if "_" not in name and not old.fullmatch(name)}


_F = _f
_ARGUMENTS: list[tuple[str, Any, Any]] = [
    *(("model", value, lambda v: tatara.compile(v)) for value in (3, "f", [], 0.5, property(_f), dict)),
    *(("fullgraph", value, lambda v: tatara.compile(_F, fullgraph=v)) for value in (None, 0, 1, "yes", [], np.True_)),
    *(("dynamic", value, lambda v: tatara.compile(_F, dynamic=v)) for value in (0, 1, "auto", [], 0.5, np.True_)),
    *(("backend", value, lambda v: tatara.compile(_F, backend=v)) for value in (None, 3, "", "inductor", [], b"eager")),
    *(("options", value, lambda v: tatara.compile(_F, options=v)) for value in (3, "", [], [("cpu", "")], {3}, b"")),
    *(("option", key, lambda k: tatara.compile(_F, options={k: 1})) for key in ("", "optlevel", 3, None, (), "cpu ")),
    *(("disable", value, tatara.disable) for value in (3, "f", [])),
]


@pytest.mark.parametrize(("argument", "value", "call"), _ARGUMENTS)
def test_bad_arguments(argument: str, value: Any, call: Any) -> None:
    with pytest.raises(tatara.InvalidArgument) as info:
        call(value)
    if not isinstance(value, property | type):
        assert repr(value) in str(info.value)
    assert argument in str(info.value) or argument == "model"


def test_bad_dimensions() -> None:
    for tensor, dimension in [(np.ones(3), 1), (np.ones(3), -2), (np.ones(3), 0.5), (np.ones(3), (0, 1)), (3, 0)]:
        with pytest.raises(tatara.InvalidArgument, match="mark_dynamic takes"):
            tatara.mark_dynamic(tensor, dimension)
