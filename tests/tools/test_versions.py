# SPDX-License-Identifier: GPL-2.0-or-later
"""Every program says the same version."""
import pathlib

PROGRAMS = ["agentd", "clustersim", "marketctl", "marketd", "marketsim", "mmon", "pvdctl", "solver",
            "souk", "souk-ask", "souk-exec", "souk-files", "souk-handshake", "souk-init",
            "souk-inspect", "souk-ledger", "souk-root", "souk-web", "srun", "testload"]


def test_every_program_says_its_version_and_it_is_one(tool):
    said = set()
    for name in PROGRAMS:
        status, out, err = tool(name, "--version")
        assert ((status, err) == (0, "") and out.startswith(name + " (souk) ") and
                out.count("\n") == 1), name
        said.add(out.removeprefix(name))
    assert len(said) == 1
    assert said.pop().split()[1] == (pathlib.Path(__file__).parents[2] /
                                     "VERSION").read_text().strip()
