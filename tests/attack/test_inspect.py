# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-inspect: what it may do itself, and what is left when it dies; what somebody gets who has
taken it over. What a lie about a plain user's image gets is in tests/unit/test_cell.cpp, with the
processes of a real CRIU."""
import os
import re
import signal
import subprocess

import by_node
import cluster
from cluster import read_text, until
from stage import Stage


def all_of(market, node):
    """The numbers of that node's: the first, and those that read an image."""
    agent = str(market.daemon(node)["pid"])
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if read_text(f"/proc/{pid}/comm").startswith("souk-inspect"):
            parent = re.search(r"^PPid:\t(\d+)$", read_text(f"/proc/{pid}/status"), re.M)
            found[pid] = parent and parent[1]
    first = [pid for pid, parent in found.items() if parent == agent]
    return [int(p) for p in first], [int(p) for p, parent in found.items() if parent in first]


def first_of(market, node):
    return until("it is there", lambda: all_of(market, node)[0])[0]


def check_rights(market, pid):
    status = read_text(f"/proc/{pid}/status")
    fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", status, re.M))
    assert "0" not in fields["Uid"].split() and "0" not in fields["Gid"].split()
    assert fields["Groups"].strip() == ""
    assert {fields[f"Cap{one}"] for one in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert os.listdir(f"/proc/{pid}/root/") == []
    for ns in ("net", "mnt", "ipc", "uts"):
        assert os.readlink(f"/proc/{pid}/ns/{ns}") != os.readlink(
            f"/proc/{market.daemon('n1')['pid']}/ns/{ns}"), ns
    limits = read_text(f"/proc/{pid}/limits")
    assert re.search(r"^Max file size +0 +0 ", limits, re.M)
    for fd in os.listdir(f"/proc/{pid}/fd"):
        kind = os.readlink(f"/proc/{pid}/fd/{fd}")
        assert kind.startswith(("socket:", "/dev/null")), kind
    return int(fields["Seccomp_filters"])


def write(job, line):
    job.process.stdin.write(line)
    job.process.stdin.flush()


def test_neither_the_first_nor_one_of_an_image_has_any_rights(market, tmp_path):
    assert check_rights(market, first_of(market, "n2")) == 1
    assert all_of(market, "n2")[1] == []

    def look(_):
        """A place for an image that does not come: who is to read it waits."""
        readers = until("one is there", lambda: all_of(market, "n2")[1])
        return [check_rights(market, pid) for pid in readers]
    assert by_node.prepared(Stage(market, str(tmp_path)), "evil", look) == [2]
    until("it has ended with its place", lambda: all_of(market, "n2")[1] == [])


def test_it_dies_alone_and_never_outlives_agentd(market):
    job = market.srun("--node", "n1", "-p", 50, "/bin/sh", "-c",
                      "while read x; do echo got $x; done", stdin=subprocess.PIPE)
    market.until_runs(job.id, "n1")
    for node in ("n1", "n2"):
        os.kill(first_of(market, node), signal.SIGKILL)
    write(job, b"still\n")
    job.printed(1)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    write(job, b"there\n")
    job.printed(2)
    agent, own = market.daemon("n2")["pid"], first_of(market, "n2")
    market.kill_daemon("n2")
    assert market.daemon("n2")["pid"] != agent
    until("it has gone with its agentd", lambda: not cluster.alive(own))
    write(job, b"again\n")
    job.printed(3)
    job.process.stdin.close()
    assert job.wait() == 0 and bytes(job.out) == b"got still\ngot there\ngot again\n"
