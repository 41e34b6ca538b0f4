# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-inspect: what it may do itself, and what is left when it dies; what somebody gets who has
taken it over. What a lie about a plain user's image gets is in tests/unit/test_cell.cpp, with the
processes of a real CRIU."""
import os
import re
import signal

import by_node
from cluster import read_text, until
from no_rights import check_rights, echoes, ends_well, goes_with_its_agentd, root_of, write
from stage import Stage


def all_of(market, node):
    """The numbers of that node's: the first, and those that read an image."""
    root = str(root_of(market, node))
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if read_text(f"/proc/{pid}/comm").startswith("souk-inspect"):
            parent = re.search(r"^PPid:\t(\d+)$", read_text(f"/proc/{pid}/status"), re.M)
            found[pid] = parent and parent[1]
    first = [pid for pid, parent in found.items() if parent == root]
    return [int(p) for p in first], [int(p) for p, parent in found.items() if parent in first]


def first_of(market, node):
    return until("it is there", lambda: all_of(market, node)[0])[0]


def test_neither_the_first_nor_one_of_an_image_has_any_rights(market, tmp_path):
    filters = lambda pid: int(check_rights(market, pid)[0]["Seccomp_filters"])
    assert filters(first_of(market, "n2")) == 1
    assert all_of(market, "n2")[1] == []

    def look(_):
        """A place for an image that does not come: who is to read it waits. It begins as the first
        one does, and gives up the rest before it reads."""
        def confined():
            readers = all_of(market, "n2")[1]
            return all("\nSeccomp_filters:\t2\n" in read_text(f"/proc/{pid}/status")
                       for pid in readers) and readers
        return [filters(pid) for pid in until("one is there, and confined", confined)]
    assert by_node.prepared(Stage(market, str(tmp_path)), "evil", look) == [2]
    until("it has ended with its place", lambda: all_of(market, "n2")[1] == [])


def test_it_dies_alone_and_never_outlives_agentd(market):
    job = echoes(market, "--node", "n1")
    market.until_runs(job.id, "n1")
    for node in ("n1", "n2"):
        os.kill(first_of(market, node), signal.SIGKILL)
    write(job, b"still\n")
    job.printed(1)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    write(job, b"there\n")
    job.printed(2)
    goes_with_its_agentd(market, "n2", first_of(market, "n2"))
    write(job, b"again\n")
    job.printed(3)
    ends_well(job, "still", "there", "again")
