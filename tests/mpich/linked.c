// SPDX-License-Identifier: GPL-2.0-or-later
// MPICH's tests are linked with these functions, so that eight of them can share two processors.
//
// The first replaces MPI_Finalize (-Wl,--wrap=MPI_Finalize). In Debian's MPICH (4.0.2) that
// function waits, over UCX, for answers of ranks that already wait for the launcher and answer
// nobody: on a busy machine it hangs now and then, also without Souk. So the ranks meet at the
// launcher, where each still answers while it waits, and they end without MPI_Finalize.
//
// The second replaces ucp_worker_progress, which libmpich calls again and again while it waits. A
// rank that has found nothing to do for a while sleeps for a moment, so that the rank that it waits
// for can run. (Open MPI has mpi_yield_when_idle; here each rank has a control group, and to yield
// is no use.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { patience = 64, nap_ns = 5000 };

static void say(int launcher, const char *what) {
    if (write(launcher, what, strlen(what)) != (ssize_t)strlen(what)) _exit(97);
}

static void hear_a_line(int launcher) {
    for (char c = 0; c != '\n';)
        if (read(launcher, &c, 1) != 1) _exit(98);
}

int __wrap_MPI_Finalize(void);
int __wrap_MPI_Finalize(void) {
    const char *number = getenv("PMI_FD");
    fflush(stdout);
    if (!number) return MPI_SUCCESS;
    struct pollfd answer = {.fd = atoi(number), .events = POLLIN};
    say(answer.fd, "cmd=barrier_in\n");
    while (poll(&answer, 1, 1) == 0) {
        int there;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    }
    hear_a_line(answer.fd);
    say(answer.fd, "cmd=finalize\n");
    hear_a_line(answer.fd);
    return MPI_SUCCESS;
}

unsigned ucp_worker_progress(void *worker);
unsigned ucp_worker_progress(void *worker) {
    static unsigned (*real)(void *);
    static __thread int in_vain;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "ucp_worker_progress");
    const unsigned done = real(worker);
    if (done) {
        in_vain = 0;
    } else if (++in_vain > patience) {
        nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
    }
    return done;
}
