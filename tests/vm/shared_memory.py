# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that processes share, and that the kernel has merged, is not copied by a move."""
import os
import re

from inside import ALICE, moved, need, read_text, until


# A process and three children share 32 MB; each child then has a page of its own.
SHARERS = """
import mmap, os, select, sys
m = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096): m[at:at + 8] = at.to_bytes(8, "little")
right = lambda own: all(m[at] == at & 255 and m[at + 1] == at >> 8 & 255
                        for at in range(0, len(m), 4096) if at != own * 4096)
for me in range(1, 4):
    if os.fork() == 0:
        m[me * 4096:me * 4096 + 8] = b"children"
        while os.getppid() != 1: select.select([], [], [], 0.2) if right(me) else os._exit(1)
        os._exit(0)
n = 0
while not os.path.exists("/home/alice/enough"):
    print(n, right(0), flush=True)
    n += 1
    select.select([], [], [], 0.1)
"""
# 32 MB of pages that are all the same, for the kernel to merge (KSM).
MERGED = """
import mmap, time
m = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096): m[at:at + 4096] = b"7" * 4096
m.madvise(mmap.MADV_MERGEABLE)
for n in range(100000):
    print(n, all(m[at] == 55 for at in range(0, len(m), 4096)), flush=True)
    time.sleep(0.1)
"""


def proportional_kb(market, id, kind="Pss"):
    pids = set().union(*[p for _, _, p in market.capsules(id)])
    found = [re.search(rf"^{kind}:\s+(\d+)", read_text(f"/proc/{p}/smaps_rollup"), re.M)
             for p in pids]
    return sum(int(m[1]) for m in found if m)


def test_memory_that_processes_of_a_plain_user_share_stays_shared(market):
    """In each form, under a limit that leaves no room for a second copy."""
    told = []
    for form in ("auto", "safe", "fast"):
        job = market.srun("-p", 50, "-m", 96, "--move", form, "/usr/bin/python3", "-c",
                          SHARERS, user=ALICE, group=ALICE, extra_groups=[], cwd="/home/alice",
                          env={**market.env, "HOME": "/home/alice"})
        job.printed(3)
        before = proportional_kb(market, job.id)
        need(moved(market, job, 3) == 3, f"{form}: it ended: {job.told}")
        job.printed(job.lines() + 3)
        after = until("all its pages are there",
                      lambda: (kb := proportional_kb(market, job.id)) >= 0.97 * before and kb)
        need(after <= 1.1 * before, f"{form}: {before} kB were {after} kB after three moves")
        with open("/home/alice/enough", "w"):
            pass
        need(job.wait() == 0, f"{form}: ended with {job.process.returncode}: {job.told}")
        os.unlink("/home/alice/enough")
        lines = bytes(job.out).decode().splitlines()
        need(lines == [f"{i} True" for i in range(len(lines))], f"{form}: it printed {lines[-3:]}")
        told.append(f"{form} {before} -> {after} kB")
    return ", ".join(told)


def test_memory_that_the_kernel_has_merged_stays_merged(market):
    ksm = "/sys/kernel/mm/ksm"

    def anonymous_kb():  # without files, of which it has a larger part when another python ends
        return proportional_kb(market, job.id, "Pss_Anon")
    if not os.path.exists(ksm):
        return "this kernel merges nothing"

    def merge(value, **settings):
        for name, number in {**settings, "run": value}.items():
            with open(f"{ksm}/{name}", "w") as f:
                f.write(str(number))
    merge(1, pages_to_scan=20000, sleep_millisecs=20)
    try:
        job = market.srun("-p", 50, "--checkpoint-every", "15s", "/usr/bin/python3", "-c", MERGED)
        job.printed(3)
        merged = until("its pages are merged", lambda: (kb := anonymous_kb()) < 20_000 and kb)
        merge(0)  # what comes apart now stays apart
        until("it has a checkpoint", lambda: "checkpoint_node" in market.job(job.id))
        kept = anonymous_kb()
        need(kept <= 1.1 * merged, f"{merged} kB were {kept} kB after a checkpoint")
        merge(1)
        need(moved(market, job, 2) == 2, f"it ended: {job.told}")
        until("they are merged there, too", lambda: anonymous_kb() <= 1.3 * merged)
        market.tool("marketctl", "cancel", job.id)
        job.wait()
        need(b"False" not in job.out, "its memory has changed")
        return f"{merged} -> {kept} kB"
    finally:
        merge(2)
