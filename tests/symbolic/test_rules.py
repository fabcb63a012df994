"""Z3 proves the table of rewrite rules, and a sample of the uses that random programs made of them.

The C++ tests write both files: the table is the one the rules' names come from, and every use is written where the
rewrite happens. So a rule that is wrong, or right but applied where its condition does not hold, fails here.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

z3 = pytest.importorskip("z3")

from z3_text import check  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_PER_RULE = 25


def unit_tests() -> Path:
    """The C++ test program: TATARA_UNIT_TESTS, or the newest in the build folders."""
    if named := os.environ.get("TATARA_UNIT_TESTS"):
        return Path(named)
    found = sorted(ROOT.glob("build/*/tests/unit/tatara_unit_tests"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("the C++ tests are not built (make build), and TATARA_UNIT_TESTS is not set")
    return found[-1]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], list[dict]]:
    folder = tmp_path_factory.mktemp("rules")
    env = dict(
        os.environ,
        TATARA_SYMBOLIC_RULES=str(folder / "rules.jsonl"),
        TATARA_SYMBOLIC_REWRITES=str(folder / "rewrites.jsonl"),
    )
    program = unit_tests()
    subprocess.run([program, "--filter=SymbolicRules.Table"], check=True, env=env, capture_output=True)
    subprocess.run([program, "--filter=SymbolicRandom.ValuesStay"], check=True, env=env, capture_output=True)

    def read(name: str) -> list[dict]:
        return [json.loads(line) for line in (folder / name).read_text().splitlines()]

    return read("rules.jsonl"), read("rewrites.jsonl")


def test_rules_hold(dump: tuple[list[dict], list[dict]]) -> None:
    """Every rule holds for all integers that meet its condition (unbounded, symbolic divisors included)."""
    rules, _ = dump
    assert len(rules) > 25
    failed = []
    for rule in rules:
        via = [step.strip() for step in rule["via"].split(";") if step.strip()]
        steps = [rule["lhs"], *via, rule["rhs"]]
        where = [rule["where"]] if rule["where"] else []
        for lhs, rhs in zip(steps, steps[1:], strict=False):
            verdict = check(lhs, rhs, where, timeout_ms=30000)
            if verdict != "proved":
                failed.append(f"{rule['rule']}: {lhs} is {rhs} where {where}: {verdict}")
    assert not failed, "\n".join(failed)


def test_uses_hold(dump: tuple[list[dict], list[dict]]) -> None:
    """The uses of each rule are right under the ranges and facts known then. None may be false; few may time out."""
    rules, rewrites = dump
    by_rule: dict[str, dict[tuple, dict]] = {rule["rule"]: {} for rule in rules}
    for rewrite in rewrites:
        by_rule[rewrite["rule"]].setdefault((rewrite["before"], rewrite["after"]), rewrite)
    proved, unknown, wrong = 0, [], []
    for uses in by_rule.values():
        chosen = sorted(uses.values(), key=lambda use: (len(use["before"]), use["before"]))
        step = max(1, len(chosen) // SAMPLE_PER_RULE)
        for use in chosen[::step][:SAMPLE_PER_RULE]:
            where = list(use["facts"])
            where += [f"{low} <= {name} and {name} <= {high}" for name, (low, high) in use["ranges"].items()]
            verdict = check(use["before"], use["after"], where, timeout_ms=500)
            text = (
                f"{use['rule']} (seed {use['seed']}): {use['before']} -> {use['after']} where {use['facts']}: {verdict}"
            )
            if verdict == "proved":
                proved += 1
            elif verdict == "unknown":
                unknown.append(text)
            else:
                wrong.append(text)
    assert not wrong, "\n".join(wrong)
    assert proved > 300
    assert len(unknown) < 0.2 * (proved + len(unknown)), "\n".join(unknown)


@pytest.mark.parametrize(
    ("lhs", "rhs", "where"),
    [
        ("(x // d) // c", "x // (d*c)", "d != 0 and c != 0"),  # needs c > 0
        ("a // b", "(-a) // b", "b > 0"),
        ("(4*x + y) // 8", "x // 2", "0 <= y and y <= 4"),  # y may be 4
        ("-7 // x", "-(7 // x)", "x > 1"),
    ],
)
def test_wrong_rules_are_found(lhs: str, rhs: str, where: str) -> None:
    """The proof can fail."""
    assert check(lhs, rhs, [where], timeout_ms=60000).startswith("false")


def test_division_is_pythons() -> None:
    """The reading of // and % agrees with Python on small numbers."""
    for a in range(-7, 8):
        for b in (-4, -3, -1, 1, 2, 5):
            assert check(f"({a}) // ({b})", str(a // b), []) == "proved"
            assert check(f"({a}) % ({b})", str(a % b), []) == "proved"
            assert check("x // y", str(a // b), [f"x == {a}", f"y == {b}"]) == "proved"
