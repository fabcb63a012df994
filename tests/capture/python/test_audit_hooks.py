"""Audit hooks in Python look at a program, and filelock, which torch loads, has one: what they do is no part of a trace.

The interpreter calls them also where the tracer itself reads an attribute or imports a module.
"""

import pytest

import forked

PROGRAM = """
import os, sys
import torch, tatara

events, watching, total = [], False, torch.zeros(())

class Vetoed(Exception):
    pass

def hook(event, args):
    global watching
    if watching:
        watching = False
        events.append(event)
        {body}
        watching = True

sys.addaudithook(hook)

def transform(x):
    return torch.vmap(lambda row: row.sin() * 2)(x) + 1

def identity(x):
    y = x * 2
    id(y)
    return y + 1

def code(x):
    y = x * 2
    transform.__code__
    return y + 1

def opened(x):
    y = x * 2
    open(os.devnull).close()
    return y + 1

def outcome(f, x):
    global watching
    watching = True
    try:
        return f(x)
    except Vetoed as error:
        return str(error)
    finally:
        watching = False

for f in (transform, identity, code, opened):
    compiled = tatara.compile(f)
    for call in range(3):
        x = torch.full((3, 3), float(call))
        count = len(events)
        found = outcome(compiled, x)
        assert call > 0 or len(events) > count, (f.__name__, "the hook was not called")
        wanted = outcome(f, x)
        same = torch.equal(found, wanted) if isinstance(wanted, torch.Tensor) else found == wanted
        assert same, (f.__name__, call, found, wanted)
    assert not {counts} or total.item() == len(events), (total, len(events))
    if f is not opened and not {vetoes}:
        watching = True
        report = tatara.explain(f)(x)
        watching = False
        assert len(report.graphs) == 1 and not report.breaks, str(report)
print("done")
"""

# What a hook does, whether it adds to `total` each time, and whether it ends a call.
HOOKS = {
    "looks": ("pass", False, False),
    "calls_c_code": ("os.getpid()", False, False),
    "prints": ("print(event, file=sys.stderr)", False, False),
    "writes_a_tensor": ("total.add_(1)", True, False),
    "raises": (
        "if event == 'open' and args[0] == os.devnull:\n            watching = True\n            raise Vetoed(event)",
        False,
        True,
    ),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_what_an_audit_hook_does_is_no_part_of_the_trace(hook: str) -> None:
    body, counts, vetoes = HOOKS[hook]
    source = PROGRAM.format(body=body, counts=counts, vetoes=vetoes)
    done = forked.run(["-c", source])
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout[-2000:] + done.stderr[-4000:]
