# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/reasons.md is the table that the programs have."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
MARKETCTL = pathlib.Path(os.environ.get("SOUK_BIN", "build/bin")) / "marketctl"


def said(*args):
    done = subprocess.run([MARKETCTL.absolute(), *args], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_page_has_every_code_with_its_words_as_the_programs_say_them():
    page = (ROOT / "docs/reasons.md").read_text()
    assert said("why", "codes") in page, "write docs/reasons.md anew: marketctl why codes"


def test_the_codes_as_json_have_the_same_fields_each():
    codes = json.loads(said("--json", "why", "codes"))
    assert len({c["code"] for c in codes}) == len(codes) > 120
    assert all(sorted(c) == ["code", "kind", "means", "text"] and c["means"] for c in codes)


def test_each_code_has_a_test_that_provokes_it():
    done = subprocess.run([ROOT / "scripts/reason-tests", "--marketctl", MARKETCTL.absolute()],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), "no test provokes: " + done.stdout
