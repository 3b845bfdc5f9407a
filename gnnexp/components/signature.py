"""Checks values of YAML files against the annotations of constructors and dataclasses."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Sequence as AbstractSequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from gnnexp.errors import Problem
from gnnexp.provenance.older import GONE

TARGET = "_target_"


@dataclass(frozen=True)
class Parameter:
    """One key that a component takes.

    Attributes:
        name: the key.
        hint: annotation of the key, `Any` if there is none or it cannot be evaluated.
        required: whether the key has no default.
        default: the default, if it has one.
    """

    name: str
    hint: Any
    required: bool
    default: Any = None

    def is_default(self, value: object) -> bool:
        """Whether a value is the default. Values of other types differ: `1` may mean one row, `1.0` all of them."""
        return not self.required and _are_equal(value, self.default)


def parameters_of(target: Callable[..., Any]) -> Mapping[str, Parameter] | None:
    """Keys that `target` (a class or a function) takes, or None if it takes any key (`**kwargs`)."""
    return _parameters_of(cast("Hashable", target))


@cache
def _parameters_of(target: Callable[..., Any]) -> Mapping[str, Parameter] | None:
    """As `parameters_of`. Annotations are evaluated once per target, because a check needs them many times."""
    # Look only at the class itself: a subclass of a dataclass may have its own constructor.
    if isinstance(target, type) and "__dataclass_params__" in vars(target) and "__init__" in vars(target):
        return parameters_of_dataclass(target)  # each annotation is evaluated in the module of its class
    if isinstance(target, type) and _constructor_of(target).startswith("torch.nn."):
        return {}  # `torch.nn.Module` declares `**kwargs`, but refuses all keys
    try:
        signature = inspect.signature(target)
    except ValueError:  # a compiled class without a signature
        return None
    hints = _hints(target)
    parameters = {}
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            required = parameter.default is parameter.empty
            default = None if required else parameter.default
            parameters[parameter.name] = Parameter(parameter.name, hints.get(parameter.name, Any), required, default)
    return parameters


def _constructor_of(cls: type) -> str:
    """The module of the class that defines `__init__` of `cls`."""
    return next((one.__module__ for one in cls.__mro__ if "__init__" in vars(one)), "")


def parameters_of_dataclass(cls: type) -> Mapping[str, Parameter]:
    """Fields of a dataclass as keys."""
    return _fields_of(cast("Hashable", cls))


@cache
def _fields_of(cls: type) -> Mapping[str, Parameter]:
    hints = get_type_hints(cls)
    return {item.name: Parameter(item.name, hints[item.name], *_default_of(item)) for item in fields(cls)}


def _are_equal(value: object, default: object) -> bool:
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_are_equal, value, default))
    return type(value) is type(default) and bool(value == default)


def _default_of(item: Field[Any]) -> tuple[bool, Any]:
    """Whether a field is required, and its default."""
    if item.default is not MISSING:
        return False, item.default
    return (True, None) if item.default_factory is MISSING else (False, item.default_factory())


def decisive(options: Mapping[str, Any], target: Callable[..., Any]) -> dict[str, Any]:
    """The options that differ from the defaults of `target`: what keys have, so that a new option changes no key."""
    allowed = parameters_of(target) or {}
    return {key: value for key, value in options.items() if key not in allowed or not allowed[key].is_default(value)}


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        return get_type_hints(function)
    except Exception:
        # A user's component may import its annotations for type checkers only, and such a text may raise anything.
        # Then only keys are checked, types are not, and no key takes a component.
        return {}


def returned_class(function: Callable[..., Any]) -> type | None:
    """The class that the return annotation of a function names, or None."""
    hint = _hints(function).get("return")
    named = get_origin(hint) or hint
    return named if isinstance(named, type) else None


# Modules whose classes are plain values, and not components.
_PLAIN = ("builtins", "collections.abc", "types", "typing")


def component_kinds(hint: object) -> tuple[type, ...]:
    """Component classes that an annotation names: `Cache` for `Cache | None`, none for `int` or `Any`."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    named = [get_origin(option) or option for option in options]
    return tuple(kind for kind in named if isinstance(kind, type) and kind.__module__ not in _PLAIN)


# Longer lists of names are not shown completely.
_MANY = 70


def nearest(word: str, allowed: Iterable[str], alike: float = 0.5) -> str | None:
    """The most similar of `allowed`, or None if no similarity reaches `alike` (1: equal)."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=alike)
    return close[0] if close else None


def one_of(allowed: Iterable[str], word: str = "") -> str:
    """`allowed: a, b, c` for messages. Of a very long list, only the names most similar to `word`."""
    names = sorted(allowed)
    if word and len(names) > _MANY:
        return f"allowed: {', '.join(difflib.get_close_matches(word, names, n=8, cutoff=0.0))}, … ({len(names)} names)"
    return "allowed: " + (", ".join(names) or "nothing")


def unknown(key: str, value: object, word: str, allowed: Iterable[str], prefix: str = "") -> Problem:
    """The problem of an unknown name, with the most similar allowed name as the fix."""
    names = list(allowed)
    close = nearest(word, names)
    return Problem(key, value, one_of(names, word), f"did you mean {prefix}{close}?" if close else "choose one of them")


def key_problems(path: str, node: Mapping[str, Any], allowed: Mapping[str, Parameter]) -> list[Problem]:
    """All unknown keys, missing required keys and values of the wrong type in `node`."""
    problems = []
    for key, value in node.items():
        if (why := GONE.get(f"{path}.{key}")) is not None:
            problems.append(Problem(f"{path}.{key}", value, why, f"leave it out: '~{path}.{key}'"))
        elif key not in allowed:
            problem = unknown(f"{path}.{key}", value, str(key), allowed, f"{path}.")
            # Usually not a typing mistake: a class that the system's file chose before has this key.
            without = problem if nearest(str(key), allowed) else replace(problem, fix=f"leave it out: '~{path}.{key}'")
            problems.append(without)
        elif not fits(value, allowed[key].hint):
            problems.append(wrong_type(f"{path}.{key}", value, allowed[key].hint))
    for name, parameter in allowed.items():
        if parameter.required and name not in node:
            expected = describe_annotation(parameter.hint)
            problems.append(Problem(f"{path}.{name}", None, f"required: {expected}", f"add {path}.{name}=…"))
    return problems


def wrong_type(key: str, value: object, hint: object) -> Problem:
    """The problem of a value that does not fit its annotation."""
    choices = [str(choice) for choice in _literals(hint)]
    close = nearest(str(value), choices) if choices else None
    fix = f"did you mean {key}={close}?" if close else f"give {describe_annotation(hint)}"
    return Problem(key, value, f"must be {describe_annotation(hint)}", fix)


_SCALARS: dict[object, Callable[[object], bool]] = {
    Any: lambda value: True,
    None: lambda value: value is None,
    type(None): lambda value: value is None,
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    str: lambda value: isinstance(value, str),
}


def fits(value: object, hint: object) -> bool:
    """Whether a `value` from a YAML file fits `hint`. An int fits float; a bool does not fit int.

    A mapping with `_target_` fits every class, because nested components are checked separately.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in args)
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in args)
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    return _fits_container(value, origin or hint, args)


def _fits_container(value: object, kind: object, args: tuple[object, ...]) -> bool:
    if kind in (list, tuple, AbstractSequence):
        if not isinstance(value, (list, tuple)):
            return False
        if kind is tuple and args and args[-1] is not Ellipsis:
            return len(value) == len(args) and all(map(fits, value, args))
        return not args or all(fits(item, args[0]) for item in value)
    if kind in (dict, Mapping):
        return isinstance(value, Mapping) and (
            not args or all(fits(key, args[0]) and fits(item, args[1]) for key, item in value.items())
        )
    if isinstance(value, Mapping):
        return TARGET in value or is_dataclass(kind)
    return isinstance(value, kind) if isinstance(kind, type) else True


def _literals(hint: object) -> list[object]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return [choice for option in get_args(hint) for choice in _literals(option)]
    return []


_NAMES: dict[object, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
    Any: "anything",
}


def describe_annotation(hint: object) -> str:
    """An annotation in plain words: `an integer or null`."""
    if hint in _NAMES:
        return _NAMES[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(str(option) for option in args)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_annotation(option) for option in args)
    if origin in (list, tuple, AbstractSequence):
        inner = [describe_annotation(option) for option in args if option is not Ellipsis]
        return f"a list of ({', '.join(inner)})" if inner else "a list"
    return _describe_mapping(hint, origin)


def _describe_mapping(hint: object, origin: object) -> str:
    if origin in (dict, Mapping):
        return "a mapping of names" if get_args(hint)[:1] == (str,) else "a mapping"
    if isinstance(hint, type) and is_dataclass(hint):
        return f"a mapping {{{','.join(f'{item.name}:…' for item in fields(hint))}}}"
    return f"a component ({getattr(hint, '__name__', hint)}: a mapping with {TARGET})"
