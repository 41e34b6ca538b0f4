# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes and links die while a job sees its home's files."""
import os
import shutil
import signal
import subprocess

import pytest

from conftest import alive, kill, read_text, until
from files_tree import Tree
from test_home_files import begin, check_end, servers, until_it_works

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")


@pytest.fixture
def top(market, tmp_path):
    market.hidden = tmp_path
    return tmp_path


def test_killed_clients_and_agents_are_not_noticed(market, top):
    job = begin(market, top)
    market.until_runs(job.id, "n1")
    until_it_works(top)
    for pid in servers(market, "client"):
        kill([pid])
        until("it has ended", lambda p=pid: not alive(p))
    until_it_works(top)
    for node in ("n1", "n3"):  # its guest's, its home's
        market.kill_daemon(node)
        until_it_works(top)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    until_it_works(top)
    check_end(market, job, top)
    until("all have ended", lambda: not servers(market, "serve") and not servers(market, "client"))


def test_nodes_of_one_machine_show_a_job_of_auto_their_own_tree(market, top):
    job = begin(market, top, files="auto")
    market.until_runs(job.id, "n1")
    until_it_works(top)
    assert not servers(market, "serve") and not servers(market, "client")
    market.kill_daemon("n1")
    for node in ("n2", "n3", "n1"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
        until_it_works(top)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "--hold", "thaw", job.id, "n2")
    market.until_runs(job.id, "n2")
    assert not servers(market, "serve") and not servers(market, "client")
    check_end(market, job, top)
    assert market.job(job.id)["failed_moves"] == 0


def test_a_job_that_is_cancelled_leaves_no_process(market, top):
    job = begin(market, top)
    market.until_runs(job.id, "n1")
    until_it_works(top)
    market.tool("marketctl", "cancel", job.id)
    job.wait()
    until("all have ended", lambda: not servers(market, "serve") and not servers(market, "client"))


def waiting_for_files(market):
    """Processes of this market's souk-init that a file system of a job's home keeps waiting."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if "request_wait" in read_text(f"/proc/{pid}/wchan") and
            "souk-init" in read_text(f"/proc/{pid}/cmdline") and market.has(pid)]


def test_a_job_that_is_killed_while_it_waits_for_its_program_is_gone(market, top, tmp_path_factory):
    far = Tree(tmp_path_factory.mktemp("far"), home=top)
    shutil.copy2("/bin/true", top / "mine")
    for node in market.nodes():
        market.tool("pvdctl", "--node", node, "set", "price", "1000")
    try:
        job = market.srun("-p", 50, "--files=home", "--node", "n3", far.here / "mine", cwd="/")
        id = job.id
        os.kill(int(far.server), signal.SIGSTOP)  # now nobody says what its program is
        market.tool("pvdctl", "--node", "n1", "set", "price", "1")
        stuck = until("it waits", lambda: waiting_for_files(market))
        kill(servers(market, "client"))
        market.tool("marketctl", "cancel", id)
        until("it has ended", lambda: not any(alive(pid) for pid in stuck))
    finally:
        os.kill(int(far.server), signal.SIGCONT)
        for node in market.nodes():
            market.tool("pvdctl", "--node", node, "set", "price", "1")
        far.end()
    job.wait()
    until("all have ended", lambda: not servers(market, "serve") and not servers(market, "client"))


def test_a_file_that_was_swapped_while_the_job_was_frozen_is_refused(market, top):
    job = begin(market, top)
    market.until_runs(job.id, "n1")
    until_it_works(top)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
    os.rename(top / "data", top / "old")
    (top / "data").write_bytes((top / "old").read_bytes())
    market.tool("marketctl", "--hold", "thaw", job.id, "n2")
    market.until_job(job.id, "is refused", lambda j: j.get("last_failed_code") == "file_changed")
    os.rename(top / "old", top / "data")
    market.until_runs(job.id)
    until_it_works(top)
    check_end(market, job, top)


def test_a_job_has_its_users_rights_at_home_and_no_more(market, top):
    secret = top / "secret"
    secret.write_text("root's")
    command = ["-p", 50, "--files=home", "--node", "n3", "/bin/sh", "-c"]
    job = market.srun(*command, f"id -u; cat /etc/shadow {secret}; ls /proc/1/root",
                      cwd="/", user=65534, group=65534, extra_groups=[])
    assert job.wait() != 0 and job.out == b"65534\n"
    job = market.srun(*command, "ls /../../.. /proc/self/cwd/../ | sort -u", cwd="/",
                      user=65534, group=65534, extra_groups=[])
    assert job.wait() == 0, job.told
    assert b"root" in job.out.split() and b"usr" in job.out.split()


def test_a_full_disk_and_a_file_cut_short_at_home_cost_its_job_alone(market, top):
    small = top / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
    try:
        there = market.srun("-p", 50, "--files=home", "--node", "n3", "/bin/sh", "-c",
                            "dd if=/dev/zero of=full bs=64k count=100; echo $?; rm full",
                            cwd=small)
        assert there.wait() == 0 and "No space left" in " ".join(there.told), there.told
        assert there.out == b"1\n" and market.job(there.id)["places"] == ["n1"]
        (small / "cut").write_bytes(b"x" * 65536)
        reads = ("import mmap, os\n"
                 "m = mmap.mmap(os.open('cut', os.O_RDONLY), 0, prot=mmap.PROT_READ)\n"
                 "os.truncate('cut', 0); os.stat('cut'); m[60000]")
        other = begin(market, top)
        market.until_runs(other.id, "n1")
        job = market.srun("-p", 50, "--files=home", "--node", "n3", "python3", "-c", reads,
                          cwd=small)
        assert job.wait() == 128 + signal.SIGBUS, job.told
        until_it_works(top)
        check_end(market, other, top)
    finally:
        subprocess.run(["umount", "-l", small], check=True)
