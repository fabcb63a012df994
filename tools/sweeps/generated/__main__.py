"""`make fuzz`: runs generated programs in processes of their own, so that a crash or a hang is one finding and no end.

usage: python -m generated [CLASS ...] [--count N] [--start SEED] [-j JOBS] [--show SEED [--reduce SECONDS]] [--timeout SECONDS]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import traceback
from typing import Any

BLOCK = 250  # programs a process


def work(name: str, start: int, count: int, seconds: float) -> None:
    """Runs programs one after the other, a line of JSON before and after each."""
    import faulthandler

    from . import harness, registry

    def say(**what: Any) -> None:
        sys.__stdout__.write(json.dumps(what) + "\n")
        sys.__stdout__.flush()

    for seed in range(start, start + count):
        say(begin=seed)
        program = registry.make(name, seed)
        faulthandler.dump_traceback_later(seconds, exit=True)
        try:
            harness.compare(program)
        except harness.Differs as error:
            say(seed=seed, problem=str(error))
        except BaseException:
            say(seed=seed, problem="the harness failed: " + traceback.format_exc()[-1500:])
        faulthandler.cancel_dump_traceback_later()
    say(end=True)


def run_block(name: str, start: int, count: int, seconds: float) -> list[tuple[int, str]]:
    """The same in a process; a death ends one program only."""
    found = []
    end = start + count
    while start < end:
        command = [sys.executable, "-m", __package__, "--work", name, str(start), str(end - start), str(seconds)]
        paths = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)), OMP_NUM_THREADS="1")
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        last, ended = start - 1, False
        for line in done.stdout.splitlines():
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            last = said.get("begin", last)
            ended = ended or "end" in said
            if "problem" in said:
                found.append((said["seed"], said["problem"]))
        if ended:
            break
        tail = "\n".join(done.stderr.splitlines()[:30])
        found.append((max(last, start), f"the process ended ({done.returncode}):\n{tail}"))
        if last < start:
            break  # before its first program: so would the next
        start = last + 1
    return found


def main() -> int:
    """Runs the classes asked for and prints a line each; 1 if something differs."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
        return 0
    parser = argparse.ArgumentParser(prog="generated", description="Generated programs, compiled, beside eager.")
    parser.add_argument("classes", nargs="*", help="names of classes; none: all")
    parser.add_argument("--count", type=int, default=5000, help="programs a class (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (%(default)s)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a program may take (%(default)s)")
    parser.add_argument("--show", type=int, metavar="SEED", help="print this program and what differs")
    parser.add_argument("--most", type=int, default=10, help="findings to print a class (%(default)s)")
    parser.add_argument("--reduce", type=float, metavar="SECONDS", help="with --show: make the program smaller first")
    args = parser.parse_args()
    from . import harness, reduce, registry

    known = registry.classes()
    for name in args.classes:
        if name not in known:
            parser.error(f"no class {name}; there are: {', '.join(known)}")
    names = args.classes or list(known)
    if args.show is not None:
        for name in names:
            program = registry.make(name, args.show)
            if args.reduce:
                program = reduce.reduce(program, args.reduce)
            print(program.text())
            harness.compare(program)
            print("as in eager")
        return 0
    status = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name in names:
            starts = range(args.start, args.start + args.count, BLOCK)
            counts = [min(BLOCK, args.start + args.count - s) for s in starts]
            blocks = pool.map(lambda s, c, n=name: run_block(n, s, c, args.timeout), starts, counts)
            found = [each for block in blocks for each in block]
            print(f"{name}: {args.count} programs, {len(found)} differ", flush=True)
            for seed, problem in found[: args.most]:
                print(f"  --show {seed}: {problem[:1000]}", flush=True)
            status = status or bool(found)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
