# SPDX-License-Identifier: GPL-2.0-or-later
"""A process of agentd's that reads what strangers say, and so may do nothing itself."""
import os
import re
import subprocess

from cluster import alive, read_text, until

ECHO = ("/bin/sh", "-c", "while read x; do echo got $x; done")


def root_of(market, node):
    """The number of that node's souk-root, whose children all others are; 0: it is not there."""
    agent = market.daemon(node)["pid"]
    found = [int(p) for p in read_text(f"/proc/{agent}/task/{agent}/children").split()
             if read_text(f"/proc/{p}/comm").startswith("souk-root")]
    return found[0] if found else 0


def check_rights(market, pid, *descriptors):
    """It has no identity, no capability, no files, no network. Its descriptors are sockets,
    /dev/null, and those that are named. Returns its status and its limits."""
    fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", read_text(f"/proc/{pid}/status"), re.M))
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
        try:
            kind = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:  # it has closed it meanwhile
            continue
        assert kind.startswith(("socket:", "/dev/null", *descriptors)), kind
    return fields, limits


def write(job, line):
    job.process.stdin.write(line)
    job.process.stdin.flush()


def echoes(market, *options):
    """A job that answers each line."""
    job = market.srun(*options, "-p", 50, *ECHO, stdin=subprocess.PIPE)
    market.until_runs(job.id)
    return job


def goes_with_its_agentd(market, node, own):
    agent = market.daemon(node)["pid"]
    market.kill_daemon(node)
    assert market.daemon(node)["pid"] != agent
    until("it has gone with its agentd", lambda: not alive(own))


def ends_well(job, *words):
    """Its standard input is closed; it has answered these."""
    job.process.stdin.close()
    assert job.wait() == 0
    assert bytes(job.out).decode() == "".join(f"got {word}\n" for word in words)
