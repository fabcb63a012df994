"""Programs on a torch that lacks one of the private functions that Tatara's sources name.

usage: private_functions.py [--few] [NAME ...]

torch's private functions may be gone with its next version. Prints a line for each: "works" (as eager), "eager: REASON" (as
eager, and the report says why), "refused: ERROR" (a tatara.Error when it is imported), "host: ERROR" (torch itself cannot do
without it: eager fails with the same error), or what is wrong. Each is tried in a process of its own, split off from one that
has imported torch and computed what eager gives.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._decomp.decompositions_for_jvp  # compiles functions of its own
import torch.autograd.forward_ad
import torch.utils.checkpoint

ROOT = Path(__file__).resolve().parents[2]
# Where private functions live. C's types cannot be changed, so methods of tensors are not among these.
PLACES: dict[str, Any] = {
    "torch": torch,
    "torch._C": torch._C,
    "torch._C._functorch": torch._C._functorch,
    "torch._C._autograd": torch._C._autograd,
    "torch._C._aoti": torch._C._aoti,
}


def names() -> Iterator[str]:
    """Full names of the functions, from the words of our sources."""
    words: set[str] = set()
    for folder in ("src", "python/tatara"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cpp", ".h", ".inc") or path.name == "known_calls.def":
                words |= set(re.findall(r"\w+", path.read_text()))
    for place, holder in PLACES.items():
        private = place.startswith("torch._C._")
        for word in sorted(words):
            value = vars(holder).get(word)
            if (private or word.startswith("_")) and not word.startswith("__") and callable(value):
                yield f"{place}.{word}"


def _affine(x: Any, w: Any) -> Any:
    return torch.softmax(x @ w + 1, -1).sum(0)


def _breaks(x: Any, w: Any) -> Any:
    y = x * 2
    if y.sum().item() > 0:
        y = y - w[0, 0]
    return (y, torch.nonzero(y > 1), y.tolist())


def _train(x: Any, w: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(x).sum().backward()
    optimizer.step()
    return [p.detach() for p in model.parameters()]


def _leaf(x: Any, w: Any) -> Any:
    v = w.detach().requires_grad_()
    torch.tanh(x @ v).sum().backward()
    return v.grad


def _random(x: Any, w: Any) -> Any:
    torch.manual_seed(3)
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(3, 4) + torch.bernoulli(torch.full((3, 4), 0.5))


def _transforms(x: Any, w: Any) -> Any:
    gradient = torch.func.grad(lambda v: (v * v).sum())(x)
    _, tangent = torch.func.jvp(torch.sin, (x,), (x,))
    return gradient, tangent, torch.func.vmap(lambda row: row.sum() + row)(x)


def _modes(x: Any, w: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    with torch.no_grad():
        z = y * 2
    with torch.inference_mode():
        return z + 1


def _checkpointed(x: Any, w: Any) -> Any:
    v = w.detach().requires_grad_()
    y = torch.utils.checkpoint.checkpoint(lambda a: torch.relu(a @ v), x, use_reentrant=False)
    y.sum().backward()
    return y.detach(), v.grad


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def _function(x: Any, w: Any) -> Any:
    v = w.detach().requires_grad_()
    return torch.autograd.grad(_Twice.apply(v).sum(), v)[0]


def _writes(x: Any, w: Any) -> Any:
    y = x.clone()
    y.add_(1)
    y[0] = 3
    return y, y.T, y.contiguous().view(-1)[1:3]


def _dual(x: Any, w: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(torch.autograd.forward_ad.make_dual(x, x) * 2).tangent


def _attention(x: Any, w: Any) -> Any:
    a = x.reshape(1, 1, 3, 4)
    return torch.nn.functional.scaled_dot_product_attention(a, a, a), torch.nn.functional.layer_norm(x, (4,))


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    function.__name__: function
    for function in (
        _affine, _breaks, _train, _leaf, _random, _transforms, _modes, _checkpointed, _function, _writes, _dual, _attention
    )
}  # fmt: skip


def inputs() -> tuple[Any, Any]:
    return torch.arange(12.0).reshape(3, 4) / 7 - 0.3, torch.arange(16.0).reshape(4, 4) / 9 - 1


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [value.detach().double().tolist(), str(value.dtype)]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-4 * (1 + abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == b)


def result_of(run: Callable[[], Any]) -> Any:
    try:
        return plain(run())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return f"raises {type(error).__name__}: {error}"


def remove(name: str) -> None:
    place, _, word = name.rpartition(".")
    delattr(PLACES[place], word)


def tried(name: str, expected: dict[str, Any]) -> str:
    """The verdict on one function."""
    warnings.simplefilter("ignore")
    remove(name)
    try:
        import tatara
    except Exception as error:  # noqa: BLE001 - the type is judged
        ours = any(kind.__module__ == "tatara._errors" for kind in type(error).__mro__)
        return f"{'refused' if ours else 'WRONG at import'}: {type(error).__name__}: {error}"
    reasons: list[str] = []
    for program, function in PROGRAMS.items():
        eager = result_of(lambda: function(*inputs()))  # noqa: B023
        compiled = tatara.compile(function)
        for call in range(3):
            got = result_of(lambda: compiled(*inputs()))  # noqa: B023
            # Where torch cannot do without the function either, its errors need not be the same each time.
            excused = close(got, expected[program]) or (eager != expected[program] and str(got).startswith("raises"))
            if not close(got, eager) and not excused:
                return f"WRONG: {program}, call {call}: {got}, eager: {eager}"
        if eager != expected[program] and not close(eager, expected[program]):
            reasons.append(f"host: {program} {eager}")
            continue
        report = tatara.explain(function)(*inputs())
        reasons += [f"eager: {g.fallback}" for g in report.graphs if g.fallback]
        reasons += [f"eager: {each.reason}" for each in report.breaks if "lacks" in each.reason]
    return min(reasons, key=len) if reasons else "works"


def forked(run: Callable[[], str]) -> str:
    """What `run` gives, in a child of this process; how that ended, if not well."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            os.write(write, run().encode("utf-8", "replace")[:60000])
            status = 0
        except BaseException:  # noqa: BLE001 - the parent tells
            os.write(write, f"WRONG: {traceback.format_exc()}".encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return text if code == 0 else f"WRONG: exit {code} {text}"


def main() -> int:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])  # imports for seconds, once
    wanted = [word for word in sys.argv[1:] if word != "--few"]
    if "--few" in sys.argv:
        for program in set(PROGRAMS) - {"_affine", "_leaf", "_transforms", "_modes"}:
            del PROGRAMS[program]
    chosen = [name for name in names() if not wanted or any(word in name for word in wanted)]
    bad = 0
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TATARA_CACHE_DIR"] = cache
        # In a child, so that this process has run nothing.
        expected = json.loads(
            forked(lambda: json.dumps({n: result_of(lambda f=f: f(*inputs())) for n, f in PROGRAMS.items()}))
        )
        for name in chosen:
            verdict = forked(lambda: tried(name, expected))  # noqa: B023
            bad += verdict.startswith("WRONG")
            print(f"{name}: {verdict[:600]}", flush=True)
    print(f"{len(chosen)} functions, {bad} wrong")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
