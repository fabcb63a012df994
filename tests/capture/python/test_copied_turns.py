"""Turns of loops over tensors that are copied on the tape, not traced: results, the state of Python behind the loop, errors, and how
many turns were copied.
"""

import pytest
import torch

import tatara

TURNS = 60


def compare(function, *args, copied=None, calls=3):
    """Copied turns: None: any number; else at least, or none for 0."""
    before = tatara.stats()["turns_copied"]
    compiled = tatara.compile(function)
    for _ in range(calls):
        torch.manual_seed(0)
        given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        ours = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        try:
            expected = function(*given)
        except (RuntimeError, IndexError, ValueError) as error:
            torch.manual_seed(0)
            with pytest.raises(type(error)) as raised:
                compiled(*ours)
            assert str(raised.value) == str(error)
            continue
        torch.manual_seed(0)
        assert_same(compiled(*ours), expected)
        assert_same(ours, given)
    found = tatara.stats()["turns_copied"] - before
    if copied is not None:
        assert found == 0 if copied == 0 else found >= copied, found


def assert_same(ours, expected):
    assert type(ours) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert ours.dtype == expected.dtype and ours.shape == expected.shape and ours.stride() == expected.stride()
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)
    elif isinstance(expected, list | tuple):
        assert len(ours) == len(expected)
        for one, other in zip(ours, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(ours) == list(expected)
        for key in expected:
            assert_same(ours[key], expected[key])
    else:
        assert ours == expected


X = torch.linspace(-1, 1, TURNS * 4).reshape(TURNS, 4)

PROGRAMS = {}


def program(copied):
    def add(function):
        PROGRAMS[function.__name__] = function, copied
        return function

    return add


@program(50)
def rows(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.tanh(h * 0.5 + x[t])
    return h, t


@program(50)
def of_a_tensor(x):
    h, out = x.new_zeros(4), []
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        out.append(h)
    return torch.stack(out), out, row


@program(50)
def filled_from_the_front(x):
    h, out, both = x.new_zeros(4), [], [x[0]]
    for t in reversed(range(len(x))):
        h = torch.tanh(h * 0.5 + x[t])
        out.insert(0, h)
        both.append(h)
        both.insert(0, (t, h * 2))
    return torch.stack(out), both


@program(0)
def inserted_elsewhere(x):
    h, out = x.new_zeros(4), []
    for t in range(len(x)):
        h = torch.tanh(h * 0.5 + x[t])
        out.insert(len(out) // 2, h)
    return torch.stack(out)


@program(50)
def unbound_columns(x):
    h, out = x.new_zeros(TURNS), torch.empty(4, TURNS)
    y = x.t().contiguous().repeat(TURNS // 4, 1)
    for t, column in enumerate(y.unbind(0)):
        h = h * 0.9 + column
    return h, t, column


@program(50)
def writes_rows(x):
    out = torch.empty(4, TURNS)
    h = x.new_zeros(4)
    for t in range(TURNS):
        h = h * 0.9 + x[t]
        out[:, t] = h
    return out


@program(50)
def zipped(x):
    h = x.new_zeros(4)
    seen = []
    for i, (a, b) in enumerate(zip(x, x.flip(0))):
        h = h + a * b
        seen.append((i, h, a))
    return h, seen


@program(45)
def backwards(x):
    h, out = x.new_zeros(4), []
    for t in reversed(range(len(x))):
        h = torch.sin(h + x[t])
        out.append(h)
    out.reverse()
    return torch.stack(out), t


@program(45)
def in_steps(x):
    h = x.new_zeros(4)
    for t in range(0, len(x) - 1, 1):
        h = h + x[t + 1] * x[t : t + 2].sum(0) + x[-t - 1]
    return h


@program(0)
def numbers_as_arguments(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x.select(0, t)).roll(t)
    return h


@program(20)
def steps_of_two(x):
    h = x.new_zeros(4)
    for t in range(1, len(x), 2):
        h = torch.cos(h) + x[t - 1] * x[t]
    return h, t


@program(40)
def slice_at_the_end(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x[t : t + 5].sum(0))
    return h


@program(25)
def decides_by_the_turn(x):
    h, marks = x.new_zeros(4), []
    for t in range(len(x)):
        h = torch.sin(h + x[t])
        if t % 20 == 19:
            marks.append((t, h))
        if t > 5 and t != 47:
            h = h * 0.5
    return h, marks


@program(20)
def breaks_out(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x[t])
        if t == 40:
            break
    return h, t


@program(20)
def returns_early(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x[t])
        if t * 3 >= 120:
            return h, t
    return h, -1


@program(20)
def goes_on(x):
    h, n = x.new_zeros(4), 0
    for t in range(len(x)):
        if t // 30 == 1:
            continue
        n += 1
        h = torch.sin(h + x[t])
    return h, n


@program(40)
def an_error_late(x):
    h = x.new_zeros(4)
    for t in range(len(x) + 3):
        h = torch.sin(h + x[t])
    return h


@program(40)
def raises_late(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x[t])
        if t == 55:
            raise ValueError(f"turn {t}")
    return h


@program(50)
def counts(x):
    h, n, m, k = x.new_zeros(4), 0, 100, 7
    for t in range(len(x)):
        h = torch.sin(h + x[n])
        n += 1
        m -= 3
        k = t * 2 + 1
    return h, n, m, k


@program(0)
def counts_squares(x):
    h, n = x.new_zeros(4), 0
    for t in range(len(x)):
        h = torch.sin(h + x[t])
        n += t
    return h, n


@program(0)
def toggles(x):
    h, p = x.new_zeros(4), 0
    for t in range(len(x)):
        h = torch.sin(h + x[t]) if p else torch.cos(h + x[t])
        p = 1 - p
    return h, p


@program(0)
def multiplies_by_the_turn(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        h = torch.sin(h + x[t] * t)
    return h


@program(45)
def earlier_values(x):
    a, b, c = x[0], x[1], x[2]
    first = a
    for t in range(len(x)):
        a, b, c = torch.sin(a + b * c + first), a, x[t]
    return a, b, c


@program(None)
def a_chain(x):
    a, b, c, d, e = x[0], x[1], x[2], x[3], x[4]
    for t in range(len(x)):
        a, b, c, d, e = torch.sin(a + e), a, b, c, d
    return a, b, c, d, e


@program(50)
def state_in_tuples(x):
    def cell(row, state):
        h, (c, n) = state
        c = torch.sigmoid(row) * c + torch.tanh(h)
        return torch.tanh(c), (c, n)

    state = x[0], (x[1], 3)
    out = []
    for row in x:
        state = cell(row, state)
        out.append(state[0])
    return state, torch.stack(out)


@program(0)
def reads_its_list(x):
    out = [x[0]]
    for t in range(len(x)):
        out.append(torch.sin(out[-1] + x[t]))
    return torch.stack(out)


@program(0)
def asks_for_length(x):
    h, out = x[0], []
    for row in x:
        h = torch.sin(h + row)
        if len(out) < 50:
            out.append(h)
    return torch.stack(out)


@program(0)
def asks_in_a_function(x):
    def last(results):
        return results[-1] if results else None

    h, out = x[0], []
    for row in x:
        before = last(out)
        h = torch.sin(h + row) if before is None else torch.sin(h + row + before)
        out.append(h)
    return torch.stack(out)


@program(0)
def keeps_in_a_dict(x):
    h, kept = x[0], {}
    for t, row in enumerate(x):
        h = torch.sin(h + row)
        kept[t % 7] = h
    return h, kept


@program(None)
def writes_at_some_turns(x):
    box = [x[0], None]
    h = x[1]
    for t in range(len(x)):
        h = torch.sin(h + x[t] + box[0])
        if t in (4, 5, 30, 31):
            box[0] = h
    return h, box


@program(None)
def appends_at_some_turns(x):
    saved, h = [x[0]], x[1]
    for t in range(len(x)):
        h = torch.sin(h + x[t] + saved[-1])
        if 2 < t < 7:
            saved.append(h)
    return h, saved


@program(None)
def changes_at_some_turns(x):
    h, g = x[1], x[0]
    for t in range(len(x)):
        h = torch.sin(h + x[t] + g)
        if t == 3 or t == 4:
            g = h
    return h, g


@program(40)
def nested(x):
    h = x.new_zeros(4)
    for i in range(3):
        for row in x:
            h = torch.sin(h + row * (i + 1))
    return h, i


@program(50)
def inner_loop(x):
    h = x.new_zeros(4)
    for t in range(len(x)):
        for k in range(3):
            h = torch.sin(h + x[t, k])
    return h, t, k


@program(50)
def comprehension(x):
    return [torch.sin(x[t]) + x[t, 1:2] for t in range(len(x))]


@program(0)
def of_a_generator(x):
    def turns():
        h = x.new_zeros(4)
        for row in x:
            h = torch.sin(h + row)
            yield h

    return list(turns())


@program(50)
def in_place(x):
    h = torch.zeros(4)
    total = torch.zeros(4)
    for row in x:
        h = h * 0.5 + row
        h.clamp_(-0.5, 0.5)
        total += h
    return h, total


@program(50)
def random_numbers(x):
    h = torch.zeros(4)
    for row in x:
        h = torch.nn.functional.dropout(h + row, 0.5) * torch.rand(4)
    return h


@program(50)
def without_gradients(x):
    h = torch.zeros(4)
    for row in x:
        with torch.no_grad():
            g = torch.sin(h)
        h = g + row
    return h


@program(0)
def asks_for_values(x):
    h, n = torch.zeros(4), 0
    for row in x:
        h = torch.sin(h + row)
        n += int((h > 0).sum().item())
    return h, n


@program(None)
def compares_identities(x):
    h = first = x[0]
    hits = 0
    for row in x:
        if h is first:
            hits += 1
        h = torch.sin(h + row)
    return h, hits


@program(0)
def by_identity(x):
    h, ids = x[0], set()
    for row in x:
        h = torch.sin(h + row)
        ids.add(id(h))
    return h, len(ids) > 0


@program(50)
def only_results(x):
    out = []
    for row in x:
        out.append(row.chunk(2))
    return out, len(out)


@program(None)
def sizes_grow(x):
    out = []
    for t in range(len(x)):
        out.append(x[: t + 1].sum(0))
    return torch.stack(out)


@program(50)
def list_of_states(x):
    h, c, out = x[0], x[1], []
    for t in range(x.size(0)):
        h, c = torch.tanh(h + x[t]), c * h
        out.append((t, h, c, "name", None))
    return out, len(out)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function, copied = PROGRAMS[name]
    compare(function, X, copied=copied)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("asks_for_values", "random_numbers")])
def test_gradients(name):
    function, _ = PROGRAMS[name]

    def tensors(result):
        if isinstance(result, torch.Tensor):
            return [result] if result.requires_grad else []
        if isinstance(result, dict):
            result = list(result.values())
        return [t for part in result for t in tensors(part)] if isinstance(result, list | tuple) else []

    def step(f, x):
        leaf = x.clone().requires_grad_()
        try:
            results = tensors(f(leaf))
        except (IndexError, ValueError) as error:
            return str(error)
        return torch.autograd.grad(sum((t * t).sum() for t in results), leaf)[0] if results else None

    compiled = tatara.compile(function)
    for _ in range(3):
        assert_same(step(compiled, X), step(function, X))


class Recurrent(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        h = c = x.new_zeros(2, 5)
        out = []
        for row in x.unbind(0):
            if isinstance(self.cell, torch.nn.LSTMCell):
                h, c = self.cell(row, (h, c))
            else:
                h = self.cell(row, h)
            out.append(h)
        return torch.stack(out), h


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_modules(kind):
    torch.manual_seed(1)
    model = Recurrent(kind(4, 5))
    x = torch.randn(TURNS, 2, 4)
    before = tatara.stats()["turns_copied"]
    compiled = tatara.compile(model)
    for _ in range(3):
        assert_same(compiled(x), model(x))
    assert tatara.stats()["turns_copied"] - before > 50


def test_state_on_an_object():
    class Cell:
        def __init__(self):
            self.h = torch.zeros(4)

        def __call__(self, row):
            self.h = torch.sin(self.h + row)
            return self.h

    def f(x):
        cell = Cell()
        return torch.stack([cell(row) for row in x]), cell.h

    compare(f, X)


def test_a_global_counter():
    global counter
    counter = 0

    def f(x):
        global counter
        h = x[0]
        for row in x:
            counter += 1
            h = torch.sin(h + row)
        return h

    compiled = tatara.compile(f)
    for _ in range(3):
        assert_same(compiled(X), f(X))
    assert counter == 6 * TURNS


def test_other_sizes_and_types():
    def f(x):
        h = torch.zeros(x.shape[1], dtype=x.dtype)
        for row in x:
            h = torch.sin(h + row)
        return h

    compiled = tatara.compile(f)
    for x in (X, X.double(), torch.randn(33, 4), torch.randn(7, 4), torch.randn(41, 9)):
        for _ in range(2):
            assert_same(compiled(x), f(x))


def test_lists_of_arguments():
    def f(xs, ws):
        h = xs[0]
        for x, w in zip(xs, ws):
            h = torch.sin(h + x * w)
        return h

    compare(f, [torch.randn(3) for _ in range(40)], [torch.randn(3) for _ in range(40)])


def test_a_break_behind_the_loop():
    def f(x):
        h, out = x[0], []
        for t, row in enumerate(x):
            h = torch.sin(h + row)
            out.append(h)
        text = f"{float(h.sum()):.2f}"
        return torch.stack(out) * 2, t, text, out[7]

    compare(f, X)


def test_a_break_in_a_late_turn():
    def f(x, seen):
        h = x[0]
        for t, row in enumerate(x):
            h = torch.sin(h + row)
            if t == 45:
                seen.append(float(h.sum()))
        return h

    ours, theirs = [], []
    compiled = tatara.compile(f)
    for _ in range(3):
        assert_same(compiled(X, ours), f(X, theirs))
    assert ours == pytest.approx(theirs)


def test_values_behind_the_loop():
    def f(x):
        h, out = torch.zeros(4), []
        for row in x:
            h = torch.sin(h + row)
            out.append(h)
        n = int((h > 0).sum().item())
        stacked = torch.stack(out)
        return h * n, stacked[stacked[:, 0] > 0].sum(0), n

    compare(f, X, copied=50)


def test_an_operator_that_fails_in_a_late_turn():
    def f(x, seen):
        h, out = torch.eye(3), []
        for row in x:
            h = torch.linalg.cholesky(h - row[:3].abs().max() * 0.02 * torch.eye(3))
            out.append(h)
        seen.append(len(out))
        return torch.stack(out)

    compare(f, X, [])


def test_whole_steps():
    def step(w, x, optimizer):
        h = x.new_zeros(4)
        for row in x:
            h = torch.tanh(h @ w + row)
        loss = (h * h).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = tatara.stats()["turns_copied"]
    results = []
    for f in (step, tatara.compile(step)):
        w = torch.linspace(-0.3, 0.3, 16).reshape(4, 4).requires_grad_()
        optimizer = torch.optim.SGD([w], lr=0.1)
        results.append([f(w, X, optimizer).clone() for _ in range(4)] + [w.detach()])
    assert_same(*results)
    assert tatara.stats()["turns_copied"] - before > 50


def test_the_tape_as_it_stands():
    compiled = tatara.compile(rows, backend="eager")
    for _ in range(3):
        assert_same(compiled(X), rows(X))


def test_loops_left_by_a_break_at_the_same_place():
    def f(x):
        h, out = torch.zeros(4), []
        for first in (0, 5, 10, 15):
            for t in range(first, len(x)):
                h = torch.sin(h + x[t])
                if t == first + 4 or (first == 15 and t == 50):
                    break
            out.append((h, t))
        return h, out

    compare(f, X)


def test_strides_that_are_asked_for():
    def f(x):
        h, n = torch.zeros(4, 4).t(), 0
        for row in x:
            h = (h + row).t()
            n = h.stride(0) + (1 if h.is_contiguous() else 0)
        return h, n

    compare(f, X)


def test_turned_off():
    before = tatara.stats()["turns_copied"]
    with tatara.config.patch(disable="copy_turns"):
        compiled = tatara.compile(rows)
        assert_same(compiled(X), rows(X))
    assert tatara.stats()["turns_copied"] == before


@pytest.mark.filterwarnings("ignore:Sparse")
def test_calls_on_sparse_tensors_are_traced():
    def walk(matrix, x):
        for _ in range(TURNS):
            x = torch.mv(matrix, x) * 0.5
        return x

    matrix = torch.eye(4).to_sparse_csr()
    compare(lambda x: walk(matrix, x), torch.ones(4), copied=0)


def _nodes_made(call):
    """Nodes of gradients that the host makes for the call."""
    before = torch._C._autograd._get_sequence_nr()
    result = call()
    return result, torch._C._autograd._get_sequence_nr() - before


def written_rows(x, w):
    out, h = torch.zeros_like(x), x.new_zeros(4)
    for t in range(len(x)):
        h = torch.tanh(h @ w + x[t])
        out[t] = h * 2
    return out


def writes_what_gradients_keep(x, w):
    out = torch.zeros_like(x)
    for t in range(1, len(x)):
        out[t] = torch.tanh(out[t - 1] * w[0] + x[t])
    return out


def test_first_steps_that_write_rows_run_compiled():
    w = torch.linspace(-0.5, 0.5, 16).reshape(4, 4)
    compiled = tatara.compile(written_rows)
    for _ in range(3):
        ours, theirs = [[X.clone().requires_grad_(), w.clone().requires_grad_()] for _ in range(2)]
        result, nodes = _nodes_made(lambda ours=ours: compiled(*ours))
        expected = written_rows(*theirs)
        assert nodes < TURNS, nodes
        assert_same(result, expected)
        result.square().sum().backward()
        expected.square().sum().backward()
        assert_same([a.grad for a in ours], [a.grad for a in theirs])


def test_writes_that_spoil_what_gradients_keep():
    w = torch.linspace(-0.5, 0.5, 16).reshape(4, 4)
    compiled = tatara.compile(writes_what_gradients_keep)
    for _ in range(3):
        for function in (compiled, writes_what_gradients_keep):
            result = function(X.clone().requires_grad_(), w.clone().requires_grad_())
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
