"""What a release is made with holds together: recipes of packages and images, workflows, lock file, the size."""

import re
import shlex
import subprocess
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

import sfumato

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"torch": "pytorch"}


def requirement(text: str) -> tuple[str, str]:
    """Name and lowest version of a requirement."""
    found = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\w.]+))?", text)
    assert found, text
    return found[1].lower().replace("_", "-"), found[2] or ""


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    wanted = {requirement(text) for text in PROJECT["dependencies"]}
    wanted = {(CONDA_NAMES.get(name, name), version) for name, version in wanted}
    asked = {requirement(text) for text in recipe["requirements"]["run"] if not text.startswith("python ")}
    assert asked == wanted
    assert recipe["context"]["version"] == sfumato.__version__
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    command, function = recipe["build"]["python"]["entry_points"][0].split(" = ")
    assert PROJECT["scripts"] == {command: function}
    assert recipe["about"]["license"] == PROJECT["license"]


def docker_instructions(text: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their lines joined; anything that is none fails."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in re.sub(r"\\\n\s*", " ", lines).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            assert word in {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "ENTRYPOINT", "CMD", "ENV"}, line
            assert rest.strip(), line
            found.append((word, rest.strip()))
    return found


DOWNLOADS = re.compile(r"\b(curl|wget|apt|apt-get|git|conda|https?:|ftp:)")


def test_the_dockerfile() -> None:
    instructions = docker_instructions((ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8"))
    words = [word for word, _ in instructions]
    assert next(word for word in words if word != "ARG") == "FROM"
    last_stage = len(words) - 1 - words[::-1].index("FROM")
    assert "USER" in words[last_stage:], "must not run as root"
    assert dict(instructions)["USER"] != "root"
    assert yaml.safe_load(dict(instructions)["ENTRYPOINT"]) == list(PROJECT["scripts"])
    stages = [match[1] for _, rest in instructions if (match := re.search(r" AS (\w+)$", rest))]
    for word, rest in instructions:
        if word == "COPY":
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            if stage := re.match(r"--from=(\w+)", rest):
                assert stage[1] in stages
            else:
                assert all((ROOT / source).exists() for source in sources), rest
        if word == "RUN":
            check_shell(rest)
    given = {match[1] for word, rest in instructions if word == "ARG" and (match := re.match(r"(\w+)", rest))}
    used = {name for _, rest in instructions for name in re.findall(r"\$\{(\w+)", rest)}
    assert used <= given


def test_the_apptainer_definition() -> None:
    text = (ROOT / "packaging" / "sfumato.def").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    head, *parts = re.split(r"^%", lines, flags=re.MULTILINE)
    header = dict(line.split(": ", 1) for line in head.splitlines() if line.strip())
    assert header == {"Bootstrap": "docker", "From": "python:3.12-slim"}
    sections = {name: body for name, _, body in (part.partition("\n") for part in parts)}
    known = {"arguments", "files", "post", "environment", "runscript", "test", "labels", "help"}
    assert set(sections) == known
    for line in filter(None, map(str.strip, sections["files"].splitlines())):
        assert (ROOT / line.split()[0]).exists(), line
    given = {line.strip().split("=")[0] for line in sections["arguments"].splitlines() if line.strip()}
    assert set(re.findall(r"\{\{ (\w+) \}\}", text)) == given
    for name in ("post", "environment", "runscript", "test"):
        check_shell(re.sub(r"\{\{ \w+ \}\}", "value", sections[name]))


def check_shell(script: str) -> None:
    """Valid for a shell, and downloading nothing but what pip does."""
    assert subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True).stderr == ""
    assert not DOWNLOADS.search(script), script
    for extra in re.findall(r"EXTRAS=([\w,]+)", script):
        assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", ["Dockerfile", "sfumato.def"])
def test_images_install_extras_that_exist(name: str) -> None:
    text = (ROOT / "packaging" / name).read_text(encoding="utf-8")
    extras = re.findall(r"EXTRAS=([\w,]+)", text)
    assert len(extras) == 1
    assert set(extras[0].split(",")) <= set(PROJECT["optional-dependencies"])


def workflows() -> list[Path]:
    return sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", workflows(), ids=lambda path: path.name)
def test_workflows_run_files_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            for word in shlex.split(step.get("run", "")):
                if word.startswith((".ci/", "benchmarks/", "experiments/")):
                    assert (ROOT / word).is_file(), word
            for extras in re.findall(r"\.\[([\w,]+)\]", step.get("run", "")):
                assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_releases_are_published_by_trust_and_not_by_a_secret() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs: dict[str, Any] = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in text
    assert all("run" not in step for step in jobs["publish"]["steps"]), "what holds the token runs no code of ours"


def test_issue_templates() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= set(form)
        names = [field["id"] for field in form["body"]]
        assert len(names) == len(set(names))
        assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown"}
        assert all(field["attributes"]["label"] for field in form["body"])


def test_the_lock_file_pins_the_development_environment() -> None:
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+(post\d+)?", pin) for pin in pins), "names and versions, no places"
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["dev"], *extras["evaluate"]]:
        assert requirement(text)[0] in pinned, f"{text} is not in requirements-dev.lock"


def test_the_wheel_stays_small() -> None:
    """A wheel is the package, compressed: 6 MB at most, so that it can bring a model and a specimen."""
    package = Path(sfumato.__file__).parent
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < 6e6


@pytest.mark.parametrize("name", ["run", "setup", "smoke_wheel", "smoke_extra"])
def test_the_scripts_of_ci_are_shell(name: str) -> None:
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / name)], capture_output=True, text=True).stderr == ""


def test_every_extra_that_is_smoked_has_its_call() -> None:
    script = (ROOT / ".ci" / "smoke_wheel").read_text(encoding="utf-8")
    calls = (ROOT / ".ci" / "smoke_extra.py").read_text(encoding="utf-8")
    names = re.findall(r"for extra in \$\{EXTRAS:-([\w ]+)\};", script)[0].split()
    for name in names:
        assert f"def {name}()" in calls
        assert name in PROJECT["optional-dependencies"]
