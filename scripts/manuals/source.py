# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs' descriptions of themselves: PROGRAM --help-source and DAEMON --config-reference."""
import functools
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = ["srun", "pvdctl", "marketctl", "mmon", "souk", "souk-audit", "souk-web", "solver",
            "marketsim", "clustersim", "testload", "souk-exec"]
DAEMONS = ["agentd", "marketd"]
# A page for people about a text format, from the comment that opens the source which reads it.
FORMATS = {
    "souk-solver": ("the solver's text protocol", ["market/core/solver_protocol.hpp"]),
    "souk-marketsim": ("files of the market simulator",
                       ["market/sim/market_files.hpp", "market/sim/import.hpp",
                        "market/sim/swf.hpp"]),
}


def said(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60,
                          check=True)
    return json.loads(done.stdout)


def tidy(text):
    return re.sub(r"\s+", " ", text).strip()


def flat(app):
    """A program and the commands below it, each with its options and words."""
    yield app
    for command in app.get("commands", []):
        if command["options"][1:] or not command.get("elsewhere"):
            yield from flat(command)


@functools.lru_cache(None)
def program(directory, name):
    path = f"{directory}/{name}"
    app = said(path, "--help-source")
    app["commands"] = app.get("commands", []) + [
        said(path, sub, "--help-source") for sub in app.get("subprograms", [])]
    if name == "souk":  # it has a command line of its own
        app["commands"] = [said(path, "doctor", "--help-source")
                           if c["program"] == "souk doctor" else c for c in app["commands"]]
    for one in flat(app):
        for option in one["options"]:
            option["help"] = tidy(option["help"])
    return app


@functools.lru_cache(None)
def settings(directory, daemon):
    return said(f"{directory}/{daemon}", "--config-reference")


def opening_comment(source):
    lines = (ROOT / source).read_text().split("\n")[1:]
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return [line[3:] for line in lines[:end]]


def version():
    return (ROOT / "VERSION").read_text().strip()
