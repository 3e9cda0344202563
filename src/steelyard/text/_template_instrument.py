"""Puts meters into a template's syntax tree, where Jinja has no hook of its own.

One idea: everything that can repeat begins with a call that charges the running budget. Loop
bodies, macro bodies and fixed text get a statement; conditions and comparisons become
`charge and …`, which has the same value; operands of comparisons are weighed first. Slices and
the `~` operator become calls. What the calls do is in `_template_sandbox`.
"""

from typing import TypeVar

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

__all__ = ["instrument"]

_FORBIDDEN = (
    nodes.Block,
    nodes.Extends,
    nodes.FromImport,
    nodes.Import,
    nodes.Include,
    nodes.ScopedEvalContextModifier,
)
"""Chat templates are single files; the rest would bring ways to repeat that nothing meters."""

BodyT = TypeVar("BodyT", nodes.For, nodes.Macro, nodes.CallBlock)


def instrument(template: nodes.Template) -> nodes.Template:
    """The same template, metered. Raises `TemplateSyntaxError` for statements it may not use."""
    for node in template.find_all(_FORBIDDEN):
        raise TemplateSyntaxError(
            f"the statement {type(node).__name__.lower()!r} is not available", node.lineno
        )
    metered = _Meter().visit(template)
    assert isinstance(metered, nodes.Template)
    return metered


class _Meter(NodeTransformer):
    """Visits children first, so that nothing it adds is visited again."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.test, nodes.Expr):
            node.test = _charged(node.test)
        return _with_charged_body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        return _with_charged_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        return _with_charged_body(node)

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node]:
        """Printed values are charged by the environment, fixed text here."""
        self.generic_visit(node)
        chars = sum(len(part.data) for part in node.find_all(nodes.TemplateData))
        return [_statement(chars, node.lineno), node] if chars else [node]

    def visit_If(self, node: nodes.If) -> nodes.Node:
        self.generic_visit(node)
        assert isinstance(node.test, nodes.Expr)
        node.test = _charged(node.test)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return _charged(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        # `is defined` and its like must see the name itself; only tests with arguments compare.
        if node.args:
            node.node = _weighed(node.node)
            node.args = [_weighed(argument) for argument in node.args]
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _call("charged", [node], node.lineno) if isinstance(node.arg, nodes.Slice) else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        for pair in node.items:
            pair.key = _weighed(pair.key)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("concatenated", node.nodes, node.lineno)


def _with_charged_body(node: BodyT) -> BodyT:
    node.body = [_statement(0, node.lineno), *node.body]
    return node


def _statement(chars: int, line: int) -> nodes.Node:
    """Charge a step and the making of so many characters."""
    return nodes.ExprStmt(_call("metered", [nodes.Const(chars)], line), lineno=line)


def _charged(node: nodes.Expr) -> nodes.Expr:
    """Charge a step, then evaluate."""
    return nodes.And(_call("metered", [nodes.Const(0)], node.lineno), node, lineno=node.lineno)


def _weighed(node: nodes.Expr) -> nodes.Expr:
    if isinstance(node, nodes.Const):
        return node
    return _call("weighed", [node], node.lineno)


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Expr:
    target = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(target, arguments, [], None, None, lineno=line)
