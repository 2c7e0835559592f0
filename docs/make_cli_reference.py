"""Write docs/cli.md from the command line's own definition.

python docs/make_cli_reference.py
"""

import enum
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from sfumato.cli import app

__all__ = ["reference"]

DOCS = Path(__file__).parent

HEAD = """# Commands

What `sfumato --help` and `sfumato COMMAND --help` say, on one page. It is generated from the code by
`python docs/make_cli_reference.py`.

| command | does |
|---|---|"""

KINDS = {int: "integer", float: "number", str: "text", Path: "path"}


def reference() -> str:
    """All commands, their arguments and options, as a Markdown page."""
    commands = list(_commands(app, "sfumato"))
    lines = [HEAD]
    for name, function in commands:
        does = (inspect.getdoc(function) or "").split("\n\n")[0]
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {' '.join(does.split())} |")
    for name, function in commands:
        lines += ["", f"## {name}", "", *_command(name, function)]
    return "\n".join(lines) + "\n"


def _commands(group: typer.Typer, prefix: str) -> Iterator[tuple[str, Callable[..., None]]]:
    """Names and functions of all commands, from the signatures alone: what typer makes of them changes by version."""
    for command in group.registered_commands:
        function = command.callback
        assert function is not None
        yield f"{prefix} {command.name or function.__name__.replace('_', '-')}", function
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from _commands(inner.typer_instance, f"{prefix} {inner.name}")


def _command(name: str, function: Callable[..., None]) -> list[str]:
    rows: dict[str, list[str]] = {"argument": [], "option": []}
    usage = [name]
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind, info = typing.get_args(parameter.annotation)[:2]
        required = parameter.default is inspect.Parameter.empty
        if isinstance(info, ArgumentInfo):
            word = info.metavar or parameter.name.upper()
            many = "..." if _is_list(kind) else ""
            usage.append(f"{word}{many}" if required else f"[{word}{many}]")
            rows["argument"].append(_row(f"`{word}`", parameter.default, info.help))
        elif isinstance(info, OptionInfo) and not info.hidden:
            rows["option"].append(_row(_option(parameter, kind, info), parameter.default, info.help))
    usage += ["[OPTIONS]"] if rows["option"] else []
    lines = [textwrap.dedent(inspect.getdoc(function) or "").strip(), "", "```text", " ".join(usage), "```"]
    for title, found in rows.items():
        if found:
            lines += ["", f"| {title} | default | meaning |", "|---|---|---|", *found]
    return lines


def _is_list(kind: Any) -> bool:
    """Whether it takes any number of values, or none at all."""
    return typing.get_origin(kind) in (list, tuple) or any(map(_is_list, typing.get_args(kind)))


def _option(parameter: inspect.Parameter, kind: Any, info: OptionInfo) -> str:
    """Its names and what it takes; in an annotation, typer keeps the first name where a default would be."""
    word = parameter.name.replace("_", "-")
    default = f"--{word}/--no-{word}" if kind is bool and parameter.default else f"--{word}"
    given = [*([info.default] if isinstance(info.default, str) else []), *(info.param_decls or ())]
    names = ", ".join(f"`{name}`" for name in given or [default])
    return " ".join([names, info.metavar or _kind(kind)]).strip()


def _kind(kind: Any) -> str:
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if typing.get_origin(kind) is tuple and Ellipsis not in inner:
        return " ".join(map(_kind, inner))
    if typing.get_origin(kind) in (types.UnionType, typing.Union, list, tuple):
        return " or ".join(_kind(each) for each in inner if each not in (type(None), Ellipsis))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(f"`{choice.value}`" for choice in kind)
    return KINDS.get(kind, "")


def _row(name: str, default: Any, text: str | None) -> str:
    if default is inspect.Parameter.empty:
        shown = "required"
    elif default is None or default is False or default in ((), []):
        shown = ""
    else:
        shown = f"`{getattr(default, 'value', default)}`".replace("`True`", "`true`")
    meaning = " ".join((text or "").split()).replace("|", "\\|")
    return f"| {name} | {shown} | {meaning} |"


if __name__ == "__main__":
    (DOCS / "cli.md").write_text(reference(), encoding="utf-8")
