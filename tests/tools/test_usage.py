# SPDX-License-Identifier: GPL-2.0-or-later
"""A mistake on a command line is said in one line before any daemon is asked, with exit status 2:
in words, or for programs with its code (SOUK_ERRORS=json)."""
import os

import pytest

from codes import IN_JSON

FILES = {"optional": "[[component]]\nclass = 'optional'\n",
         "many": "[[component]]\ncount = 10000\n",
         "twice": "[[component]]\nlabel='a'\n[[component]]\nlabel='a'\n",
         "program": "[[component]]\n[[component]]\nprogram='true'\n"}


# Long: a table.
@pytest.mark.parametrize("argv, word", [
    (["srun", "--bogus", "true"], "--bogus"),
    (["srun", "true"], "--max-price"),
    (["srun", "-p", "0", "true"], "more than 0"),
    (["srun", "-p", "-1", "true"], "-1"),
    (["srun", "-p", "5EUR", "true"], "5EUR"),
    (["srun", "-p", "nan", "true"], "nan"),
    (["srun", "-p", "1e99", "true"], "1e99"),
    (["srun", "-p", "", "true"], "price"),
    (["srun", "-p", "5"], "program"),
    (["srun", "-p", "5", "-m", "lots", "true"], "lots"),
    (["srun", "-p", "5", "-m", "-3", "true"], "-3"),
    (["srun", "-p", "5", "-c", "0", "true"], "0"),
    (["srun", "-p", "5", "-b", "-1", "true"], "-1"),
    (["srun", "-p", "5", "--tcp=keep", "true"], "neither close nor refuse"),
    (["srun", "-p", "5", "--net=mine", "true"], "neither host nor own"),
    (["srun", "-p", "5", "--net=own", "--tcp=close", "true"], "--tcp is for --net=host"),
    (["srun", "-J", "n1.999", "-p", "4", "--tcp=close"], "--tcp"),
    (["pvdctl", "--bogus"], "--bogus"),
    (["pvdctl", "set", "price", "-1"], "-1"),
    (["pvdctl", "market", "maybe"], "on or off"),
    (["marketctl", "--bogus"], "--bogus"),
    (["marketctl", "conquer"], "conquer"),
    (["souk", "conquer"], "conquer"),
    (["souk", "up", "--bogus"], "--bogus"),
    (["souk", "up", "--nodes", "0"], "--nodes"),
    (["souk", "up", "--speeds", "1,2"], "--speeds"),
    (["testload", "--bogus"], "--bogus"),
    (["agentd", "--bogus"], "--bogus"),
    (["marketd", "--config"], "--config: needs a file"),
    (["agentd", "--config", "/no/such/file"], "/no/such/file: "),
    (["srun", "-p", "4", "-N", "optional", "true"], "it must be required"),
    (["srun", "-p", "4", "-N", "many", "true"], "at most 1024 components"),
    (["srun", "-p", "4", "-N", "twice", "true"], "the label 'a' is that of another component"),
    (["srun", "-p", "4", "--exec", "true"], "--exec and --mpi are for --components"),
    (["srun", "-p", "4", "-N", "2", "--mpi", "--net=host", "true"], "addresses of their own"),
    (["srun", "-p", "4", "-N", "program", "--exec", "true"], "only the first component"),
    (["srun", "-p", "4", "-d", "--spread", "true"],
     "--spread, --pack and --near are for --components"),
    (["srun", "-p", "4", "-d", "--near", "true"],
     "--spread, --pack and --near are for --components"),
    (["srun", "-p", "4", "-d", "-N", "2", "--near=1", "true"],
     "'1' is no round trip (500us, 1ms) and no bandwidth"),
    (["srun", "-p", "4", "-d", "-N", "2", "--near=1ms,2us", "true"],
     "--near has two bounds of one kind"),
    (["srun", "-p", "4", "-d", "-N", "2", "--spread=0", "true"], "--spread"),
    (["srun", "-p", "4", "-d", "--ordered=:4", "true"], "'' is no name of a node"),
    (["srun", "-p", "4", "-d", "--ordered=n1:x", "true"], "x"),
    (["srun", "-p", "4", "-d", "--ordered=" + ",".join(["n1"] * 10_000), "true"],
     "at most 1024 components, these are 10000"),
    (["srun", "-p", "4", "-N", "10000", "true"], "--components"),
    (["srun", "-p", "4", "-N", "0", "true"], "--components"),
    (["srun", "-p", "4", "-N", "2", "--array", "1-3", "true"],
     "is not possible with --array or --after"),
    (["srun", "-p", "4", "-N", "2", "--after", "n1.1", "true"],
     "is not possible with --array or --after"),
    (["srun", "-p", "4", "-N", "2", "-s", "patient", "true"],
     "is not possible with --pace or a strategy"),
    (["srun", "-p", "4", "-l", "true"], "--label is for --components"),
    (["srun", "-p", "4", "-d", "--files=home", "--local-path", "srv", "true"], "no absolute path"),
    (["srun", "-p", "4", "-d", "--tmp=mine", "true"], "'mine' is neither own nor shared"),
    (["srun", "-p", "4", "-d", "--files=home", "--local-path", "/proc/1", "true"],
     "no absolute path"),
    (["srun", "-p", "4", "-d", "--files=home", "--local-path", "/srv/../etc", "true"],
     "no absolute path"),
    (["marketctl", "set", "solver"], "an option and its value are missing"),
], ids=lambda v: "_".join(v)[:60] if isinstance(v, list) else "")
def test_a_mistake_on_a_command_line_is_said_before_a_daemon_is_asked(tool, tmp_path, argv, word):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = {**os.environ, "SOUK_RUN": str(tmp_path / "none")}
    for more in ({}, IN_JSON):
        status, out, err = tool(*argv, cwd=tmp_path, env={**env, **more})
        assert (status, out) == (2, "") and word in err and err.count("\n") == 1, err
    assert err.startswith(f'{{"error":{{"program":"{argv[0]}') and '"code":"invalid"' in err, err
