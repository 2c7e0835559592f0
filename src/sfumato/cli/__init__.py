"""The command line, one file per command; it parses arguments, calls the library and prints the results.

No module here imports torch at the top, so ``--help`` and ``--version`` answer at once.
"""

import sys

from sfumato.cli.app import app
from sfumato.cli.audit import audit
from sfumato.cli.calibrate import calibrate
from sfumato.cli.clinical import clinical
from sfumato.cli.demo import demo
from sfumato.cli.doctor import doctor
from sfumato.cli.evaluate import evaluate
from sfumato.cli.export import export
from sfumato.cli.inspect import inspect
from sfumato.cli.pack import pack
from sfumato.cli.restore import restore
from sfumato.cli.simulate import simulations
from sfumato.cli.sweep import sweep
from sfumato.cli.train import train
from sfumato.system.device import keep_freed_memory

__all__ = ["app", "main"]

# In the order of --help.
_COMMANDS = (demo, train, restore, calibrate, evaluate, audit, inspect, export, pack, sweep, clinical, doctor)
for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(simulations, name="simulate")


def main() -> None:
    """Run the command line."""
    keep_freed_memory()  # only here: as a library, sfumato must not change settings of somebody else's process
    app(prog_name="sfumato", args=sys.argv[1:])
