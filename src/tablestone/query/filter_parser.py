"""Parses `$filter` (wire 6.1): from tokens to a tree, with the service's errors."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tablestone import limits
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.errors import StorageError
from tablestone.model.filter_tree import (
    MIRRORED,
    TEXT_FUNCTIONS,
    And,
    BooleanProperty,
    Comparison,
    ComparisonOperator,
    Constant,
    FilterNode,
    Not,
    Or,
)
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.query import filter_lexer as lexer
from tablestone.query.filter_lexer import (
    Token,
    invalid_input,
    not_implemented,
    syntax_error,
    unexpected,
)

ENTITY_PROPERTIES: Final[Mapping[str, EdmType]] = MappingProxyType(
    {PARTITION_KEY: EdmType.STRING, ROW_KEY: EdmType.STRING, TIMESTAMP: EdmType.DATE_TIME}
)
"""The properties that have the same type in every entity (wire 6.4)."""
TABLE_PROPERTIES: Final[Mapping[str, EdmType]] = MappingProxyType({"TableName": EdmType.STRING})
"""The properties of a table, in a query for tables (wire 3.1)."""

CACHED_TEXT_LENGTH_MAX: Final = 512

_COMPARISONS: Final = {operator.value: operator for operator in MIRRORED}
_TEXT_FUNCTIONS: Final = {operator.value: operator for operator in TEXT_FUNCTIONS} | {
    "substringof": ComparisonOperator.CONTAINS
}
"""The functions of the extension. OData 2 wrote `substringof('x',P)` for `contains(P,'x')`."""
_STEPS_OF_A_LEVEL: Final = 8
"""How many calls deeper ODataLib's parser goes for a pair of parentheses. For a `not` it is one."""
_ARITHMETIC: Final = frozenset({"add", "sub", "mul", "div", "mod", "has", "in"})
_FUNCTION: Final = re.compile(
    "any|all|cast|ceiling|concat|contains|date|day|endswith|exists|floor|fractionalseconds|hour|indexof|isof|length|"
    "maxdatetime|mindatetime|minute|month|now|replace|round|second|startswith|substring|substringof|time|tolower|"
    "totaloffsetminutes|totalseconds|toupper|trim|year"
)
"""The functions of OData 2 to 4. Any other name before a parenthesis is an unknown function (wire 6.8)."""


class _Name(str):
    """An identifier. The next token decides whether it is a condition or one side of a comparison."""

    __slots__ = ()


class _Null:
    """The operand `null`, which has no type."""


_Operand = FilterNode | EdmValue | _Name | _Null


@dataclass(slots=True, eq=False)
class _Level:
    """What has been read of one pair of parentheses, or of the whole filter."""

    alternatives: list[_Operand] = field(default_factory=list)
    terms: list[_Operand] = field(default_factory=list)
    negations: int = 0
    left: _Operand | None = None
    operator: ComparisonOperator | None = None
    operand: _Operand | None = None


INCOMPATIBLE: Final = "A binary operator with incompatible types was detected."


def _mismatch(left: EdmType, right: EdmType, kind: str) -> StorageError:
    return invalid_input(
        f"{INCOMPATIBLE} Found operand types '{left.value}' and '{right.value}' for operator kind '{kind}'."
    )


# filter  := or                              and  := unary ('and' unary)*
# or      := and ('or' and)*                 unary := 'not' unary | cmp
# cmp     := primary (('eq'|'ne'|'gt'|'ge'|'lt'|'le') primary)?
# primary := '(' or ')' | identifier | literal | call
# call    := ('startswith'|'endswith'|'contains') '(' identifier ',' string ')'
#          | 'substringof' '(' string ',' identifier ')'
#
# Calls are an extension: for a server without it they are not implemented, as for the service.
#
# The parser keeps its own stack of open parentheses and does not recurse, so no filter can exhaust Python's stack. It
# raises a syntax error at once, and a type error only after the whole text.
class _Parser:
    def __init__(self, text: str, declared: Mapping[str, EdmType], *, extended: bool) -> None:
        self._text = text
        self._declared = declared
        self._functions = _TEXT_FUNCTIONS if extended else {}
        self._levels: list[_Level] = []
        self._steps = _STEPS_OF_A_LEVEL
        self._type_error: StorageError | None = None

    def parse(self) -> FilterNode | None:
        level = _Level()
        previous: Token | None = None
        tokens = lexer.tokens(self._text)
        for token in tokens:
            if token.kind == lexer.UNTERMINATED:
                raise self._wrong(token)
            if level.operand is None:
                if token.kind == lexer.END and previous is None:
                    return None
                level = self._expect_operand(level, token)
            elif token.kind == lexer.OPEN and previous and previous.value in self._functions:
                level.operand = self._call(str(previous.value), tokens)
            else:
                level = self._expect_operator(level, token, previous)
            previous = token
        assert level.operand is not None  # at END, the operand is the whole filter
        if self._type_of(level.operand) is not EdmType.BOOLEAN:
            self._defer(
                invalid_input("The $filter expression must evaluate to a single boolean value.")
            )
        node = self._condition(level.operand)
        if self._type_error is not None:
            raise self._type_error
        return node

    def _expect_operand(self, level: _Level, token: Token) -> _Level:
        kind, value = token.kind, token.value
        if kind == lexer.LITERAL:
            assert not isinstance(value, str)  # the lexer has read it
            level.operand = value
        elif kind == lexer.NAME and value == "not":
            if level.operator is not None:
                raise not_implemented()  # `a eq not b`
            self._deeper(1)
            level.negations += 1
        elif kind == lexer.NAME:
            assert isinstance(value, str)
            level.operand = _Name(value)
        elif kind == lexer.NULL:
            level.operand = _Null()
        elif kind == lexer.OPEN:
            self._deeper(_STEPS_OF_A_LEVEL)
            self._levels.append(level)
            return _Level()
        elif value == "-":
            raise not_implemented()  # negation of an operand that is not a number
        else:
            raise unexpected(self._text, token)
        return level

    def _expect_operator(self, level: _Level, token: Token, previous: Token | None) -> _Level:
        kind, value = token.kind, token.value
        if kind == lexer.NAME:
            if value == "and":
                self._end_term(level)
            elif value == "or":
                self._end_term(level)
                self._end_alternative(level)
            elif value in _COMPARISONS:
                if level.operator is not None:
                    raise not_implemented()  # a comparison of a comparison
                assert isinstance(value, str)
                level.operator = _COMPARISONS[value]
                level.left, level.operand = level.operand, None
            elif value in _ARITHMETIC:
                raise not_implemented()
            else:
                raise syntax_error(self._text, token.end)
        elif kind == lexer.CLOSE and self._levels:
            result = self._close(level)
            level = self._levels.pop()
            self._steps -= _STEPS_OF_A_LEVEL
            level.operand = result
        elif kind == lexer.END and not self._levels:
            level.operand = self._close(level)
        elif kind == lexer.OPEN and previous is not None and previous.kind == lexer.NAME:
            if _FUNCTION.fullmatch(str(previous.value)):
                raise not_implemented()
            raise invalid_input(f"An unknown function with name '{previous.value}' was found.")
        elif value == "/":
            raise not_implemented()  # a path into a navigation property, or a lambda
        else:
            raise unexpected(self._text, token)
        return level

    def _call(self, name: str, tokens: Iterator[Token]) -> FilterNode:
        """The call of a function of text, after its opening parenthesis."""
        example = (
            f"{name}('text',Property)" if name == "substringof" else f"{name}(Property,'text')"
        )
        no_signature = invalid_input(
            f"No function signature for the function with name '{name}' matches the specified arguments. The function "
            f"signatures considered are: {name}(Edm.String Nullable=true, Edm.String Nullable=true). Write {example}."
        )
        given: list[Token] = []
        for separator in (",", ")"):
            argument = next(tokens)
            if argument.kind == lexer.CLOSE:
                raise no_signature
            if argument.kind not in (lexer.NAME, lexer.LITERAL, lexer.NULL):
                raise self._wrong(argument)
            given.append(argument)
            token = next(tokens)
            if token.kind == lexer.OPEN:
                raise not_implemented()  # a function of what another returns
            if token.value != separator:
                raise no_signature if token.value in (",", ")") else self._wrong(token)
        variable, literal = reversed(given) if name == "substringof" else given
        text = literal.value
        if variable.kind != lexer.NAME or isinstance(text, str) or text.type is not EdmType.STRING:
            self._defer(no_signature)
            return Constant(value=False)
        return Comparison(str(variable.value), self._functions[name], text)

    def _wrong(self, token: Token) -> StorageError:
        if token.kind == lexer.UNTERMINATED:
            return lexer.unterminated_string(self._text)
        return unexpected(self._text, token)

    def _deeper(self, steps: int) -> None:
        self._steps += steps
        if self._steps > limits.FILTER_STEPS_MAX:
            raise invalid_input("Recursion depth exceeded allowed limit.")

    def _defer(self, error: StorageError) -> None:
        if self._type_error is None:
            self._type_error = error

    def _close(self, level: _Level) -> _Operand:
        """End a pair of parentheses and return its value, which may be a name or constant alone."""
        self._end_term(level)
        self._end_alternative(level)
        alternatives = level.alternatives
        if len(alternatives) == 1:
            return alternatives[0]
        return Or(self._conditions(alternatives, Or))

    def _end_alternative(self, level: _Level) -> None:
        terms = level.terms
        level.alternatives.append(
            terms[0] if len(terms) == 1 else And(self._conditions(terms, And))
        )
        level.terms = []

    def _end_term(self, level: _Level) -> None:
        operand = level.operand
        assert operand is not None  # an operator is only expected after an operand
        if level.operator is not None:
            assert level.left is not None
            operand = self._compare(level.left, level.operator, operand)
            level.left = level.operator = None
        if level.negations:
            operand = self._negate(operand, level.negations)
            self._steps -= level.negations
            level.negations = 0
        level.terms.append(operand)
        level.operand = None

    def _negate(self, operand: _Operand, times: int) -> FilterNode:
        found = self._type_of(operand)
        if found is not EdmType.BOOLEAN:
            self._defer(
                invalid_input(
                    "A unary operator with an incompatible type was detected. Found operand type "
                    f"'{found.value}' for operator kind 'Not'."
                )
            )
        node = self._condition(operand)
        for _ in range(times):
            node = Not(node)
        return node

    def _conditions(self, operands: list[_Operand], kind: type[And | Or]) -> tuple[FilterNode, ...]:
        """The operands of a chain of `and` or `or` as conditions. Inner chains of the same kind are merged into it."""
        nodes: list[FilterNode] = []
        left = EdmType.BOOLEAN
        for index, operand in enumerate(operands):
            found = self._type_of(operand)
            if index == 0:
                left = found
            elif left is not EdmType.BOOLEAN or found is not EdmType.BOOLEAN:
                self._defer(_mismatch(left, found, kind.__name__))
                left = EdmType.BOOLEAN
            node = self._condition(operand)
            if isinstance(node, kind):
                nodes.extend(node.terms)
            else:
                nodes.append(node)
        return tuple(nodes)

    def _type_of(self, operand: _Operand) -> EdmType:
        """The type of an operand as a condition. A property that is not declared may be a Boolean (wire 6.4)."""
        if isinstance(operand, EdmValue):
            return operand.type
        if isinstance(operand, _Name):
            return self._declared.get(operand, EdmType.BOOLEAN)
        return EdmType.BOOLEAN

    def _condition(self, operand: _Operand) -> FilterNode:
        if isinstance(operand, _Name):
            return BooleanProperty(str(operand))
        if isinstance(operand, EdmValue):
            return Constant(operand.value is True)
        if isinstance(operand, _Null):
            self._defer(invalid_input())
            return Constant(value=False)
        return operand

    def _compare(self, left: _Operand, operator: ComparisonOperator, right: _Operand) -> FilterNode:
        """A comparison of a property and a constant, in either order. The service has no other (wire 6.1)."""
        if isinstance(left, _Name) and isinstance(right, _Name):
            doubles = lexer.PYTHON_DOUBLES
            left, right = doubles.get(left, left), doubles.get(right, right)
        if isinstance(left, _Name) and isinstance(right, EdmValue):
            name, literal, upright = left, right, True
        elif isinstance(left, EdmValue) and isinstance(right, _Name):
            name, literal, upright = right, left, False
        else:
            null = isinstance(left, _Null) or isinstance(right, _Null)
            self._defer(invalid_input() if null else not_implemented())
            return Constant(value=False)
        expected = self._declared.get(name)
        if expected is not None and expected is not literal.type:
            types = (expected, literal.type) if upright else (literal.type, expected)
            kind = operator.name.title().replace("_", "")  # as in .NET: GreaterThanOrEqual
            self._defer(_mismatch(*types, kind))
        if literal.type is EdmType.GEOGRAPHY_POINT and operator not in (
            ComparisonOperator.EQUAL,
            ComparisonOperator.NOT_EQUAL,
        ):
            self._defer(not_implemented())  # points have no order
        return Comparison(str(name), operator if upright else MIRRORED[operator], literal)


@functools.lru_cache(maxsize=1024)
def _parse_short(
    text: str, declared: tuple[tuple[str, EdmType], ...], *, extended: bool
) -> FilterNode | None:
    return _Parser(text, dict(declared), extended=extended).parse()


def parse_filter(
    text: str, *, declared: Mapping[str, EdmType] = ENTITY_PROPERTIES, extended: bool = False
) -> FilterNode | None:
    """The tree of a filter; None if the text is blank, which means no filter (wire 6.1). Short filters are cached.

    `declared` has the properties whose type is fixed. `extended` adds the functions of text, which the service does not
    have. Raises `InvalidInput` for a wrong filter, and `NotImplemented` for features of OData that are not there.
    """
    if len(text) > CACHED_TEXT_LENGTH_MAX:
        return _Parser(text, declared, extended=extended).parse()
    return _parse_short(text, tuple(declared.items()), extended=extended)
