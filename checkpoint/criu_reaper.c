// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores, so that a daemon that left its parent stays below the job's
// root on every move.
//
// The root of a job adopts such daemons: souk-init makes it a subreaper (PR_SET_CHILD_SUBREAPER)
// before it starts it. CRIU restores a process whose session leader has ended as the child of a
// helper that leads the session and then ends, and makes the root a subreaper again only later
// (criu/pstree.c prepare_pstree_ids; criu/pie/restorer.c restore_child_subreaper): so the daemon
// would come to PID 1, and stay behind at the next move. Here the root becomes one when CRIU has it
// lead its session, which is before it has any child. All that are born after it inherit what else
// is done there: they gain no privileges, and have a session keyring of their own.
#include <linux/keyctl.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

void set_network(void);  // criu_sockets.c

static pid_t criu;
static bool root_born;  // inherited by all that are born after it

__attribute__((constructor)) static void loaded(void) { criu = getpid(); }

pid_t setsid(void) {
    if (!root_born && getpid() != criu) {
        root_born = true;
        set_network();
        // Do this as at the job's first start (agentd/init/job.cpp), whatever the image says.
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, (char*)0);
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    return (pid_t)syscall(SYS_setsid);
}
