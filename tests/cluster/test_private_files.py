# SPDX-License-Identifier: GPL-2.0-or-later
"""souk up --private-files: nodes that share no files of people's, and jobs of --files=auto, which
is what these nodes are configured for. The home is n1, the slowest."""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from conftest import LIMIT, Market, bring_up, read_text, until
from test_home_files import LOOKS, begin, check_end, servers, until_it_works

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "3", "--speeds", "60,100,80", "--private-files"))


@pytest.fixture
def top(market, tmp_path):
    return tmp_path


def start(market, top, *options):
    return begin(market, top, *options, node="n1", files=None)


def sees(top, what):
    return lambda: (top / "root").exists() and what == (top / "root").read_text().split()[2]


def counted(j):
    """Waits for the end of the job. A job that takes long reports some requests earlier."""
    return j["status"] == "finish" and j.get("files_requests", 0) > 0


def test_what_only_the_home_has_runs_on_a_node_that_never_saw_it(market, top):
    shutil.copy2("/bin/cat", top / "mine")
    (top / "in").write_text("what is at home\n")
    there = market.srun("-p", 50, "--files=local", "--node", "n1", "/bin/ls", top, cwd="/")
    assert there.wait() == 2 and there.out == b""  # n2 has no such directory
    job = market.srun("-p", 50, "--node", "n1", top / "mine", "in", cwd=top)
    assert job.wait() == 0, job.told
    assert bytes(job.out) == b"what is at home\n"
    seen = market.until_job(job.id, "was counted", counted)
    assert seen["places"] == ["n2"] and seen["files"] == "home"
    size = (top / "mine").stat().st_size
    assert seen["files_sent_bytes"] > size and seen["files_received_bytes"] > 0


def test_a_program_that_only_the_home_has_moves_after_a_while(market, top):
    """A process that looks at the job's processes must not wait for the home: the home may itself
    wait for that process."""
    shutil.copy2("/bin/sleep", top / "mine")
    job = market.srun("-p", 50, "--node", "n1", top / "mine", "1000", cwd=top)
    market.until_runs(job.id, "n2")
    for node in "n3", "n2", "n3":
        time.sleep(1.2)  # for a second the kernel believes what it was told of a file
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
    assert market.job(job.id)["failed_moves"] == 0
    market.tool("marketctl", "cancel", job.id)
    job.wait()


def test_a_program_crosses_the_network_once(market, top):
    """The node that ran the program keeps it for the next job (agentd/files/store.hpp)."""
    program = top / "mine"
    program.write_bytes(open("/bin/cat", "rb").read() + os.urandom(4_000_000))
    program.chmod(0o755)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    (top / "out").write_text("")
    until("an old program", lambda: time.time() > program.stat().st_ctime + 3)

    def run():
        job = market.srun("-p", 50, "--node", "n1", program, program, cwd=top)
        assert job.wait() == 0, job.told
        assert bytes(job.out) == program.read_bytes()
        seen = market.until_job(job.id, "was counted", counted)
        assert seen["places"] == ["n2"]
        rates.append(seen.get("files_hit_rate", 0))
        return seen["files_sent_bytes"]
    rates = []
    first = run()
    assert first > 4_000_000
    kept = pathlib.Path(market.run_dir) / "state"
    found = until("it kept", lambda: list(kept.glob(f"*/contents/{digest}")) or run() < 0)
    assert [path.parts[-3] for path in found] == ["n2"]
    assert hashlib.sha256(found[0].read_bytes()).hexdigest() == digest
    least = min(run() for _ in range(4))  # a big one is known a little after it is opened
    assert least < first / 2, (first, least)
    assert 0 < max(rates) < 1


def test_it_moves_each_second_freezes_and_thaws(market, top):
    job = start(market, top)
    market.until_runs(job.id, "n2")
    until_it_works(top)
    for node in ("n3", "n2", "n1", "n3", "n1", "n2"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
        until_it_works(top)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "--hold", "thaw", job.id, "n3")
    market.until_runs(job.id, "n3")
    until_it_works(top)
    check_end(market, job, top)
    seen = market.job(job.id)
    assert seen["failed_moves"] == 0 and seen["migrations"] >= 6


def open_files(pid):
    """Counts the open files of a server, without those that are names alone (O_PATH)."""
    count = 0
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError):
            flags = re.search(r"flags:\s+(\d+)", read_text(f"/proc/{pid}/fdinfo/{name}"))
            if flags:  # else it was closed meanwhile
                count += not int(flags[1], 8) & os.O_PATH
    return count


def test_a_job_that_opens_many_files_and_moves_often_leaves_few_open_at_home(market, top):
    """Files that the job had open for a moment at one node must not be opened once more at each
    next node."""
    job = market.srun("-p", 50, "--node", "n1", "--files=home", "/bin/sh", "-c",
                      "while [ ! -e stop ]; do i=$((i + 1)); echo $i > f$((i % 50)); done", cwd=top)
    market.until_runs(job.id, "n2")
    until("it works", lambda: os.path.exists(f"{top}/f49"))
    most = 0
    for node in ("n3", "n2") * 5:
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
        most = max([most, *(open_files(pid) for pid in servers(market, "serve"))])
    with open(f"{top}/stop", "w"):
        pass
    assert job.wait(LIMIT) == 0
    assert most < 120, most
    assert market.job(job.id)["failed_moves"] == 0


def test_where_a_job_was_nothing_of_its_files_stays_open(market, top):
    """If it stayed open, the disk space of a file without a name would not be free before the job
    ends."""
    job = market.srun("-p", 50, "--node", "n1", "--files=home", "/bin/sh", "-c",
                      "exec 3<>big; echo x >&3; touch began; "
                      "while [ ! -e drop ]; do sleep 0.1; done; "
                      "rm big; exec 3>&-; touch dropped; while [ ! -e stop ]; do sleep 0.1; done",
                      cwd=top)
    market.until_runs(job.id, "n2")
    until("it began", lambda: os.path.exists(f"{top}/began"))
    for node in ("n3", "n2", "n3"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)

    def held():
        names = []
        for pid in servers(market, "serve"):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        return [name for name in names if name.startswith(f"{top}/big")]
    assert held()
    (top / "drop").touch()
    until("it has dropped it", lambda: os.path.exists(f"{top}/dropped"))
    until("nobody holds it", lambda: not held())
    (top / "stop").touch()
    assert job.wait(LIMIT) == 0


def test_killed_agents_on_nodes_with_files_of_their_own_are_not_noticed(market, top):
    job = start(market, top)
    market.until_runs(job.id, "n2")
    until_it_works(top)
    for node in ("n2", "n1"):  # its guest's, its home's
        market.kill_daemon(node)
        until_it_works(top)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    check_end(market, job, top)
    until("all have ended", lambda: not servers(market, "serve") and not servers(market, "client"))


def test_who_watches_hears_that_its_files_are_out_of_reach(market, top):
    job = start(market, top)
    market.until_runs(job.id, "n2")
    until_it_works(top)
    port = ["ip", "-n", f"{market.tag}-fabric", "link", "set", "p1"]  # n2's
    subprocess.run([*port, "down"], check=True)
    try:
        market.until_job(job.id, "says so", lambda j: j.get("files_wait"))
    finally:
        subprocess.run([*port, "up"], check=True)
    market.until_up()
    market.until_job(job.id, "reaches them again", lambda j: not j.get("files_wait"))
    until_it_works(top)
    check_end(market, job, top)


def test_a_job_in_a_shared_directory_goes_only_where_that_is_the_same(market, top):
    conf = f"{market.run_dir}/n1/agentd.conf"
    before = read_text(conf)
    with open(conf, "a") as f:
        f.write('shared_files = "/tmp /var/tmp"\n')
    pid = market.daemon("n1")["pid"]
    os.kill(pid, signal.SIGHUP)
    log = f"{market.run_dir}/n1/log"
    until("it has read that", lambda: "shared_files" in read_text(log))
    try:
        job = market.srun("-p", 50, "--node", "n1", "/bin/sh", "-c", LOOKS, cwd=top)
        assert job.said("the shared directories of the job's home n1 are other file systems here")
        market.until_runs(job.id, "n1")
        assert "files" not in market.job(job.id)
        (top / "enough").touch()
        assert job.wait() == 0, job.told
    finally:
        with open(conf, "w") as f:
            f.write(before)
        os.kill(pid, signal.SIGHUP)
    job = market.srun("-p", 50, "--files=local", "--node", "n1", "/bin/true", cwd="/")
    assert job.wait() == 0 and market.job(job.id)["places"] == ["n2"]


READS = """import os
while True:  # nothing of what the kernel has kept
    with open("big", "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while f.read(1 << 20):
            pass
"""


def test_a_job_that_reads_much_comes_home_to_its_files_when_moves_have_a_price(market, top):
    """n2 is the fastest; what n1, its home, lacks in speed is less than what its reading costs over
    a link that is slow for what it reads, also on a busy machine."""
    (top / "big").write_bytes(os.urandom(1 << 24))
    (top / "reads.py").write_text(READS)
    job = market.srun("-p", 50, "--node", "n1", "python3", "reads.py", cwd=top)
    try:
        market.until_runs(job.id, "n2")
        seen = market.until_job(job.id, "was measured",
                                lambda j: j.get("files_bytes_per_s", 0) > 10_000_000, limit=90)
        assert seen["files_requests_per_s"] > 0 and 0 <= seen["files_round_trip_ms"] < 100
        assert seen["where"] == "n2"  # without a horizon that moves nobody
        market.tool("marketctl", "set", "link", "20000000")
        market.tool("marketctl", "set", "horizon", "10m")
        market.until_runs(job.id, "n1")
        assert market.job(job.id)["files_bytes_per_s"] > 10_000_000
    finally:
        for what in ("horizon", "link"):
            market.tool("marketctl", "set", what, "default")
        market.tool("marketctl", "cancel", job.id)
        job.wait()
    receipts = json.loads(market.tool("marketctl", "--json", "receipts", "--job", job.id).stdout)
    assert sum(r.get("files_sent_bytes", 0) for r in receipts) > 50_000_000
    assert sum(r.get("files_requests", 0) for r in receipts) > 0
