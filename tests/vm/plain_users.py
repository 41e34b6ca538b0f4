# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of users who are not root: what a move and a restore leave theirs, and keep from them."""
import os
import re

from inside import ALICE, moved, need, read_text, until


def test_a_job_of_a_plain_user_moves_and_is_the_users_all_along(market):
    script = ('import os,sys,time\n'
              'os.close(os.open("/home/alice/made", os.O_CREAT | os.O_WRONLY))\n'
              'for i in range(100000):\n'
              '    print(i, os.getresuid(), os.getresgid(), flush=True)\n'
              '    if os.path.exists("/home/alice/stop"): break\n'
              '    time.sleep(0.05)\n'
              'sys.exit(9)\n')
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", script,
                      env={**market.env, "HOME": "/home/alice"}, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice")
    job.printed(5)
    need(moved(market, job, 4) == 4, "it ended")
    pids = set().union(*[p for _, _, p in market.capsules(job.id)])
    job.printed(job.lines() + 5)
    owners = {m[1] for p in pids if "python3" in read_text(f"/proc/{p}/cmdline")
              and (m := re.search(r"^Uid:\s+(\d+)\s", read_text(f"/proc/{p}/status"), re.M))}
    need(owners == {str(ALICE)}, f"its processes belong to {owners}")
    with open("/home/alice/stop", "w"):
        pass
    need(job.wait() == 9, f"ended with {job.process.returncode}: {job.told}")
    lines = bytes(job.out).decode().splitlines()
    ids = f"({ALICE}, {ALICE}, {ALICE})"
    need(lines == [f"{i} {ids} {ids}" for i in range(len(lines))], f"it printed {lines[-3:]}")
    need(os.stat("/home/alice/made").st_uid == ALICE, "its file is another's")
    return f"4 moves, {len(lines)} lines"


HOLDER = """
import os, sys, time
held = os.open("/home/alice/d/passwd", os.O_RDWR)
for n in range(100000):
    print(n, [l.split()[1] for l in open("/proc/self/status") if l[:6] in ("CapBnd", "NoNewP")],
          flush=True)
    if os.path.exists("/home/alice/go"): break
    time.sleep(0.05)
os.pwrite(held, b"ATTACK", 0)
"""


def test_a_plain_user_who_swaps_a_directory_gets_no_file_of_roots(market):
    """While his job is frozen. It gains no privileges before or after."""
    for where, owner in (("/home/alice/d", ALICE), ("/root-only", 0)):
        os.makedirs(where, exist_ok=True)
        os.chown(where, owner, owner)
        with open(f"{where}/passwd", "wb") as f:
            f.write(b"as it was")
        os.chown(f"{where}/passwd", owner, owner)
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", HOLDER, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice",
                      env={**market.env, "HOME": "/home/alice"})
    job.printed(3)
    need(moved(market, job, 2) == 2, f"it ended: {job.told}")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    os.rename("/home/alice/d", "/home/alice/away")
    os.symlink("/root-only", "/home/alice/d")
    market.tool("marketctl", "release", job.id)
    refused = "cannot open /home/alice/d/passwd: Permission denied", "is another"
    said = until("the thaw has an end", lambda: next(
        (w for w in job.words if any(why in w for why in refused)), None))
    need(market.job(job.id)["status"] != "run", f"it runs: {said}")
    os.unlink("/home/alice/d")
    os.rename("/home/alice/away", "/home/alice/d")
    market.until_runs(job.id)
    with open("/home/alice/go", "w"):
        pass
    need(job.wait() == 0, f"ended with {job.process.returncode}: {job.told}")
    need(read_text("/root-only/passwd") == "as it was", "root's file was written to")
    need(read_text("/home/alice/d/passwd") == "ATTACKwas", "its own was not")
    lines = bytes(job.out).decode().splitlines()
    kept = "['0000000000000000', '1']"
    need(all(line.endswith(kept) or line.endswith("['1', '0000000000000000']") for line in lines),
         f"it printed {lines[-3:]}")
    return said[:60]


# A deleted file and a socket, which a restore makes anew.
MAKER = """
import os, socket, sys, time
gone = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(gone, b"0123456789")
os.unlink("gone")
shut = os.open("shut", os.O_RDWR | os.O_CREAT, 0o400)
door = socket.socket(socket.AF_UNIX)
door.bind("door")
door.listen()
for n in range(100000):
    s = os.fstat(gone)
    print(n, os.pread(gone, 4, 2), s.st_uid, s.st_nlink, os.stat("door").st_uid,
          os.write(shut, b"x"), flush=True)
    if os.path.exists("/home/alice/enough"): break
    time.sleep(0.05)
"""


def test_what_a_restore_makes_for_a_plain_user_is_the_users(market):
    os.makedirs("/home/alice/made-anew", exist_ok=True)
    os.chown("/home/alice/made-anew", ALICE, ALICE)
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", MAKER, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice/made-anew",
                      env={**market.env, "HOME": "/home/alice"})
    job.printed(3)
    need(moved(market, job, 3) == 3, f"it ended: {job.told}")
    job.printed(job.lines() + 3)
    with open("/home/alice/enough", "w"):
        pass
    need(job.wait() == 0, f"ended with {job.process.returncode}: {job.told}")
    os.unlink("/home/alice/enough")
    lines = bytes(job.out).decode().splitlines()
    need(lines == [f"{n} b'2345' {ALICE} 0 {ALICE} 1" for n in range(len(lines))],
         f"it printed {lines[-3:]}")
    return f"3 moves, {len(lines)} lines"


def test_a_job_of_a_plain_user_is_no_other_users_to_end(market):
    job = market.srun("-p", 50, "sleep", "1000")
    market.until_runs(job.id)
    done = market.tool("marketctl", "cancel", job.id, check=False, user=ALICE, group=ALICE,
                       extra_groups=[])
    need(done.returncode == 1 and market.job(job.id)["status"] == "run", f"{done}")
    market.tool("marketctl", "cancel", job.id)
    need(job.wait() == 255, f"{job.process.returncode}")
