# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of srun --files=home: their program and their data exist on their home alone, and each byte
that they write is there."""
import os
import select
import shutil
import socket
import threading

import pytest

import conftest
from conftest import BIN, Market, bring_up, until
from test_thaw_trial import Sharer, changes_of

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")

# The directory is empty on n1 and n2; n3 is the home.
WRAPPER = r"""#!/bin/sh
case "$*" in
*"/n1/"*|*"/n2/"*)
    exec unshare --mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' \
        {hidden} {real}/agentd "$@" ;;
esac
exec {real}/agentd "$@"
"""

# Reads its own program and data, appends to a log, and holds a file whose name is gone.
WORK = r"""
import hashlib, mmap, os, sys, time
top = os.path.dirname(os.path.abspath(__file__))
gone = open(top + "/gone", "w+"); gone.write("kept"); gone.flush(); os.unlink(top + "/gone")
data = open(top + "/data", "rb")
mapped = mmap.mmap(os.open(top + "/mapped", os.O_RDWR), 0)
log = open(top + "/log", "a", buffering=1)
n = 0
while not os.path.exists(top + "/enough"):
    data.seek(0)
    digest = hashlib.sha256(data.read()).hexdigest()
    gone.seek(0)
    assert gone.read() == "kept"
    mapped[0:8] = n.to_bytes(8, "little")
    log.write(f"{n} {digest}\n")
    n += 1
    time.sleep(0.01)
mapped.flush()
print(n, os.getcwd(), flush=True)
"""


# Holds 200 files, and writes to each at its end what it has read from it.
HOLDS = r"""
import os, time
files = [open(f"f{i}", "r+") for i in range(200)]
print("open", flush=True)
while not os.path.exists("enough"): time.sleep(0.01)
for f in files:
    text = f.read()
    f.write(text)
    f.close()
"""


# Writes by a mapping alone, and finds at each turn what it wrote in the turn before.
MAPS = r"""
import mmap, os, time
mapped, n = mmap.mmap(os.open("mapped", os.O_RDWR), 0), 0
print("open", flush=True)
while not os.path.exists("enough"):
    assert int.from_bytes(mapped[:8], "little") == n
    n += 1
    mapped[:8] = n.to_bytes(8, "little")
    time.sleep(0.001)
print(n, flush=True)
"""


@pytest.fixture(scope="module")
def standing(fit, tmp_path_factory):
    real, bin = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("bin")
    hidden = tmp_path_factory.mktemp("hidden")
    hidden.chmod(0o755)
    for name in os.listdir(BIN):
        shutil.copy2(f"{BIN}/{name}", real / name)
        shutil.copy2(f"{BIN}/{name}", bin / name)
    (bin / "agentd").write_text(WRAPPER.format(hidden=hidden, real=real))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conftest, "BIN", str(bin))
        for market in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
            market.hidden = hidden
            yield market


@pytest.fixture
def top(market, request):
    top = market.hidden / request.node.name
    top.mkdir()
    return top


def begin(market, top, *options, node="n3", files="home"):
    shutil.copy2("/usr/bin/python3", top / "python")
    (top / "work.py").write_text(WORK)
    (top / "data").write_bytes(os.urandom(300_000))
    (top / "mapped").write_bytes(bytes(4096))
    whose = [f"--files={files}"] if files else []
    job = market.srun("-p", 50, *whose, *options, "--node", node, top / "python",
                      top / "work.py", cwd=top)
    return job


def until_it_works(top):
    lines = (top / "log").read_text().count("\n") if (top / "log").exists() else 0
    until("it works", lambda: (top / "log").exists() and
          (top / "log").read_text().count("\n") > lines + 2)


def check_end(market, job, top):
    (top / "enough").touch()
    assert job.wait() == 0, job.told
    n, where = bytes(job.out).decode().split()
    lines = (top / "log").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(int(n)))
    assert len({line.split()[1] for line in lines}) == 1 and where == str(top)
    assert int.from_bytes((top / "mapped").read_bytes()[:8], "little") == int(n) - 1
    assert not (top / "gone").exists()


def servers(market, pattern):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = conftest.read_text(f"/proc/{pid}/cmdline").split("\0")
        if words[0].endswith("souk-files") and pattern in words and market.has(pid):
            found.append(int(pid))
    return found


def test_a_program_that_its_home_alone_has_runs_elsewhere(market, top):
    shutil.copy2("/bin/cat", top / "mine")
    (top / "in").write_text("what is at home\n")
    job = market.srun("-p", 50, "--files=home", "--node", "n3", top / "mine", "in", cwd=top)
    assert job.wait() == 0, job.told
    assert bytes(job.out) == b"what is at home\n"
    assert market.job(job.id)["places"] == ["n1"]
    until("its server has ended", lambda: not servers(market, "serve"))


def test_what_it_writes_is_at_home_and_it_moves_freezes_and_thaws(market, top):
    job = begin(market, top)
    market.until_runs(job.id, "n1")
    until_it_works(top)
    for verb, node in (("move", "n2"), ("move", "n3"), ("move", "n1"), ("freeze", None),
                       ("thaw", "n2")):
        market.tool("marketctl", "--hold", verb, job.id, *([node] if node else []))
        if node:
            market.until_runs(job.id, node)
            until_it_works(top)
        else:
            market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
    check_end(market, job, top)
    assert market.job(job.id)["failed_moves"] == 0


def test_what_goes_between_home_and_node_is_encrypted(market, top):
    pattern = os.urandom(32).hex().encode()
    (top / "secret").write_bytes(pattern * 50_000)
    (top / pattern.decode()).write_text("")
    ends, seen = threading.Event(), []
    wire = market.in_netns("fabric", lambda: socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)))  # ETH_P_ALL
    wire.settimeout(0.1)
    # SO_RCVBUFFORCE: what comes while this process has no CPU
    wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)

    def listen():
        while not ends.is_set() or select.select([wire], [], [], 0)[0]:
            try:
                seen.append(wire.recv(1 << 17))
            except TimeoutError:
                pass
    listener = threading.Thread(target=listen)
    listener.start()
    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/bin/sh", "-c",
                      "ls; cat secret; cp secret copy", cwd=top)
    try:
        assert job.wait() == 0, job.told
    finally:
        ends.set()
        listener.join()
        wire.close()
    assert pattern in job.out and (top / "copy").read_bytes() == pattern * 50_000
    assert sum(map(len, seen)) > 1_000_000  # the kernel may drop what comes too fast
    assert not any(pattern in packet for packet in seen)


def test_a_job_with_200_open_files_moves_and_freezes(market, top):
    for i in range(200):
        (top / f"f{i}").write_text(str(i))
    (top / "holds.py").write_text(HOLDS)
    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/usr/bin/python3",
                      top / "holds.py", cwd=top)
    job.printed(1)
    for verb, node in (("move", "n2"), ("move", "n1"), ("freeze", None), ("thaw", "n2")):
        market.tool("marketctl", "--hold", verb, job.id, *([node] if node else []))
        if node:
            market.until_runs(job.id, node)
        else:
            market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
    (top / "enough").touch()
    assert job.wait() == 0, job.told
    assert [(top / f"f{i}").read_text() for i in range(200)] == [f"{i}{i}" for i in range(200)]


# Root's job away from home; each change is somebody else's, and the file's owner is root.
KILLS = r"""
import os, sys
def as_another(change):
    if os.fork() == 0:
        os.setgroups([]); os.setgid(4321); os.setuid(4321)
        change()
        os._exit(0)
    assert os.wait()[1] == 0
for name, change in (("cut", lambda: os.truncate("cut", 100)),
                     ("held", lambda: os.ftruncate(os.open("held", os.O_RDWR), 100)),
                     ("written", lambda: os.write(os.open("written", os.O_RDWR), b"x"))):
    open(name, "w").write("x" * 200)
    os.chmod(name, 0o6777)
    as_another(change)
"""


def test_what_another_user_has_changed_is_no_set_user_id_program_at_home(market, top):
    os.chmod(top, 0o777)
    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/usr/bin/python3", "-c", KILLS,
                      cwd=top)
    assert job.wait() == 0, job.told
    assert {oct(os.stat(top / name).st_mode & 0o7777) for name in ("cut", "held", "written")} \
        == {"0o777"}


def test_what_is_mapped_and_not_written_yet_goes_along(market, top):
    (top / "mapped").write_bytes(bytes(4096))
    (top / "maps.py").write_text(MAPS)
    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/usr/bin/python3",
                      top / "maps.py", cwd=top)
    job.printed(1)
    for node in ("n2", "n1", "n2", "n3", "n1"):
        market.tool("marketctl", "--hold", "move", job.id, node)
        market.until_runs(job.id, node)
    (top / "enough").touch()
    assert job.wait() == 0, job.told
    n = int(bytes(job.out).split()[-1])
    assert int.from_bytes((top / "mapped").read_bytes()[:8], "little") == n > 0


def test_other_jobs_see_their_own_nodes_files(market, top):
    (top / "here").write_text("n3's")
    done = market.srun("-p", 50, "--node", "n3", "/bin/ls", top, cwd="/")
    status, seen = done.wait(), market.job(done.id)
    assert status == 2 and done.out == b"", (done.out, seen)  # it ran on n1
    done = market.srun("-p", 50, "--files=home", "--node", "n3", "/bin/ls", top, cwd="/")
    assert done.wait() == 0 and done.out == b"here\n"


LOOKS = """
while [ ! -e enough ]; do
    grep " / " /proc/self/mounts > root.new
    mv root.new root
    sleep 0.05
done
"""


def test_at_its_home_it_has_the_tree_itself_and_no_server_between(market, top):
    def sees(what):
        return lambda: (top / "root").exists() and what in (top / "root").read_text().split()[2]

    job = market.srun("-p", 50, "--files=home", "--node", "n3", "/bin/sh", "-c", LOOKS, cwd=top)
    market.until_runs(job.id, "n1")
    until("its files are served", sees("fuse.souk"))
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    until("they are there themselves", lambda: not sees("fuse")())
    assert "nosuid" in (top / "root").read_text()  # as elsewhere
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    until("its files are served", sees("fuse.souk"))
    (top / "enough").touch()
    assert job.wait() == 0, job.told
    assert market.job(job.id)["failed_moves"] == 0


def test_a_file_that_others_change_at_home_is_the_same_file(market, top):
    sharer = Sharer(market, top, "--files=home", "--node", "n3")
    for node, change in zip(("n1", "n3", "n2"), changes_of(sharer.file)):
        sharer.frozen_while(change, node)
    assert market.job(sharer.job.id)["failed_moves"] == 0
