# SPDX-License-Identifier: GPL-2.0-or-later
"""Manual pages, completion and the reference of the configuration are what the programs say."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BIN

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts/manuals"))
import completion  # noqa: E402
import configuration  # noqa: E402
import pages  # noqa: E402
import source  # noqa: E402

DIRECTORY = os.path.abspath(BIN)
PROGRAMS = source.COMMANDS + source.DAEMONS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    at = tmp_path_factory.mktemp("manuals")
    done = subprocess.run([sys.executable, ROOT / "scripts/manuals", DIRECTORY, at],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return at


def helps(name):
    """--help of a program and of each command below it."""
    for app in source.flat(source.program(DIRECTORY, name)):
        words = app["program"].split()
        done = subprocess.run([f"{DIRECTORY}/{words[0]}", *words[1:], "--help"],
                              capture_output=True, text=True, timeout=20)
        yield app, done.stdout


def long_options(text):
    return set(re.findall(r"^\s{0,8}(?:-\w(?: \w+)?, ?)?--([a-z][\w-]*)", text, re.M))


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_has_just_the_options_that_the_page_and_the_completion_have(name, made):
    section = pages.ALL[name]
    page = (made / f"man/{name}.{section}").read_text().replace("\\-", "-")
    offered = completion.table(DIRECTORY)[2][name]
    of_all = set()
    for app, text in helps(name):
        listed = {o["name"] for o in app["options"] if o["name"]}
        assert long_options(text) == listed or name == "marketsim" and not listed, app["program"]
        of_all |= listed
        for option in listed:
            assert f"\\fB--{option}\\fR" in page, (app["program"], option)
    assert {o[2:] for o in offered if o.startswith("--")} == of_all
    assert of_all or name == "marketsim"


@pytest.mark.parametrize("name", ["marketctl", "pvdctl"])
def test_each_verb_of_help_is_on_the_page_and_completed(name, made):
    app = source.program(DIRECTORY, name)
    help_text = subprocess.run([f"{DIRECTORY}/{name}", "--help"], capture_output=True, text=True,
                               timeout=20).stdout
    words = completion.table(DIRECTORY)[0][name]
    page = (made / f"man/{name}.1").read_text().replace("\\-", "-")
    assert len(app["verbs"]) >= 5
    for verb in app["verbs"]:
        assert f"\n  {verb['words']}" in help_text
        first = verb["words"].split()[0]
        assert first in words and f"\\fB{first}\\fR" in page


def test_the_reference_of_the_configuration_is_the_one_that_the_daemons_give():
    assert (ROOT / "docs/configuration.md").read_text() == configuration.reference(DIRECTORY), (
        "make configuration-reference writes it anew")


@pytest.mark.parametrize("daemon", source.DAEMONS)
def test_every_key_has_a_sentence_and_an_example_that_is_taken(daemon, tmp_path):
    settings = source.settings(DIRECTORY, daemon)
    assert len(settings) > 20
    assert all(s["about"].endswith(".") and s["takes"] and s["example"] for s in settings)
    config, users = tmp_path / "d.conf", tmp_path / "users.map"
    users.write_text("uni/* = -\n")
    examples = {s["name"]: s["example"] for s in settings}
    if "user_map" in examples:  # a file that is read
        examples["user_map"] = f'"{users}"'
    config.write_text("".join(f"{name} = {value}\n" for name, value in examples.items()))
    done = subprocess.run([f"{DIRECTORY}/{daemon}", "--config", config, "--check-config"],
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    # agentd says behind them who the users of other nodes are
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == len(settings) and all(f"# {config}:" in line for line in lines), lines


@pytest.mark.parametrize("daemon", source.DAEMONS)
def test_check_config_prints_what_is_in_force_and_reads_back(daemon, tmp_path):
    config = tmp_path / "d.conf"
    config.write_text('\nmarket = "m1:7070"\nprice = "2.5"\nlease_s = "20m"\n'
                      if daemon == "agentd" else '\nmin_stay_ms = "10s"\nnodes_max = 7\n')
    argv = [f"{DIRECTORY}/{daemon}", "--config", config, "--check-config"]
    first = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert first.returncode == 0, first.stderr
    for expected in ([("price", '"2.5"', 3), ("lease_s", "1200", 4)] if daemon == "agentd"
                     else [("min_stay_ms", "10000", 2), ("nodes_max", "7", 3)]):
        assert re.search(r"^%s = %s +# %s:%d$" % (expected[0], expected[1], config, expected[2]),
                         first.stdout, re.M), (expected, first.stdout)
    assert " # default" in first.stdout
    config.write_text(first.stdout)
    again = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert again.returncode == 0, again.stderr
    cut = [re.sub(r"\s+#.*", "", line) for line in first.stdout.splitlines()]
    assert [re.sub(r"\s+#.*", "", line) for line in again.stdout.splitlines()] == cut


@pytest.mark.parametrize("name", pages.ALL)
def test_a_page_renders_without_a_warning(name, made):
    page = made / f"man/{name}.{pages.ALL[name]}"
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", page], capture_output=True,
                              text=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True,
                              text=True, timeout=30)
        # It has no date, so that the same source makes the same page.
        said = [line for line in done.stdout.splitlines() if "missing date" not in line]
        assert said == []


FAKE = r"""#!/bin/sh
case "$*" in
*list-jobs) echo '[{"id":"n1.1","state":"run"},{"id":"n2.7","state":"wait"}]' ;;
*list-providers) echo '[{"node":"n1"},{"node":"n2"}]' ;;
*"user show") echo '[{"user":"ada"}]' ;;
esac
"""
CASES = [
    (["marketctl", "mo"], ["move"]),
    (["marketctl", "move", ""], ["n1.1", "n2.7"]),
    (["marketctl", "move", "n1.1", ""], ["n1", "n2"]),
    (["marketctl", "--json", "node", "lost", "n"], ["n1", "n2"]),
    (["marketctl", "user", "limit", ""], ["ada"]),
    (["srun", "--attach", "n1"], ["n1.1"]),
    (["pvdctl", "market", ""], ["off", "on"]),
    (["souk", "d"], ["demo", "doctor", "down"]),
    (["marketsim", "com"], ["compare"]),
    (["agentd", "--cal"], ["--calibrate"]),
]


@pytest.mark.parametrize("words, expected", CASES, ids=str)
def test_completion_knows_words_jobs_nodes_and_users(words, expected, made, tmp_path):
    fake = tmp_path / "marketctl"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = (f'. {made}/completion/bash/souk; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_souk "$1" "${!#}"; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", *words], env=env, capture_output=True,
                          text=True, timeout=30)
    assert (sorted(done.stdout.split()), done.stderr) == (expected, "")
    if not shutil.which("zsh"):
        return
    # compadd is zsh's own; here it prints what it would offer.
    shell = ('compadd() { shift; print -l -- ${(P)1}; }; words=("$@"); CURRENT=$#; '
             f'set --; . {made}/completion/zsh/_souk')
    done = subprocess.run(["zsh", "-f", "-c", shell, "zsh", *words], env=env, capture_output=True,
                          text=True, timeout=30)
    offered = [w for w in done.stdout.split() if w.startswith(words[-1])]
    assert (sorted(offered), done.stderr) == (expected, "")


def test_the_source_of_help_is_json_with_the_same_program_name():
    for name in PROGRAMS:
        done = subprocess.run([f"{DIRECTORY}/{name}", "--help-source"], capture_output=True,
                              text=True, timeout=20)
        assert json.loads(done.stdout)["program"] == name
