# SPDX-License-Identifier: GPL-2.0-or-later
"""Semaphores, names in /dev/shm and seals of memory are as before wherever the job runs, or it
stays where it is."""
import ctypes
import subprocess

import pytest

from conftest import LIMIT, read_text
from moving import check_ended, check_lines, compiled, forms, move_about, need

# A line tells the values of a set, whether their last processes are as they should be, and whether
# two sets count as used. When its input ends its processes do, and what they have done must be
# undone, by each as much as it has done; then what waited for a value gets it.
SEMAPHORES = """
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>
enum { COUNT = 70, HOLDERS = 3 };
static int s, unused, from[2], to[2];
static void add(int n, int by, int how) {
    struct sembuf one = {n, by, how};
    if (semop(s, &one, 1) != 0) perror("semop"), _exit(9);
}
static void *part(void *none) {
    if (unshare(CLONE_SYSVSEM) != 0) perror("unshare");
    add(0, -3, SEM_UNDO);
    add(69, 7, SEM_UNDO);
    write(to[1], "x", 1);
    pause();
    return none;
}
static void *stay(void *none) {
    add(2, -1, SEM_UNDO);
    write(to[1], "x", 1);
    pause();
    return none;
}
static pid_t hold(int which) {
    const pid_t child = fork();
    if (child != 0) return child;
    pthread_t t;
    if (which == 0) {
        add(0, -2, SEM_UNDO);
        add(1, 100, SEM_UNDO);
        add(3, -32767, SEM_UNDO);
    } else if (which == 1) {
        add(2, -4, SEM_UNDO);
        pthread_create(&t, 0, part, 0);
        pthread_create(&t, 0, stay, 0);
    } else {
        add(0, 1, SEM_UNDO);
        add(0, -1, SEM_UNDO);
        add(4, 32767, SEM_UNDO);
    }
    write(to[1], "x", 1);
    for (;;) pause();
}
static void have(int number, int value) {
    const int is = semctl(s, number, GETVAL);
    if (is == value) return;
    fprintf(stderr, "%d: %d, not %d\\n", number, is, value);
    _exit(8);
}
int main(void) {
    pid_t pids[HOLDERS];
    char c;
    struct semid_ds state;
    struct pollfd in = {0, POLLIN};
    setvbuf(stdout, 0, _IOLBF, 0);
    pipe(to);
    s = semget(IPC_PRIVATE, COUNT, 0600);
    unused = semget(IPC_PRIVATE, 2, 0600);
    semctl(s, 0, SETVAL, 10), semctl(s, 2, SETVAL, 16384), semctl(s, 3, SETVAL, 32767);
    const pid_t waits = fork();
    if (waits == 0) {
        add(5, -1, SEM_UNDO);
        _exit(4);
    }
    for (int i = 0; i < HOLDERS; ++i) pids[i] = hold(i);
    for (int i = 0; i < HOLDERS + 2; ++i) read(to[0], &c, 1);
    while (semctl(s, 5, GETNCNT) != 1) sched_yield();
    while (poll(&in, 1, 20) == 0) {
        for (int i = 0; i < 6; ++i) printf("%d ", semctl(s, i, GETVAL));
        printf("%d", semctl(s, 69, GETVAL));
        printf(" last %d %d %d", semctl(s, 1, GETPID) == pids[0], semctl(s, 2, GETPID) == pids[1],
               semctl(s, 4, GETPID) == pids[2]);
        semctl(s, 0, IPC_STAT, &state);
        printf(" used %d", state.sem_otime != 0);
        semctl(unused, 0, IPC_STAT, &state);
        printf(" %d\\n", state.sem_otime != 0);
    }
    kill(pids[0], SIGKILL);
    waitpid(pids[0], 0, 0);
    have(0, 7), have(1, 0), have(2, 16379), have(3, 32767), have(4, 32767);
    kill(pids[1], SIGKILL);
    waitpid(pids[1], 0, 0);
    have(0, 10), have(2, 16384), have(69, 0), have(4, 32767);
    kill(pids[2], SIGKILL);
    waitpid(pids[2], 0, 0);
    have(0, 10), have(4, 0), have(5, 0);
    if (waitpid(waits, 0, WNOHANG) != 0) return 5;
    add(5, 1, 0);
    int status;
    waitpid(waits, &status, 0);
    semctl(s, 0, IPC_RMID), semctl(unused, 0, IPC_RMID);
    return status == 4 << 8 ? 0 : 6;
}
"""


@forms(0)
def test_what_a_process_has_done_to_semaphores_is_undone_at_its_end(market, tmp_path, form):
    need("gcc")
    check_lines(market, form, compiled(tmp_path, SEMAPHORES, "-pthread", "-w"))


SHARING = """
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct sembuf add = {0, 2, SEM_UNDO};
    struct pollfd in = {0, POLLIN};
    const int s = semget(IPC_PRIVATE, 1, 0600);
    semop(s, &add, 1);
    const pid_t child = syscall(SYS_clone, CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) for (;;) pause();
    setvbuf(stdout, 0, _IOLBF, 0);
    while (poll(&in, 1, 20) == 0) printf("%d\\n", semctl(s, 0, GETVAL));
    kill(child, SIGKILL);
    semctl(s, 0, IPC_RMID);
}
"""


def check_refused(market, program, code, *words):
    """It is neither moved nor frozen to disk, in words, and goes on where it is."""
    job = market.srun("-p", 50, program, stdin=subprocess.PIPE)
    job.printed(1)
    where = market.job(job.id)["where"]
    done = market.tool("marketctl", "--wait", "60s", "--hold", "move", job.id,
                       "n3" if where != "n3" else "n2", check=False, limit=70)
    assert done.returncode == 1 and all(word in done.stderr for word in words), done
    market.until_step(job.id, why_code=code)
    job.printed(job.lines() + 2)
    job.process.stdin.close()
    assert job.wait(20) == 0 and not job.told, job.told
    return set(bytes(job.out).decode().splitlines())


def test_processes_that_share_what_is_to_be_undone_stay(market, tmp_path):
    need("gcc")
    program = compiled(tmp_path, SHARING, "-w")
    out = check_refused(market, program, "dump_refused", "cannot move: processes", "CLONE_SYSVSEM")
    assert out == {"2"}


SEALED = """
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct pollfd in = {0, POLLIN};
    char *p = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(p + 4096, "kept");
    if (syscall(462, p + 4096, 2 * 4096, 0L) != 0) return 9;
    setvbuf(stdout, 0, _IOLBF, 0);
    while (poll(&in, 1, 20) == 0)
        printf("%s %d %d %d %d\\n", p + 4096, mprotect(p, 4096, PROT_READ),
               mprotect(p + 4096, 4096, PROT_READ), munmap(p + 2 * 4096, 4096),
               mprotect(p + 3 * 4096, 4096, PROT_READ));
}
"""


@forms(1)
def test_sealed_memory_stays_sealed(market, tmp_path, form):
    need("gcc")
    if ctypes.CDLL(None).syscall(462, 0, 0, 0) != 0:
        pytest.skip("this kernel seals no memory")
    check_lines(market, form, compiled(tmp_path, SEALED, "-w"))


# Segments of shared memory, one of which was removed while it was attached; locks of what is mapped
# from now on; memory that may not be written and executed.
KEPT = """
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>
int main(void) {
    struct pollfd in = {0, POLLIN};
    struct shmid_ds is;
    unsigned char here;
    const int gone = shmget(IPC_PRIVATE, 4096, 0600), kept = shmget(IPC_PRIVATE, 8192, 0640);
    char *p = shmat(gone, 0, 0);
    strcpy(p, "removed");
    shmctl(gone, IPC_RMID, 0);
    mlockall(MCL_FUTURE);
    munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    char *locked = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prctl(65, 1, 0, 0, 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    while (poll(&in, 1, 20) == 0) {
        char *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mincore(m, 4096, &here) != 0) return 8;
        shmctl(gone, IPC_STAT, &is);
        printf("%s %o %d %d %d\\n", p, is.shm_perm.mode, (int)is.shm_nattch, here & 1,
               mmap(0, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   == MAP_FAILED);
        munmap(m, 4096);
    }
    shmdt(p);
    if (shmctl(gone, IPC_STAT, &is) == 0) return 9;
    shmctl(kept, IPC_RMID, 0);
}
"""


@forms(0)
def test_removed_segments_and_what_was_asked_of_memory_stay(market, tmp_path, form):
    need("gcc")
    check_lines(market, form, compiled(tmp_path, KEPT, "-w"))


# One thread of a user's program may make no directory.
SHUT_IN = """
#define _GNU_SOURCE
#include <linux/landlock.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *shut_in(void *none) {
    struct landlock_ruleset_attr all = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_DIR};
    const int fd = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (syscall(SYS_landlock_restrict_self, fd, 0) != 0) perror("landlock");
    close(fd);
    for (;;) {
        printf("%d\\n", mkdir("/dev/shm/made", 0700));
        usleep(20000);
    }
}
int main(void) {
    pthread_t t;
    setvbuf(stdout, 0, _IOLBF, 0);
    pthread_create(&t, 0, shut_in, 0);
    char c;
    read(0, &c, 1);
    _exit(0);
}
"""


def test_a_thread_that_has_shut_itself_in_stays(market, tmp_path):
    need("gcc")
    if ctypes.CDLL(None).syscall(444, 0, 0, 1) < 0:
        pytest.skip("this kernel has no Landlock")
    program = compiled(tmp_path, SHUT_IN, "-pthread", "-w")
    out = check_refused(market, program, "dump_refused", "cannot move: process", "Landlock")
    assert out == {"-1"}
    if "only a dump finds who has shut himself in" in read_text(f"{market.run_dir}/n1/log"):
        return  # this kernel tells agentd nothing of its credentials
    job = market.srun("-p", 50, "--must-migrate", program, stdin=subprocess.PIPE)
    assert job.wait(LIMIT) != 0
    told = "\n".join(job.words)
    assert "must be able to move" in told and "has shut itself in with Landlock" in told, told


@forms(2)
def test_a_tmp_of_its_own_is_empty_at_first_and_goes_along(market, form):
    work = """import os, sys
assert os.listdir('/tmp') == [], os.listdir('/tmp')
open('/tmp/x', 'w').write('one')
os.link('/tmp/x', '/tmp/y')
os.symlink('x', '/tmp/z')
os.mkfifo('/tmp/fifo')
f = open('/tmp/y', 'r+')
while True:
    print(sorted(os.listdir('/tmp')), f.read(), os.path.samefile('/tmp/x', '/tmp/y'), flush=True)
    if not sys.stdin.readline():
        break
    f.write('.')
    f.flush()
    f.seek(0)
"""
    job = market.srun("--move", form, "--tmp=own", "-p", 50, "/usr/bin/python3", "-c", work,
                      stdin=subprocess.PIPE, cwd="/")
    job.printed(1)
    move_about(market, job, form)
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    job.printed(2)
    names = "['fifo', 'x', 'y', 'z']"
    assert check_ended(market, job) == [f"{names} one True", f"{names} one. True"]


def test_a_job_that_lies_in_tmp_cannot_have_one_of_its_own(market, tmp_path):
    done = market.tool("srun", "--tmp=own", "-p", 50, "true", cwd="/tmp", check=False)
    assert done.returncode == 1 and "/tmp is not there (srun --tmp=shared)" in done.stderr, done


# A program that fills one of its limits: files, or memory. It has a semaphore's value to give back.
FULL = """
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <unistd.h>
int main(int count, char **words) {
    struct pollfd in = {0, POLLIN};
    struct sembuf take = {0, -1, SEM_UNDO};
    const int s = semget(IPC_PRIVATE, 1, 0600);
    semctl(s, 0, SETVAL, 5);
    if (semop(s, &take, 1) != 0) return 9;
    if (count == 2) while (open("/dev/null", O_RDONLY) >= 0);
    if (count == 3)
        for (long n = 1 << 30; n >= 4096; n /= 2)
            while (mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    setvbuf(stdout, 0, _IOLBF, 0);
    while (poll(&in, 1, 20) == 0)
        printf("%d %d\\n", open("/dev/null", O_RDONLY),
               mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
}
"""


@pytest.mark.parametrize("limit, words, first", [("-Sn 40", "a", "-1 0"),
                                                 ("-Sv 40000", "a b", "3 1")])
def test_at_a_limit_that_may_be_raised_it_moves(market, tmp_path, limit, words, first):
    need("gcc")
    program = compiled(tmp_path, FULL)
    job = market.srun("-p", 50, "bash", "-c", f"ulimit {limit}; exec {program} {words}",
                      stdin=subprocess.PIPE)
    job.printed(1)
    move_about(market, job, "auto")
    job.printed(job.lines() + 3)
    lines = check_ended(market, job)
    assert lines[0] == first and {line.split()[1] for line in lines} == {first[-1]}
