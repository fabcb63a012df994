"""Numbers that change from call to call (and so are placeholders while a program is traced), given to all that reads numbers."""

from __future__ import annotations

import random

from .harness import Program
from .numbers_expressions import ANY
from .numbers_sources import INDENTED, PRELUDE
from .registry import program_class

INTS = [[2, 3, 5, 7], [3, 4, 3, 5], [1, 2, 3, 0], [0, 1, 2, 5], [5, -2, 3, -1], [2, 3, 10**30, 4], [4, 6, -(10**25), 8],
        [3, 5, 2**63 - 1, 2**63], [7, 8, 2**40 + 1, 9], [2, 3, True, 4], [True, False, 2, 3], [255, 256, 257, 300], [2, 3, 2.5, 4],
        [1, 2.0, 2, 3], [6, 7, None, 8], [2, 3, "a", 4], [-5, -6, -7, 5], [2, 4, 4, 8]]  # fmt: skip
FLOATS = [[0.5, 1.5, 2.25, 3.0], [1.0, 2.0, 3.0, 5.0], [-1.5, 2.5, -0.0, 0.0], [0.1, 0.2, float("nan"), 0.3],
          [1.5, 2.5, float("inf"), 3.5], [1e300, 1e-300, 5e-324, 2.0], [2.0, 3.0, 4, 5.5], [0.25, 0.5, -float("inf"), 1.0],
          [1.5, 2.5, True, 3.5], [float("nan"), float("nan"), 1.0, 2.0]]  # fmt: skip


def value(v: object) -> str:
    """As the source of an expression."""
    return f"float({str(v)!r})" if isinstance(v, float) and (v != v or v in (float("inf"), -float("inf"))) else repr(v)


# How a number reaches the program: parameter with default or not, and where it is stored; `{v}` is a value.
PLACES = {
    "argument": ("", "", ""),
    "keyword": ("", "", ""),
    "global": ("top_{k}", "top_{k} = {v}", "global"),
    "attribute": ("state.a_{k}", "state.a_{k} = {v}", ""),
    "nested": ("state.inner.b_{k}", "state.inner.b_{k} = {v}", ""),
    "class": ("State.c_{k}", "State.c_{k} = {v}", ""),
    "instance of class": ("state.d_{k}", "State.d_{k} = {v}", ""),
    "list": ("numbers_{k}[1]", "numbers_{k}[1] = {v}", "numbers_{k} = [0, 0, 0]"),
    "dict": ("table_{k}['n']", "table_{k}['n'] = {v}", "table_{k} = {{}}"),
    "tuple": ("tuple_{k}[0]", "tuple_{k} = ({v}, 1)", ""),
    "item of an argument": ("arg_{k}[0]", "", ""),
    "dict argument": ("arg_{k}['n']", "", ""),
    "attribute of an argument": ("arg_{k}.n", "", ""),
    "closure": ("cell_{k}", "set_{k}({v})", ""),
    "property": ("state.prop_{k}", "state._prop_{k} = {v}", ""),
    "module": ("torch.nn.own_{k}", "torch.nn.own_{k} = {v}", ""),
    "betas": ("state.group['betas_{k}'][1]", "state.group['betas_{k}'] = (0, {v})", ""),
    "size": ("size_{k}.shape[0]", "", ""),
    "length": ("len(size_{k})", "", ""),
    "elements": ("size_{k}.numel()", "", ""),
}


@program_class("numbers")
def numbers(rng: random.Random) -> Program:
    """Numbers from several places, in C code, operators and Python's own protocols."""
    count = rng.randint(1, 3)
    setup, params, state_body, cells = [], ["x"], [], []
    names: list[str] = []
    sets: list[list[str]] = [[], [], [], []]  # statements before each call
    args: list[list[str]] = [[], [], [], []]
    for k in range(count):
        place = rng.choice(list(PLACES))
        values: list[object] = list(rng.choice(rng.choice([INTS, INTS, FLOATS])))
        if rng.random() < 0.3:
            rng.shuffle(values)
        read, write, before = (text.format(k=k, v="{v}") for text in PLACES[place])
        if place in ("size", "length", "elements"):
            values = [rng.randint(0, 6) for _ in range(4)]
            params.append(f"size_{k}")
        elif place == "argument":
            params.append(f"n{k}")
            read = f"n{k}"
        elif place == "keyword":
            params.append(f"n{k}=3")
            read = f"n{k}"
        elif "argument" in place:
            params.append(f"arg_{k}")
        elif place == "closure":
            cells.append(k)
        elif place == "property":
            state_body.append(f"    prop_{k} = property(lambda self: self._prop_{k})")
        elif place == "betas":
            setup.append("state.group = getattr(state, 'group', {})")
        if before and before != "global":
            setup.append(before)
        for call in range(4):
            text = value(values[call])
            if write:
                sets[call].append(write.format(v=text))
            elif place in ("size", "length", "elements"):
                args[call].append(f"size_{k}=torch.zeros({text}, {1 if place == 'elements' else 2})")
            elif place == "item of an argument":
                args[call].append(f"arg_{k}=[{text}, 2]")
            elif place == "dict argument":
                args[call].append(f"arg_{k}={{'n': {text}}}")
            elif place == "attribute of an argument":
                args[call].append(f"arg_{k}=types.SimpleNamespace(n={text})")
            else:
                args[call].append(f"n{k}={text}")
        names.append(read)
    body: list[str] = []
    exprs = ANY.strip().split("\n")
    blocks = INDENTED.strip("\n").split("\n---\n")

    def number() -> str:
        name = rng.choice(names)
        if rng.random() < 0.25:
            name = "(" + rng.choice(["{n} + 1", "{n} * 2", "{n} - {m}", "{n} // 2", "-{n}", "{n} * 0.5", "{n} + {m}", "{n} % 5",
                                     "max({n}, 2)", "int({n})", "float({n})", "abs({n})"]).format(n=name, m=rng.choice(names)) + ")"  # fmt: skip
        return name

    def whole() -> str:
        return f"(int({number()}) % 6)"

    early = 0
    for _ in range(rng.randint(1, 5)):
        parts = {"n": number(), "m": rng.choice([*(number() for _ in range(2)), "3"]), "i": whole()}
        if rng.random() < 0.25:
            lines = rng.choice(blocks).format(**parts).split("\n")
        else:
            lines = ["out.append(" + rng.choice(exprs).format(**parts) + ")"]
        kind = rng.random()
        if kind < 0.6:
            escapes = "state.caught = e" if rng.random() < 0.2 else "out.append((type(e).__name__, str(e)))"
            lines = ["try:", *("    " + line for line in lines), "except Exception as e:", "    " + escapes]
        elif kind < 0.65:
            lines = ["for _ in range(2):", *("    " + line for line in lines)]
        body += lines
        kind = rng.random()
        if kind < 0.3:
            body.append(f"x = x {rng.choice('+*-')} {number()}")
        elif kind < 0.4:
            body.append("x = torch.sin(x)")
        elif kind < 0.45:
            body.append(rng.choice(["out.append(x.sum().item() > 0)", "print('here')", "if x.sum() > 0: x = x + 1"]))
        elif kind < 0.48 and not early:
            early = 1
            body.append(f"if {number()} == 3: return out, x")
    glob = sorted({n for n in names if n.startswith("top_")} | {"top"})
    params.sort(key=lambda param: "=" in param)
    function = [f"def f({', '.join(params)}):", "    global top", "    out = []; held = None", *("    " + line for line in body), "    return out, x"]  # fmt: skip
    # Inside: what is global or nonlocal in the blocks.
    function = [line for line in function if line.strip() != "global top" or line == "    global top"]
    if cells:
        inner = ["def make():", "    " + "; ".join(f"cell_{k} = 1" for k in cells)]
        for k in cells:
            inner += [f"    def set_{k}(v):", f"        nonlocal cell_{k}", f"        cell_{k} = v"]
        inner += ["    " + line for line in function]
        inner.append("    return f, " + ", ".join(f"set_{k}" for k in cells))
        function = [*inner, "f, " + ", ".join(f"set_{k}" for k in cells) + " = make()"]
    source = [
        PRELUDE,
        *("class State:", "    count = 0", *state_body),
        "log = []; top = 0; variable = contextvars.ContextVar('variable', default=1)",
        "state = State(); state.inner = State(); state.items = [1]; state.table = {1: 2, 3: 4}; state.last = None; state.register = {}",
        *(f"{name} = 0" for name in glob),
        *setup,
        *function,
        "x = torch.randn(3, 4)",
    ]
    order = [0, 1, 2, rng.choice([1, 3]), rng.choice([0, 2, 3])]
    steps = []
    for call in order:
        if sets[call]:
            steps.append("; ".join(sets[call]))
        steps.append(f"f(x{''.join(', ' + a for a in args[call])})")
    if rng.random() < 0.3:
        steps.insert(-1, rng.choice(["state.table.clear()", "x = torch.randn(2, 4)", "torch.manual_seed(1); random.seed(2)", "log.clear()"]))  # fmt: skip
    return Program("\n".join(source), tuple(steps))
