# SPDX-License-Identifier: GPL-2.0-or-later
# marketsim is given bad input here, and writes its results in all its formats.
import gzip
import itertools
import json
import os
import subprocess

import pytest

from conftest import BIN
from fake import LIMIT
from workloads import TRACE


@pytest.mark.parametrize("verb, name, content, complaint", [
    ("replay", "trace.swf", b"", "trace.swf: is empty"),
    ("replay", "trace.swf", b"; nothing\n\n", "trace.swf: has no job in its 2 lines"),
    ("replay", "trace.swf", TRACE.encode() + b"201 0 -1\n",
     "trace.swf: line 202: has 3 fields, a job has 18"),
    ("replay", "trace.swf", TRACE.replace(" -1 20 ", " -1 -20 ", 1).encode(),
     "trace.swf: line 2: field 4 (run time): '-20' is negative, only -1 (unknown) may be"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n8 ").encode(),
     "trace.swf: line 10: field 1 (job number): 8 is the job of line 9 again"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n9999999999999999999999 ").encode(),
     "trace.swf: line 10: field 1 (job number): '9999999999999999999999' is out of range "
     "(at most 9223372036854775806)"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode(), mtime=0)[:-9],
     "trace.swf: truncated gzip stream: ends after"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode(), mtime=0)[:-4] + b"long",
     "trace.swf: damaged gzip stream after"),
    ("run", "jobs", b"", "jobs: has no job"),
    ("run", "jobs", b"1 0 50 24 100\n", "jobs: line 1: has 5 fields, a job has 6"),
    ("run", "jobs", b"1 0 50 24 100 1 7 0 5 0\n", "jobs: line 1: field 8 (home): '0' is nobody"),
    ("run", "jobs", b"1 0 50 24 100 1\r\n1 0 50 24 100 1\r\n",
     "jobs: line 2: field 1 (id): 1 is the job of line 1 again"),
    ("run", "jobs", b"1 0 -50 24 100 1\n", "jobs: line 1: field 3 (run): '-50' is out of range"),
    ("run", "providers", b"1 0 -1 10 1000 1 100\n1 0 -1 10 1000 1 100\n",
     "providers: line 2: field 1 (id): 1 is the provider of line 1"),
    ("run", "providers", b"1 0 -1 10 1000 1 99999\n",
     "providers: line 1: field 7 (speed): '99999' is out of range"),
    ("compare", "jobs", b"x\n", "jobs: line 1: has 1 fields"),
    ("import", "config", b"trace = trace.swf\nproviders = 3\nprice = 4\n",
     "config: line 3: no key 'price'"),
    ("import", "config", b"", "config: trace is not set"),
], ids=itertools.count())
def test_bad_input_is_one_line_that_names_file_line_field_and_why_and_writes_nothing(
        tool, files, verb, name, content, complaint):
    (files / name).write_bytes(content)
    arguments = {"replay": ["trace.swf", "--json", "out.json", "--per-job", "out.csv"],
                 "run": ["-j", "jobs", "-p", "providers", "-o", "out"],
                 "compare": ["-j", "jobs", "-p", "providers", "-o", "out", "--json", "out.json"],
                 "import": ["config", "-o", "out"]}[verb]
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", verb, *arguments)
    assert status == 1 and out == "" and err.count("\n") == 1
    assert err.startswith(f"marketsim {verb}: {complaint}"), err
    assert sorted(os.listdir()) == before


def test_an_output_that_cannot_be_written_leaves_none_of_them(tool, files):
    os.mkdir("out.csv")
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-o", "out")
    assert (status, out, err) == (1, "", "marketsim run: out.csv: is a directory\n")
    assert sorted(os.listdir()) == before
    status, _, err = tool("marketsim", "replay", "trace.swf", "--json", "/dev/full")
    assert (status, err) == (1, "marketsim replay: /dev/full: write: No space left on device\n")
    assert tool("marketsim", "replay", "trace.swf", "--json", "/dev/null")[0] == 0
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize("arguments",
                         [["run", "-j", "jobs", "-p", "providers"],
                          ["compare", "-j", "jobs", "-p", "providers"], ["replay", "trace.swf"],
                          ["replay", "trace.swf", "--json", "-"], ["import", "config", "-o", "out"],
                          ["run", "--help"], ["--help"]])
def test_what_cannot_be_said_on_stdout_is_a_failure(files, arguments):
    (files / "config").write_text("trace = trace.swf\nproviders = 1\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / "marketsim", *arguments], stdin=subprocess.DEVNULL,
                              stdout=full, stderr=subprocess.PIPE, timeout=LIMIT)
    assert (done.returncode == 1 and
            done.stderr.decode().endswith(": standard output: No space left on device\n"))


def test_an_output_is_neither_an_input_nor_named_twice(tool, files):
    (files / "config").write_text("trace = trace.swf\nproviders = 1\n")
    (files / "out.jobs").write_text(TRACE)
    os.symlink("jobs", "link")
    before = {name: (files / name).read_bytes() for name in os.listdir()}
    for arguments, complaint in (
            (["run", "-j", "jobs", "-p", "providers", "-o", "jobs"],
             "run: jobs: is an input, and would be overwritten"),
            (["run", "-j", "jobs", "-p", "providers", "--json", "./link"],
             "run: ./link: is an input, and would be overwritten"),
            (["compare", "-j", "jobs", "-p", "providers", "-o", "providers"],
             "compare: providers: is an input, and would be overwritten"),
            (["replay", "trace.swf", "--json", "trace.swf"],
             "replay: trace.swf: is an input, and would be overwritten"),
            (["import", "config", "--trace", "out.jobs", "-o", "out"],
             "import: out.jobs: is an input, and would be overwritten"),
            (["run", "-j", "jobs", "-p", "providers", "-o", "out", "--json", "./out.json"],
             "run: ./out.json: is named for two outputs"),
            (["replay", "trace.swf", "--json", "out", "--per-job", "out"],
             "replay: out: is named for two outputs")):
        assert tool("marketsim", *arguments) == (1, "", f"marketsim {complaint}\n")
        assert {name: (files / name).read_bytes() for name in os.listdir()} == before


def test_whoever_is_killed_while_it_writes_leaves_nothing(files):
    # A pipe as one of two outputs: the run waits in commit() with the other one written and not
    # named.
    os.mkfifo("pipe")
    process = subprocess.Popen(
        [BIN / "marketsim", "replay", "trace.swf", "--json", "whole.json", "--per-job", "pipe"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        reader = os.open("pipe", os.O_RDONLY)  # opens when the run opens its end
        process.kill()
        process.wait(timeout=LIMIT)
        os.close(reader)
    finally:
        process.kill()
        process.wait(timeout=LIMIT)
    left = sorted(os.listdir())
    # The program may have ended before the signal came. Then its file is whole.
    if left != ["jobs", "pipe", "providers", "trace.swf"]:
        assert left == ["jobs", "pipe", "providers", "trace.swf", "whole.json"]
        assert json.loads((files / "whole.json").read_text())["jobs"] == 200


def test_wrong_usage_is_told_from_a_failure(tool, files):
    for arguments in ([], ["fly"], ["replay"], ["replay", "trace.swf", "--policy", "magic"],
                      ["replay", "trace.swf", "--cpus", "0"], ["run", "-j", "jobs"],
                      ["compare", "-j", "jobs", "-p", "providers", "--plot", "picture.gif"],
                      ["compare", "-j", "jobs", "-p", "providers", "--plot", ".svg"],
                      ["replay", "trace.swf", "--cpus", "4", "--cpus", "5"],
                      ["replay", "trace.swf", "--seed", "-1"],
                      ["replay", "trace.swf", "--values", "uniform 5"]):
        status, out, err = tool("marketsim", *arguments)
        assert (status == 2 and out == "" and err.count("\n") == 1 and
                err.startswith("marketsim")), (arguments, err)
    assert tool("marketsim", "replay", "none.swf") == (
        1, "", "marketsim replay: none.swf: open: No such file or directory\n")
