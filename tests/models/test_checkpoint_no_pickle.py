"""No pickle is read or written anywhere: reading one can run any code."""

import ast
import os
import pickle
from pathlib import Path

import pytest
import torch

import sfumato
from sfumato.models.model_file import inspect_model, load
from sfumato.system.errors import ModelFileError

PACKAGE = Path(sfumato.__file__).parent
MODULES = {"pickle", "_pickle", "cPickle", "pickletools", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {
    *("torch.load", "torch.save", "torch.jit.load", "torch.jit.save", "torch.hub.load", "torch.export.load"),
    *("pandas.read_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.lib.npyio.NpzFile"),
    *("torch.distributed.broadcast_object_list", "torch.distributed.all_gather_object"),
    *("torch.distributed.gather_object", "torch.distributed.scatter_object_list"),
    *("torch.distributed.send_object_list", "torch.distributed.recv_object_list"),
}


def findings(source: str) -> list[str]:
    """What in a program would read or write a pickle, or run code that a file says."""
    tree, names, found = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                found += [alias.name] * (alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found += [str(node.module)] * (str(node.module).split(".")[0] in MODULES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            written = ast.unparse(node)
            head, _, rest = written.partition(".")
            full = f"{names.get(head, head)}.{rest}".rstrip(".")
            found += [full] * (full in CALLS)
        if isinstance(node, ast.Call):
            head, _, rest = ast.unparse(node.func).partition(".")
            full = f"{names.get(head, head)}.{rest}".rstrip(".")
            allowed = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "allow_pickle"]
            if allowed not in ([], ["False"]) or (full in ("numpy.load", "numpy.memmap.load") and not allowed):
                found.append(full)
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_package_uses_no_pickle(path: Path) -> None:
    assert findings(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    import pickle as p",
        "from pickle import loads",
        "import cloudpickle.core",
        "import torch\ntorch.load('x')",
        "import torch\nread = torch.load",
        "import torch as t\nt.save({}, 'x')",
        "from torch import load\nload('x')",
        "from torch import load as read\nread('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', allow_pickle=flag)",
        "from numpy import load\nload('x', mmap_mode='r')",
        "import numpy as np\nnp.save('x', a, allow_pickle=True)",
        "import torch.distributed as dist\ndist.broadcast_object_list([])",
        "import yaml\nyaml.load(text, yaml.Loader)",
    ],
)
def test_the_search_finds_what_it_should(source: str) -> None:
    assert findings(source)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "from sfumato.models.recipe import load\nload('x')",
        "import yaml\nyaml.safe_load(text)",
        "model.load_state_dict(state)",
        "import json\njson.load(file)",
    ],
)
def test_the_search_leaves_the_rest_alone(source: str) -> None:
    assert findings(source) == []


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("read", [load, inspect_model])
@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
def test_a_pickle_is_refused_and_not_run(read: object, protocol: int, tmp_path: Path) -> None:
    path, mark = tmp_path / "model.safetensors", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Trap(mark), protocol))
    words = (
        "is not a safetensors file" if protocol == 0 else "is a pickle.*can run any code.*ask for the model as a safe"
    )
    assert callable(read)
    with pytest.raises(ModelFileError, match=words):
        read(path)
    assert not mark.exists()
    torch.save(Trap(mark), path)
    with pytest.raises(ModelFileError, match=r"is a pickle, as torch\.save writes it"):
        read(path)
    assert not mark.exists()
