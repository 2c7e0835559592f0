"""YAML whose values are what they look like."""

from typing import Any

import pytest
import yaml

from sfumato.system.errors import RecipeError
from sfumato.system.strict_yaml import read

PLAIN: dict[str, Any] = {
    "0": 0,
    "-10": -10,
    "1_000": 1000,
    "0x1F": 31,
    "1.5": 1.5,
    ".5": 0.5,
    "1.0e-05": 1e-05,
    "true": True,
    "null": None,
    "no": "no",
    "2024-03-12": "2024-03-12",
    "089": "089",
    "1e-3": "1e-3",
    "'010'": "010",
    '".inf"': ".inf",
}

UNCLEAR = {
    "010": "octal",
    "-010": "octal",
    "00.5": "octal",
    "!!int 010": "octal",
    "1:30": "base 60",
    "1:30.5": "base 60",
    ".inf": "finite",
    "-.Inf": "finite",
    ".nan": "finite",
    "1.0e+400": "finite",
    "9" * 5000: "is not a plain number",
    "0x" + "f" * 5000: "is not a plain number",
}


@pytest.mark.parametrize("text", PLAIN)
def test_a_value_is_what_it_looks_like(text: str) -> None:
    value = read(f"a: {text}", source="x").values["a"]
    assert value == PLAIN[text]
    assert type(value) is type(PLAIN[text])


@pytest.mark.parametrize("text", UNCLEAR, ids=range(len(UNCLEAR)))
def test_a_number_that_is_not_clear_is_refused_as_it_is_written(text: str) -> None:
    with pytest.raises(RecipeError, match=UNCLEAR[text]) as refused:
        read(f"b: 1\na: {text}", source="x")
    assert f"x, line 2: {text.removeprefix('!!int ')[:50]}" in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_key_twice_is_refused_with_both_lines() -> None:
    with pytest.raises(RecipeError, match="line 4: the key 'c' is on line 2 too; remove one"):
        read("a:\n  c: 1\n  d: 2\n  c: 3", source="x")


def test_keys_taken_over_may_be_replaced_wherever_they_stand() -> None:
    text = "x: &x {b: 1}\ndeep: {deep: {c: &c {<<: *x, b: 2}}}\nd: {<<: *c, b: 3}"
    assert read(text, source="x").values["d"] == {"b": 3}
    assert read(text, source="x").values["deep"]["deep"]["c"] == {"b": 2}


def test_aliases_that_stand_for_billions_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(RecipeError, match="stands for more than"):
        read("\n".join(lines), source="x")
    with pytest.raises(RecipeError, match="stands for more than"):
        read("a: &a [*a]", source="x")
    with pytest.raises(RecipeError, match="stands for more than"):
        read(f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 1000)}]", source="x")
    with pytest.raises(RecipeError, match="characters"):
        read("x" * 2_000_000, source="x")


@pytest.mark.parametrize("tag", ["!!python/name:os.system", "!!binary", "!!timestamp", "!!bool", "!!set"])
def test_other_kinds_of_values_are_refused(tag: str) -> None:
    with pytest.raises(RecipeError, match="is not YAML"):
        read(f"a: {tag} maybe", source="x")


@pytest.mark.parametrize(
    "name", ["089", "1e3", "010", "1:30", "inf", ".inf", "no", "2024-03-12", "0o10", "<<", "=", "~"]
)
def test_text_that_was_written_reads_back(name: str) -> None:
    assert read(yaml.safe_dump({"name": name}), source="x").values == {"name": name}
