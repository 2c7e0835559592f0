"""The recipe: defaults that train, mistakes that are named, a reference that is up to date."""

import runpy
from pathlib import Path

import pytest

from sfumato.cli.settings import places, recipe_of
from sfumato.models import recipe
from sfumato.system.errors import RecipeError

DOCS = Path(__file__).parents[2] / "docs"

MISTAKES = [
    ("train:\n  step: 10", r"line 2: no such key as 'train.step'; did you mean 'steps'\?"),
    ("modle: {}", "line 1: no such key as 'modle'; did you mean 'model'"),
    ("a: 1\nzzz: 2", "known keys here: name, problem"),
    ("train:\n  steps: -3", "line 2: train.steps is -3; input should be greater than 0"),
    ("train: {steps: many}", "train.steps is 'many'; input should be a valid integer"),
    ("model: {norm: batch}", "model.norm is 'batch'; input should be 'population', 'channel' or 'instance'"),
    ("model: 3", "model is 3"),
    ("data: {inputs: low}", "give both folders"),
    ("data: {inputs: a, targets: b, manifest: c}", "images come from one place"),
    ("data: {quantiles: [0.9, 0.1]}", "give 0 <= low < high <= 1"),
    ("data: {validation_fraction: 1.0}", "less than 1"),
    ("train: {ema: 1}", "less than 1"),
    ("train: {steps: true}", "train.steps is True; true and false are not numbers"),
    ("train: {steps: yes}", "train.steps is 'yes'; input should be a valid integer"),
    ("data: {quantiles: [false, 0.9]}", "true and false are not numbers"),
    ("train:\n  learning_rate: inf", "line 2: train.learning_rate is 'inf'; input should be a finite number"),
    ("forward: {pixel_um: nan}", "input should be a finite number"),
    ("train:\n  seed: -1", "line 2: train.seed is -1; expected a whole number from 0 to 18446744073709551615"),
    ("x: [", "is not YAML"),
    ("- 1", "holds a list"),
    ("{" * 3000, "is not YAML|nested too deeply"),
    ("a: !!python/object/apply:os.system [ls]", "is not YAML"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe.parse(text)


def test_the_resolved_recipe_reads_back() -> None:
    held = recipe.parse("data: {inputs: low, targets: high}\ntrain: {steps: 10}")
    assert recipe.parse(recipe.dump(held)) == held
    assert recipe.parse("") == recipe.Recipe()


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        recipe.Recipe().name = "other"


def test_unreadable_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="give the path of a YAML text file"):
        recipe.load(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        recipe.load(tmp_path / "binary.yaml")


def test_reference_and_schema_are_up_to_date() -> None:
    """If this fails: python docs/make_recipe_reference.py"""
    made = runpy.run_path(str(DOCS / "make_recipe_reference.py"))
    assert (DOCS / "recipe.md").read_text(encoding="utf-8") == made["reference"]()
    assert (DOCS / "recipe.schema.json").read_text(encoding="utf-8") == recipe.schema() + "\n"
    assert "None" not in {
        line.split("|")[4].strip() for line in made["reference"]().splitlines() if line.startswith("| `")
    }


@pytest.mark.parametrize("name", ["20240312", "no", "null", "exp #2/low", "1: two", "proben_größe 𝛽", 'with "quotes"'])
def test_folders_may_have_any_name(name: str) -> None:
    data = recipe_of(None, places({"inputs": name, "targets": name})).data
    assert (data.inputs, data.targets, data.folder) == (name, name, None)
