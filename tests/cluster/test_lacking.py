# SPDX-License-Identifier: GPL-2.0-or-later
"""Some nodes lack something that a job needs. A program runs on a node that has it, and ends with
127 only if no node has it. A job with its home's files runs on a node whose kernel has FUSE."""
import os
import shutil
import stat

import pytest

import conftest
from conftest import BIN, Market, bring_up, until

# n1's agentd in a mount namespace in which the directory of programs is empty, and /dev/fuse is a
# device that this kernel does not have; n1 is the fastest node.
WRAPPER = """#!/bin/sh
case "$*" in
*"/n1/"*)
    exec unshare --mount sh -c 'mount -t tmpfs none "$0" && mount --bind {lacks} /dev/fuse &&
        exec "$@"' {hidden} {real}/agentd "$@" ;;
esac
exec {real}/agentd "$@"
"""


@pytest.fixture(scope="module")
def standing(fit, tmp_path_factory):
    real, bin = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("bin")
    hidden = tmp_path_factory.mktemp("programs")
    hidden.chmod(0o755)
    lacks = tmp_path_factory.mktemp("lacks") / "fuse"
    os.mknod(lacks, stat.S_IFCHR | 0o666, os.makedev(10, 250))
    for name in os.listdir(BIN):
        shutil.copy2(f"{BIN}/{name}", real / name)
        shutil.copy2(f"{BIN}/{name}", bin / name)
    (bin / "agentd").write_text(WRAPPER.format(hidden=hidden, real=real, lacks=lacks))
    shutil.copy2("/bin/sleep", hidden / "sleep")
    shutil.copy2("/bin/true", hidden / "true")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conftest, "BIN", str(bin))
        for market in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
            market.programs = hidden
            yield market


def test_a_program_that_the_fastest_node_lacks_runs_on_the_next(market):
    assert market.tool("srun", "-p", 9, "--node", "n2", market.programs / "true").returncode == 0
    job = market.srun("-p", 50, "--node", "n2", market.programs / "sleep", 60)
    assert market.until_runs(job.id)["where"] == "n2"
    market.until_step(job.id, why_code="program_lacks", node="n1")
    # Nor does it go there when it could: what it has open would not be there.
    market.tool("pvdctl", "--node", "n3", "market", "off")
    market.tool("pvdctl", "--node", "n2", "market", "off")
    market.until_job(job.id, "waits for a node that has it", lambda j: j["status"] == "suspend" and
                     j["reason"]["code"] == "program_lacking")
    market.tool("pvdctl", "--node", "n2", "market", "on")
    market.until_runs(job.id, "n2")


def test_a_program_that_no_node_has_ends_with_127(market, tmp_path):
    gone = shutil.copy2("/bin/true", tmp_path / "gone")
    # All are busy, so that the job is there before its program goes.
    for node in ("n1", "n2", "n3"):
        market.tool("pvdctl", "--node", node, "set", "price", 40)
    absent = market.srun("-p", 30, gone)
    market.until_job(absent.id, "waits", lambda j: j["status"] == "wait")
    os.unlink(gone)
    for node in ("n1", "n2", "n3"):
        market.tool("pvdctl", "--node", node, "set", "price", 1)
    assert absent.wait() == 127
    seen = market.until_job(absent.id, "has ended", lambda j: j["status"] == "finish")
    assert "gone" in seen["why"] and seen["places"] == [] and seen["exit"] == 127, seen


def test_it_waits_for_a_node_that_was_not_asked(market):
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    job = market.srun("-p", 50, "--node", "n2", market.programs / "true")
    market.until_reason(job.id, "program_lacking")
    market.tool("pvdctl", "--node", "n3", "market", "on")
    assert job.wait() == 0
    until("it ran there", lambda: market.job(job.id)["places"] == ["n3"])


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")
def test_a_node_whose_kernel_lacks_fuse_is_barred_for_a_job_with_its_homes_files(market, tmp_path):
    (tmp_path / "in").write_text("what is at home\n")
    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/bin/cat", "in", cwd=tmp_path)
    assert job.wait() == 0, job.told
    assert bytes(job.out) == b"what is at home\n"
    assert job.said("n1 cannot .*show the files of a home.*/dev/fuse.*No such device")
    assert market.job(job.id)["places"] == ["n2"]
