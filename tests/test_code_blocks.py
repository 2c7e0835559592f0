"""Every code block of every page is run, or says why not; what is not run could be: its commands and options exist."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from page_blocks import KINDS, Block, blocks, prose
from page_folders import PAGES
from sfumato.cli import app
from sfumato.cli.settings import recipe_of
from sfumato.models.recipe import parse

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packaging").glob("*.md")]
    if path.name != "CHANGELOG.md"  # tells of commands as they were
)
ELSEWHERE = {
    "docs/five_minutes.md": ".ci/smoke_wheel",
    "docs/in_python.md": "tests/test_documents.py",
    "docs/export.md": "tests/export/test_export.py",
}
"""What is run by more than following it, and the file that does."""


def blocks_of(document: str) -> list[Block]:
    return blocks((ROOT / document).read_text(encoding="utf-8"))


def is_run_by(way: str, document: str, block: Block) -> bool:
    """Whether a page, or a section of it by the start of its title, has this block."""
    page, _, section = way.partition(", ")
    return page == document and block.section.startswith(section)


def test_every_block_is_run_or_says_why_not() -> None:
    ways = {*PAGES, *ELSEWHERE}
    lost = []
    for document in DOCUMENTS:
        for block in blocks_of(document):
            place = f"{document}, line {block.line}"
            if block.kind not in KINDS:
                lost.append(f"{place}: the fence says {block.kind!r}; expected one of {KINDS}")
            elif not block.is_run and not block.reason:
                lost.append(f"{place}: not run, without a reason; expected <!-- not run: REASON -->")
            elif block.kind in ("text", "yaml") or not block.is_run:
                continue
            elif not any(is_run_by(way, document, block) for way in ways):
                lost.append(f"{place}: neither run nor marked; add its page to tests/page_folders.py, or a mark")
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("```python\nraise ValueError('seen')\n```\n", 1),
        ("```sh\nsfumato restore nothing.safetensors seen.tif out.tif\necho not reached\n```\n", 2),
        ("```sh\necho seen > file\ncat file | sfumato --version | cat - file >&2\n```\n", 0),
    ],
)
def test_following_a_page_tells_what_fails(document: str, code: int, programs: list[str], tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(document)
    command = [sys.executable, str(ROOT / ".ci" / "follow.py"), *programs, "--in", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path / "page.md")], capture_output=True, text=True, check=False)
    assert "seen" in done.stderr
    assert "not reached" not in done.stdout
    assert f"exit status {code}" in done.stderr if code else done.returncode == 0


@pytest.mark.parametrize("place", PAGES)
def test_a_page_runs_as_written(place: str, programs: list[str], tmp_path: Path) -> None:
    """But for what its marks make shorter."""
    document, _, section = place.partition(", ")
    if "--workers" in (ROOT / document).read_text(encoding="utf-8"):
        pytest.importorskip("distributed", reason="distributed is not installed (extra `cluster`)")
    PAGES[place](tmp_path)
    subprocess.run(
        [
            sys.executable,
            str(ROOT / ".ci" / "follow.py"),
            "--short",
            *programs,
            "--in",
            str(tmp_path),
            str(ROOT / document),
            section,
        ],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize(("place", "file"), ELSEWHERE.items())
def test_what_is_run_elsewhere_is_named_there(place: str, file: str) -> None:
    document, _, section = place.partition(", ")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert Path(document).name in text
    assert section in text


def test_indented_commands_are_fenced() -> None:
    """Only fences are run and marked."""
    for document in DOCUMENTS:
        text = prose((ROOT / document).read_text(encoding="utf-8"))
        found = re.search(r"^    (?:\$ |python |sfumato |pip |import |from ).*", text, re.MULTILINE)
        assert not found, f"{document}: {found[0]!r} should stand in a fence" if found else ""


def commands(code: str) -> list[list[str]]:
    """The words of all commands in a shell block, with variables filled in."""
    values = dict(re.findall(r'^(\w+)="(.*)"$', code, re.MULTILINE))
    found: list[list[str]] = []
    for line in re.sub(r"\\\n", " ", code).splitlines():
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], "1"), line)
        lexer = shlex.shlex(filled, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word[0] in "|&;<>":
                found += [words] if words else []
                words = []
            else:
                words.append(word)
    return found


def ours(words: list[str]) -> list[str] | None:
    """What sfumato is given, if it is what the command runs, alone or under `srun` or `torchrun`."""
    words = [word for word in words if word != "!"]
    starts = words[0] in ("sfumato", "srun", "torchrun") if words else False
    return words[words.index("sfumato") + 1 :] if starts and "sfumato" in words else None


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the other words."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[:1], "no command is named"
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_understood(document: str) -> None:
    """Those of blocks, as shown and as run, with their recipes and settings; of others, options must exist."""
    for block in blocks_of(document):
        for words in [*commands(block.code), *commands(block.in_tests())] if block.kind == "sh" else []:
            if (given := ours(words)) is not None and given != ["--version"]:
                command, rest = command_of(given)
                params = command.make_context("sfumato", rest).params
                recipe = params.get("recipe")
                is_there = recipe is not None and (ROOT / recipe).is_file()
                recipe_of(ROOT / recipe if is_there else None, params.get("settings") or [])
    text = prose((ROOT / document).read_text(encoding="utf-8"))
    for said in re.findall(r"`sfumato ([a-z][^`]*)`", text):
        words = said.split()
        command, rest = command_of(words)
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
        for word in rest:
            assert not word.startswith("--") or word in known, f"{document}: `sfumato {said}` has no {word}"


def test_scripts_exist_and_take_their_options() -> None:
    """Also those of inline code; the scripts' own parsers are asked, and nothing is run."""
    asked = set()
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        inline = re.findall(r"`python ([^`]*?\.py[^`]*)`", prose(text))
        found = [said.split() for said in inline]
        found += [
            words[1:]
            for block in blocks(text)
            if block.kind == "sh"
            for words in commands(block.code)
            if words[0] == "python" and words[1].endswith(".py")
        ]
        for words in found:
            if "*" not in words[0]:
                assert (ROOT / words[0]).is_file(), f"{document} names {words[0]}"
                asked.add(tuple(words))
    source = {words[0]: (ROOT / words[0]).read_text(encoding="utf-8") for words in asked}
    without = [words for words in asked if "argparse" not in source[words[0]]]
    assert not [words for words in without if any(word.startswith("-") for word in words)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "parse_only.py")],
        input=json.dumps(sorted([str(ROOT / words[0]), *words[1:]] for words in asked - set(without))),
        capture_output=True,
        text=True,
    )
    assert len(asked) > 30
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_not_run_could_be(document: str) -> None:
    """Shell and Python have no mistake in their grammar, and what is imported and installed exists."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = (ROOT / document).read_text(encoding="utf-8")
    for names in re.findall(r"(?:sfumato|'\.)\[([a-z,]+)\]", text):
        assert set(names.split(",")) <= set(extras), f"{document} names the extras {names}"
    for block in blocks(text):
        if block.kind == "yaml":
            parse(block.code)
        elif block.kind == "sh":
            subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
        elif block.kind == "python":
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.ImportFrom) and node.module and not block.is_run:
                    if node.module.startswith("dask_jobqueue"):
                        pytest.importorskip("dask_jobqueue", reason="not installed (extra `cluster`)")
                    module = importlib.import_module(node.module)
                    lost = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                    assert not lost, f"{document} imports {lost} from {node.module}"


def test_a_mark_that_changes_nothing_is_an_error() -> None:
    """Else a block whose text has moved on would train for half an hour in the tests."""
    (block,) = blocks("## T\n\n<!-- in tests: --minutes 30 => TINY -->\n\n```sh\nsfumato train --minutes 3\n```\n")
    assert block.section == "T"
    with pytest.raises(ValueError, match="--minutes 30"):
        block.in_tests()
    (block,) = blocks("<!-- in tests: 30 => 1 -->\n<!-- in tests: a => b -->\n```sh\na 30\n```\n")
    assert block.in_tests() == "b 1\n"
    (block,) = blocks("<!-- not run: needs\na GPU -->\n```sh\na\n```\n")
    assert (block.is_run, block.reason) == (False, "needs a GPU")
    (block,) = blocks("<!-- not run -->\n```sh\na\n```\n")
    assert (block.is_run, block.reason) == (False, "")
