"""Text of symbolic expressions (valid Python) as Z3 terms over the mathematical integers."""

from __future__ import annotations

import ast

import z3


def floordiv(a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    """Python's //: Z3's division rounds down for a positive divisor only, so a negative one has both signs flipped."""
    if z3.is_int_value(b):
        return a / b if b.as_long() > 0 else (-a) / (-b)
    return z3.If(b > 0, a / b, (-a) / (-b))


def mod(a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    """Python's %, by its definition."""
    return a - b * floordiv(a, b)


def as_bool(term: z3.ExprRef) -> z3.BoolRef:
    """Truth of a Python value."""
    return term if z3.is_bool(term) else term != 0


def as_int(term: z3.ExprRef) -> z3.ArithRef:
    """A truth value as 0 or 1."""
    return z3.If(term, z3.IntVal(1), z3.IntVal(0)) if z3.is_bool(term) else term


class Translator(ast.NodeVisitor):
    """Keeps the divisors that it meets: they are taken to be non-zero."""

    def __init__(self, values: dict[str, int] | None = None) -> None:
        self.divisors: list[z3.ArithRef] = []
        self.values = values or {}

    def run(self, text: str) -> z3.ExprRef:
        return self.visit(ast.parse(text, mode="eval").body)

    def visit_Name(self, node: ast.Name) -> z3.ExprRef:
        return z3.IntVal(self.values[node.id]) if node.id in self.values else z3.Int(node.id)

    def visit_Constant(self, node: ast.Constant) -> z3.ExprRef:
        return z3.BoolVal(node.value) if isinstance(node.value, bool) else z3.IntVal(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> z3.ExprRef:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return z3.Not(as_bool(operand))
        assert isinstance(node.op, ast.USub)
        return -as_int(operand)

    def visit_BinOp(self, node: ast.BinOp) -> z3.ExprRef:
        a, b = as_int(self.visit(node.left)), as_int(self.visit(node.right))
        match node.op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.FloorDiv() | ast.Mod():
                b = z3.simplify(b)
                self.divisors.append(b)
                return floordiv(a, b) if isinstance(node.op, ast.FloorDiv) else mod(a, b)
        raise AssertionError(ast.dump(node))

    def visit_Compare(self, node: ast.Compare) -> z3.ExprRef:
        a, b = as_int(self.visit(node.left)), as_int(self.visit(node.comparators[0]))
        match node.ops[0]:
            case ast.Eq():
                return a == b
            case ast.NotEq():
                return a != b
            case ast.Lt():
                return a < b
            case ast.LtE():
                return a <= b
            case ast.Gt():
                return a > b
            case ast.GtE():
                return a >= b
        raise AssertionError(ast.dump(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> z3.ExprRef:
        values = [as_bool(self.visit(value)) for value in node.values]
        return z3.And(values) if isinstance(node.op, ast.And) else z3.Or(values)

    def visit_Call(self, node: ast.Call) -> z3.ExprRef:
        assert isinstance(node.func, ast.Name)
        smaller = node.func.id == "min"
        values = [as_int(self.visit(value)) for value in node.args]
        out = values[0]
        for value in values[1:]:
            out = z3.If(value < out if smaller else value > out, value, out)
        return out


def check(lhs: str, rhs: str, where: list[str], values: dict[str, int] | None = None, timeout_ms: int = 4000) -> str:
    """`proved`, `unknown`, or the counterexample of: where all hold and no divisor is 0, lhs equals rhs."""
    translator = Translator(values)
    a, b = translator.run(lhs), translator.run(rhs)
    if z3.is_bool(a) != z3.is_bool(b):
        a, b = as_int(a), as_int(b)
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    for condition in where:
        solver.add(as_bool(translator.run(condition)))
    for divisor in translator.divisors:
        solver.add(divisor != 0)
    solver.add(a != b)
    result = solver.check()
    if result == z3.unsat:
        return "proved"
    return "unknown" if result == z3.unknown else f"false at {solver.model()}"
