# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that processes share copy-on-write stays shared: in each form of a move, in freezes and
checkpoints, and where one of these fails. Measured as the kernel's proportional sums of all the
job's processes (smaps_rollup)."""
import os
import re
import subprocess

import pytest

from conftest import read_text, until
from moving import FORMS, MOVES, compiled, need
from test_checkpoints import checkpoint

MEGABYTES, CHILDREN = 100, 4
GROWS_BY = 0.03  # of its memory, at most

# Five processes share so many megabytes of anonymous memory and 8 MB of a file that is mapped
# privately and was changed; then each child writes to pages of its own, and the first to some that
# its children go on to share. Each line says whether every process finds in all of its memory what
# it should. With an address the first listens there.
SHARERS = """
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PAGE = 4096, WORDS = PAGE / sizeof(unsigned long), CHILDREN = %d };
enum { FILE_PAGES = 2048, OF_EACH = 64, PARENTS = 256 };
static unsigned long *memory, *file;
static size_t pages;
static unsigned long me;
static unsigned long word(size_t page, unsigned long who) {
    return page * 2654435761UL + who * 1000003UL;
}
static void fill(unsigned long *at, size_t page, unsigned long who) {
    for (unsigned long k = 0; k < WORDS; ++k) at[page * WORDS + k] = word(page, who) + k;
}
static int holds(const unsigned long *at, size_t page, unsigned long who) {
    for (unsigned long k = 0; k < WORDS; k += 73)
        if (at[page * WORDS + k] != word(page, who) + k) return 0;
    return 1;
}
static int is_right(void) {
    for (size_t i = 0; i < pages; ++i)
        if (!holds(memory, i, me && i %% OF_EACH == me ? me : 0)) return 0;
    for (size_t i = 0; i < FILE_PAGES; ++i)
        if (!holds(file, i, me && i %% OF_EACH == me ? me : 0)) return 0;
    return 1;
}
int main(int count, char **words) {
    if (count > 3) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7999),
                                 .sin_addr = {inet_addr(words[3])}};
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(s, (struct sockaddr *)&at, sizeof at) != 0 || listen(s, 1) != 0) return 2;
    }
    pages = (size_t)atol(words[1]) << 8;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *f = fopen(words[2], "w+");
    if (memory == MAP_FAILED || !f || ftruncate(fileno(f), FILE_PAGES * PAGE) != 0) return 3;
    file = mmap(0, FILE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
    if (file == MAP_FAILED || fclose(f) != 0) return 3;
    for (size_t i = 0; i < pages; ++i) fill(memory, i, 0);
    for (size_t i = 0; i < FILE_PAGES; ++i) fill(file, i, 0);
    int ask[CHILDREN][2], say[CHILDREN][2];
    pid_t child[CHILDREN];
    for (int n = 0; n < CHILDREN; ++n) {
        if (pipe(ask[n]) != 0 || pipe(say[n]) != 0 || (child[n] = fork()) < 0) return 4;
        if (child[n] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        me = n + 1;
        for (size_t i = me; i < pages; i += OF_EACH) fill(memory, i, me);
        for (size_t i = me; i < FILE_PAGES; i += OF_EACH) fill(file, i, me);
        for (char b; read(ask[n][0], &b, 1) == 1;) {
            b = is_right() ? 'y' : 'n';
            if (write(say[n][1], &b, 1) != 1) return 5;
        }
        return 0;
    }
    for (size_t i = 0; i < pages; i += PARENTS)
        ((volatile unsigned long *)memory)[i * WORDS] = memory[i * WORDS];
    struct pollfd in = {0, POLLIN, 0};
    long n = 0;
    do {
        int right = is_right();
        for (int i = 0; i < CHILDREN; ++i) {
            char b = 'x';
            right = write(ask[i][1], &b, 1) == 1 && read(say[i][0], &b, 1) == 1 && b == 'y' &&
                    right;
        }
        printf("%%ld %%s\\n", n++, right ? "right" : "wrong");
        fflush(stdout);
    } while (poll(&in, 1, 50) <= 0);
    for (int i = 0; i < CHILDREN; ++i) kill(child[i], SIGKILL);
    return 0;
}
""" % CHILDREN


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need("gcc")
    return compiled(tmp_path_factory.mktemp("sharers"), SHARERS)


def proportional(market, job, name):
    """Kilobytes that all processes of the job have together, where it runs; None while it is
    somewhere between."""
    groups = [pids for _, _, pids in market.capsules(job.id)]
    if len(groups) != 1:
        return None
    found = [re.search(r"^Pss:\s+(\d+)", read_text(f"/proc/{p}/smaps_rollup"), re.M)
             for p in groups[0] if read_text(f"/proc/{p}/comm").strip() == name]
    return sum(int(m[1]) for m in found) if len(found) == CHILDREN + 1 and all(found) else None


def settled(market, job, name):
    """Its memory after it has looked at all of it twice, wherever it is."""
    job.printed(job.lines() + 2)
    return until("it is in one place", lambda: proportional(market, job, name))


def start(market, program, tmp_path, *options, address=None):
    words = [program, MEGABYTES, tmp_path / "file"] + ([address] if address else [])
    job = market.srun(*options, "-m", 256, "-p", 50, *words, stdin=subprocess.PIPE)
    job.printed(3)
    market.until_runs(job.id)
    return job


def check_right_to_its_end(job):
    job.process.stdin.close()
    assert job.wait(90) == 0, job.told
    lines = bytes(job.out).decode().splitlines()
    assert lines == [f"{i} right" for i in range(len(lines))] and not job.told


def move(market, job, form):
    here = market.until_runs(job.id)["where"]
    there = "n2" if here == "n1" else "n1"
    if form == "freeze":
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "thaw", job.id, there)
    else:
        market.tool("marketctl", "--hold", "move", job.id, there)
    return market.until_runs(job.id, there)


def check_same_size(what, before, seen):
    print(f"{what}: {before} kB at first, then {seen}")
    assert before < (MEGABYTES + 30) << 10, "the program itself shares less than it should"
    assert max(seen) < before * (1 + GROWS_BY), (before, seen)


@pytest.mark.parametrize("form", (*FORMS, "freeze"))
def test_what_five_processes_share_stays_shared_wherever_they_go(market, program, tmp_path, form):
    """SOUK_MOVES=20: so many of each form."""
    job = start(market, program, tmp_path, *(["--move", form] if form in FORMS else []))
    before, seen = settled(market, job, program.name), []
    for _ in range(MOVES or 3):
        move(market, job, form)
        seen.append(settled(market, job, program.name))
    check_right_to_its_end(job)
    last = market.job(job.id)
    assert last["failed_moves"] == 0, last
    check_same_size(form, before, seen)


@pytest.fixture
def huge_pages():
    """Given to whoever touches memory, as many machines do, asked for or not."""
    setting = "/sys/kernel/mm/transparent_hugepage/enabled"
    if not os.access(setting, os.W_OK):
        pytest.skip("this kernel has no huge pages to set")
    before = re.search(r"\[(\w+)\]", read_text(setting))[1]
    with open(setting, "w") as f:
        f.write("always")
    yield
    with open(setting, "w") as f:
        f.write(before)


@pytest.mark.parametrize("form", (*FORMS, "freeze"))
def test_huge_pages_hide_nothing_that_is_still_to_come(market, program, tmp_path, huge_pages, form):
    job = start(market, program, tmp_path, *(["--move", form] if form in FORMS else []))
    for _ in range(3):
        move(market, job, form)
        job.printed(job.lines() + 2)
    check_right_to_its_end(job)


@pytest.mark.parametrize("form", ("safe", "fast"))
def test_a_move_that_fails_leaves_shared_what_is_shared(market, program, tmp_path, form):
    """It listens at an address that the other node does not have: dumped and read, but it cannot be
    restored there."""
    address = market.daemon("n1")["address"].split(":")[0]
    job = start(market, program, tmp_path, "--move", form, address=address)
    assert market.until_runs(job.id)["where"] == "n1"
    before, seen = settled(market, job, program.name), []
    for n in range(2):
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        market.until_job(job.id, "has failed to move", lambda j: j["failed_moves"] > n)
        market.tool("marketctl", "release", job.id)
        market.until_runs(job.id, "n1")
        seen.append(settled(market, job, program.name))
    check_right_to_its_end(job)
    check_same_size("failed moves", before, seen)


def test_a_checkpoint_leaves_shared_what_is_shared(market, program, tmp_path):
    job = start(market, program, tmp_path, "--checkpoint-every", "1s")
    before, seen = settled(market, job, program.name), []
    for _ in range(MOVES or 2):
        checkpoint(market, job)
        seen.append(settled(market, job, program.name))
    check_right_to_its_end(job)
    check_same_size("checkpoints", before, seen)
