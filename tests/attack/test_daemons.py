# SPDX-License-Identifier: GPL-2.0-or-later
"""These tests look at the rights of the daemons themselves, and at what is left of them when they
crash."""
import os
import re
import resource
import shutil
import signal
import subprocess

import pytest

import cluster
from attack_place import SOMEBODY, place, run_as_somebody  # noqa: F401 (place is a fixture)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
UNIT = os.path.join(ROOT, "contrib", "systemd", "souk-agentd.service")


def unit_capabilities():
    with open(UNIT) as f:
        lines = re.findall(r"^CapabilityBoundingSet=(.*)$", f.read(), re.M)
    return {word.removeprefix("CAP_").lower() for line in lines for word in line.split()}


@pytest.fixture
def bounded(fit, tmp_path):  # noqa: F811
    """A market whose agents have the capabilities of agentd's unit, and no others."""
    own = cluster.BIN
    for name in os.listdir(own):
        shutil.copy(f"{own}/{name}", tmp_path / name)
    os.rename(tmp_path / "agentd", tmp_path / "agentd.real")
    allowed = ",".join(["-all", *(f"+{c}" for c in sorted(unit_capabilities()))])
    (tmp_path / "agentd").write_text(
        f'#!/bin/sh\nexec setpriv --bounding-set {allowed} {tmp_path}/agentd.real "$@"\n')
    os.chmod(tmp_path / "agentd", 0o755)
    cluster.BIN = str(tmp_path)
    try:
        yield from cluster.bring_up(cluster.Market("--nodes", "2", "--speeds", "100,80"))
    finally:
        cluster.BIN = own


def test_agentd_needs_no_more_than_the_capabilities_of_its_unit(bounded, place):  # noqa: F811
    pid = bounded.daemon("n1")["pid"]
    with open(f"/proc/{pid}/status") as f:
        held = int(re.search(r"^CapPrm:\s*(\w+)", f.read(), re.M)[1], 16)
    sys_module, sys_rawio, sys_boot, syslog = 16, 17, 22, 34
    for one in (sys_module, sys_rawio, sys_boot, syslog):
        assert not held >> one & 1
    assert run_as_somebody(bounded, place, "id", "-u") == f"{SOMEBODY}\n"
    for options in ((), ("--net=own",)):
        job = bounded.srun("-p", 50, *options, "/bin/sh", "-c", "while read x; do echo $x; done",
                           stdin=subprocess.PIPE)
        where = bounded.until_runs(job.id)["where"]
        there = "n2" if where == "n1" else "n1"
        bounded.tool("marketctl", "--hold", "move", job.id, there)
        bounded.until_runs(job.id, there)
        bounded.tool("marketctl", "--hold", "freeze", job.id)
        bounded.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        bounded.tool("marketctl", "release", job.id)
        bounded.until_runs(job.id)
        job.process.stdin.write(b"whole\n")
        job.process.stdin.close()
        assert job.wait() == 0 and bytes(job.out) == b"whole\n"


@pytest.mark.parametrize("daemon", ["agentd", "marketd"])
def test_a_daemon_that_crashes_leaves_no_core(tmp_path, daemon):
    """A daemon's memory holds keys. A core file would lie in its directory, or go where the
    kernel's core_pattern says; the kernel reports whether there was one."""
    state = f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\nstate = "{tmp_path}/state"\n'
    more = ('node = "n1"\nmarket = "127.0.0.1:1"\nspeed = 100\ncgroup = "souk-attack/n1"\n'
            if daemon == "agentd" else "")
    (tmp_path / "c").write_text(state + more + "insecure = true\n")
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard == 0:
        pytest.skip("whoever runs this test allows no core files")
    with open(tmp_path / "log", "w+") as log:
        pid = subprocess.Popen(
            [f"{cluster.BIN}/{daemon}", "--config", tmp_path / "c"], cwd=tmp_path, stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))).pid
        try:
            cluster.until("it is ready",
                          lambda: "ready" in cluster.read_text(tmp_path / "log"))
            with open(f"/proc/{pid}/limits") as f:
                soft, kept = re.search(r"^Max core file size\s+(\S+)\s+(\S+)", f.read(),
                                       re.M).groups()
            assert soft == "0" and kept != "0"  # a job may have what its user has
        finally:
            os.kill(pid, signal.SIGSEGV)
            status = os.waitpid(pid, 0)[1]
            for path in cluster.mount_points(("tmpfs",)):
                if path.startswith(str(tmp_path)):
                    subprocess.run(["umount", path], check=True)
            for root in cluster.mount_points(("cgroup", "cgroup2")):
                for group in ("souk-attack/n1/jobs", "souk-attack/n1", "souk-attack"):
                    if os.path.isdir(f"{root}/{group}"):
                        os.rmdir(f"{root}/{group}")
        assert os.WTERMSIG(status) == signal.SIGSEGV and not os.WCOREDUMP(status)
