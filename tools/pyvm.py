"""Runs CPython's own test modules with and without the bytecode VM and compares the results test by test.

    python3.12 tools/pyvm.py BUILD_DIR [--mode vm] [--jobs 2] [--timeout 300] [module ...]

BUILD_DIR holds the extension _tatara_vm for the running Python (tests/pyvm/build.sh makes one). Each module runs
twice, in processes of its own; only a difference counts as a failure, so a test that CPython itself fails here does not,
nor does one that fails in the same way under a frame evaluator that only calls CPython's own.
The exit status is 0 when all modules agree. `--baseline FILE` keeps the results without the VM between runs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MODULES = """
test_grammar test_opcodes test_dict test_list test_set test_generators test_generator_stop test_genexps test_coroutines
test_asyncgen test_exceptions test_class test_descr test_iter test_itertools test_functools test_contextlib
test_contextlib_async test_with test_unpack test_unpack_ex test_patma test_dataclasses test_enum test_collections
test_scope test_super test_call test_extcall test_keywordonlyarg test_positional_only_arg test_listcomps test_setcomps
test_dictcomps test_raise test_exception_group test_except_star test_exception_variations test_named_expressions
test_fstring test_string test_tuple test_range test_slice test_bool test_augassign test_compare test_decorators
test_dictviews test_global test_lambda test_yield_from test_pep479 test_frame test_traceback test_code test_compile
test_dynamic test_dynamicclassattribute test_property test_metaclass test_subclassinit test_typing test_types
test_type_params test_type_aliases test_type_annotations test_opcache test_userdict test_userlist test_userstring
test_operator test_richcmp test_binop test_unary test_pow test_int test_float test_complex test_bytes test_builtin
test_abc test_copy test_deque test_defaultdict test_ordered_dict test_heapq test_bisect test_weakref test_weakset
test_gc test_sys_settrace test_sys_setprofile test_monitoring test_sys test_inspect test_import test_importlib
test_context test_threading test_signal test_funcattrs test_closures test_syntax test_baseexception test_finalization
test_warnings test_reprlib test_json test_re test_pickle test_unittest test_asyncio test_capi test_dis test_io test_ast
test_concurrent_futures test_datetime test_decimal test_doctest test_logging test_math test_memoryview test_pathlib
test_pdb test_bdb test_trace test_profile test_cprofile test_random test_runpy test_sort test_struct test_thread
test_threading_local test_tokenize test_unparse
""".split()


def run_child(build_dir: str, module: str, mode: str, result_path: str) -> None:
    """Body of the child process: runs one module with unittest and writes {test id: outcome} as JSON."""
    # A shell's background job ignores interrupts and its children inherit that; tests of KeyboardInterrupt then spin for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, build_dir)
    import doctest
    import importlib
    import unittest

    vm = None
    if mode != "plain":
        import _tatara_vm as vm

    outcomes: dict[str, str] = {}

    class Recorder(unittest.TextTestResult):
        def _note(self, test: object, outcome: str) -> None:
            outcomes[str(getattr(test, "id", lambda: str(test))())] = outcome

        def addSuccess(self, test):
            super().addSuccess(test)
            self._note(test, "ok")

        def addFailure(self, test, err):
            super().addFailure(test, err)
            self._note(test, "fail")

        def addError(self, test, err):
            super().addError(test, err)
            self._note(test, "error")

        def addSkip(self, test, reason):
            super().addSkip(test, reason)
            self._note(test, "skip")

        def addExpectedFailure(self, test, err):
            super().addExpectedFailure(test, err)
            self._note(test, "xfail")

        def addUnexpectedSuccess(self, test):
            super().addUnexpectedSuccess(test)
            self._note(test, "xpass")

        def addSubTest(self, test, subtest, err):
            super().addSubTest(test, subtest, err)
            if err is not None:
                self._note(test, "fail")

    from test import support

    support.verbose = False
    support.use_resources = []
    # As the regression test runner does: a module's own idea of "this process" is __main__ with plain arguments.
    sys.argv = ["pyvm"]
    if mode == "vm":
        vm.enable()
    elif mode == "hook":
        vm.enable_hook_only()
    elif vm is not None:
        vm.observe(mode)
        vm.enable()
    loaded = importlib.import_module("test." + module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(loaded)
    stream = open(result_path + ".log", "w", encoding="utf-8", errors="replace")
    unittest.TextTestRunner(stream=stream, resultclass=Recorder, verbosity=2).run(suite)
    stats = None
    if mode not in ("plain", "hook"):
        vm.disable()
        vm.observe(None)
        stats = vm.stats()
    with open(result_path, "w", encoding="utf-8") as out:
        json.dump({"outcomes": outcomes, "stats": stats, "doctest": doctest.__name__}, out)


def run_module(build_dir: str, module: str, mode: str, timeout: float, keep: str | None) -> dict:
    """Runs one module in a child process; {'outcomes', 'stats', 'seconds', 'status'}."""
    with tempfile.TemporaryDirectory(prefix="pyvm-") as scratch:
        result_path = os.path.join(scratch, "result.json")
        command = [
            sys.executable,
            os.path.abspath(__file__),
            "--child",
            build_dir,
            module,
            mode,
            result_path,
        ]
        started = time.monotonic()
        environment = dict(os.environ, PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
        environment.pop("PYTHONPATH", None)
        output_path = os.path.join(scratch, "output.txt")
        with open(output_path, "wb") as output:
            process = subprocess.Popen(
                command,
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                returncode = process.wait(timeout)
                status = "done" if returncode == 0 else f"exit {returncode}"
            except subprocess.TimeoutExpired:
                status = "timeout"
            # Whatever the tests left running goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        result = {"outcomes": {}, "stats": None, "seconds": time.monotonic() - started, "status": status}
        if os.path.exists(result_path):
            with open(result_path, encoding="utf-8") as source:
                result.update(json.load(source))
            result["status"] = "done"
        if keep is not None:
            os.makedirs(keep, exist_ok=True)
            for path, ending in ((output_path, "out"), (result_path + ".log", "log")):
                if os.path.exists(path):
                    name = f"{module}.{mode}.{ending}"
                    with open(path, "rb") as source, open(os.path.join(keep, name), "wb") as copy:
                        copy.write(source.read())
        return result


def compare(plain: dict, vm: dict) -> list[str]:
    """Lines that name every difference between the two results."""
    lines = []
    if plain["status"] != vm["status"]:
        lines.append(f"status: {plain['status']} without, {vm['status']} with the VM")
    if not vm["outcomes"] and plain["outcomes"]:
        return lines
    for test in sorted(set(plain["outcomes"]) | set(vm["outcomes"])):
        before = plain["outcomes"].get(test, "missing")
        after = vm["outcomes"].get(test, "missing")
        if before != after:
            lines.append(f"{test}: {before} without, {after} with the VM")
    return lines


def is_about_specialisation(line: str) -> bool:
    """Tests that assert that CPython's evaluator specialised the code it ran; the VM never writes to code."""
    if line.startswith("test.test_dis."):
        return "specialize" in line or "test_show_caches" in line or "test_super_instructions" in line
    return line.startswith(
        (
            "test.test_opcache.TestRacesDoNotCrash.",
            "test.test_opcache.TestCallCache.",
            "test.test_monitoring.ExceptionMonitoringTest.test_no_unwind_for_shim_frame:",
        )
    )


def exists(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec("test." + module) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_dir")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each run of a module")
    parser.add_argument("--baseline", help="JSON file with results without the VM, read if there and extended")
    parser.add_argument("--keep", help="folder for the output and logs of every run")
    parser.add_argument(
        "--mode",
        default="vm",
        help="vm; hook: an evaluator that only calls CPython's; or an observer's name (tests/pyvm/stress_observer.h)",
    )
    arguments = parser.parse_args()
    mode = arguments.mode
    build_dir = os.path.abspath(arguments.build_dir)
    modules = [name for name in (arguments.modules or MODULES) if exists(name)]
    baseline: dict[str, dict] = {}
    if arguments.baseline and os.path.exists(arguments.baseline):
        with open(arguments.baseline, encoding="utf-8") as source:
            baseline = json.load(source)
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"CPython {version}, {len(modules)} modules")
    print(f"{'module':34} {'tests':>6} {'plain s':>8} {'VM s':>8} {'M instr':>8}  result", flush=True)
    bad = 0
    tests = 0
    again = []

    def both(module: str) -> tuple[dict, dict]:
        plain = baseline.get(module) or run_module(build_dir, module, "plain", arguments.timeout, arguments.keep)
        return plain, run_module(build_dir, module, mode, arguments.timeout, arguments.keep)

    def judged(module: str, plain: dict, vm: dict) -> tuple[list[str], int]:
        """The differences that are the VM's, and how many others there are."""
        differences = compare(plain, vm)
        known = 0
        if differences and mode != "hook":
            # What any PEP 523 hook changes (events of inlined generators, the C recursion limit) is not the VM's.
            hook = run_module(build_dir, module, "hook", arguments.timeout, arguments.keep)
            inherent = set(compare(plain, hook))
            mine = [line for line in differences if line not in inherent and not is_about_specialisation(line)]
            known = len(differences) - len(mine)
            differences = mine
        if not plain["outcomes"] and not differences:
            differences = [f"no tests ran: {plain['status']} without the VM"]
        return differences, known

    def report(module: str, plain: dict, vm: dict, verdict: str, differences: list[str]) -> None:
        instructions = (vm["stats"] or {}).get("instructions", 0) / 1e6
        print(
            f"{module:34} {len(plain['outcomes']):6} {plain['seconds']:8.1f} {vm['seconds']:8.1f}"
            f" {instructions:8.1f}  {verdict}"
        )
        for line in differences[:20]:
            print("    " + line)
        sys.stdout.flush()

    def verdict_of(differences: list[str], known: int) -> str:
        verdict = "same" if not differences else f"DIFFERENT ({len(differences)})"
        return verdict + (f" ({known} known: PEP 523 or specialisation)" if known else "")

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(both, module): module for module in modules}
        for future in concurrent.futures.as_completed(futures):
            module = futures[future]
            plain, vm = future.result()
            baseline[module] = plain
            differences, known = judged(module, plain, vm)
            tests += len(plain["outcomes"])
            if differences:
                again.append(module)
            report(module, plain, vm, verdict_of(differences, known), differences)

    # As CPython's own runner does with --rerun: tests of threads, timers and signals depend on what else runs. A module
    # that differed runs once more, by itself, and both results are shown.
    for module in again:
        baseline.pop(module)
        plain, vm = both(module)
        baseline[module] = plain
        differences, known = judged(module, plain, vm)
        bad += bool(differences)
        report(module, plain, vm, "alone: " + verdict_of(differences, known), differences)
    if arguments.baseline:
        with open(arguments.baseline, "w", encoding="utf-8") as out:
            json.dump(baseline, out)
    print(f"{len(modules)} modules, {tests} tests, {bad} modules differ")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        run_child(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5])
    else:
        sys.exit(main())
