// SPDX-License-Identifier: GPL-2.0-or-later
// The job's first start, its signals and its end.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agentd/init/init.hpp"
#include "kernel/sys/process/proc_stat.hpp"

namespace souk::init {
namespace {
enum Step : int {
    in_terminal,
    in_stdio,
    in_limits,
    in_keys,
    in_root,
    in_credentials,
    in_cwd,
    in_filter,
    in_exec,
    is_held  // no error: it waits before its program
};
const char* const step_names[] = {"take the terminal",
                                  "set up stdio",
                                  "set resource limits",
                                  "make a keyring",
                                  "go to its home's files",
                                  "set credentials",
                                  "go to",
                                  "limit its system calls",
                                  "run",
                                  "wait"};
struct StepError {
    int step, code;
};

struct Launch {  // the specification, mapped as long as the job starts
    void* data;
    size_t size;
    SpecView view;
    char** vectors;
};
Launch launch;

void not_started(int code, bool program, const char* what, const char* subject) {
    snprintf(g.failure, sizeof g.failure, "%s%s%s", what, *subject ? " " : "", subject);
    g.failure_code = code;
    g.failure_program = program;
    g.state = SOUK_NOT_STARTED;
}

void forget_launch() {
    if (launch.data) munmap(launch.data, launch.size);
    free(launch.vectors);
    launch = {};
}

// Maps the specification that agentd wrote into an anonymous file.
const char* read_launch(int fd) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size <= 0 || st.st_size > SOUK_SPEC_MAX)
        return "no launch specification";
    launch.size = static_cast<size_t>(st.st_size);
    launch.data = mmap(nullptr, launch.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (launch.data == MAP_FAILED) {
        launch.data = nullptr;
        return "cannot map the launch specification";
    }
    if (const char* wrong = parse_spec(launch.data, launch.size, &launch.view)) return wrong;
    const souk_spec* s = launch.view.head;
    launch.vectors = static_cast<char**>(malloc((size_t{s->argc} + s->envc + 2) * sizeof(char*)));
    if (!launch.vectors) return "out of memory";
    spec_vectors(launch.view, launch.vectors);
    return nullptr;
}

bool is_its_user(const SpecView& view) {
    const souk_spec* s = view.head;
    return !g.of_one ||
           (s->uid == g.of_uid && s->gid == g.of_gid && s->groups == g.of_group_count &&
            memcmp(view.groups, g.of_groups, size_t{s->groups} * sizeof *view.groups) == 0);
}

[[noreturn]] void child_failed(int report, Step step) {
    const StepError e = {step, errno};
    (void)!write(report, &e, sizeof e);
    _exit(127);
}

// Hard limits above our own need CAP_SYS_RESOURCE, which root in a container may lack: then as much
// as may be.
bool set_limit(const souk_rlimit& wish) {
    struct rlimit want = {wish.soft, wish.hard}, own;
    const auto change = [&wish](const struct rlimit* to, struct rlimit* from) {
        return prlimit(0, static_cast<decltype(RLIMIT_CPU)>(wish.resource), to, from) == 0;
    };
    if (change(&want, nullptr)) return true;
    if (errno != EPERM || !change(nullptr, &own)) return false;
    if (want.rlim_max > own.rlim_max) want.rlim_max = own.rlim_max;
    if (want.rlim_cur > want.rlim_max) want.rlim_cur = want.rlim_max;
    return change(&want, nullptr);
}

// Joins a new keyring, because all jobs would share agentd's. A kernel without keys, or a container
// that may not use them, has no keyring that could be shared.
bool own_session_keyring() {
    return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0 || errno == ENOSYS ||
           errno == EPERM;
}

// Drops all capabilities from the bounding set, so that no program of a plain user's job can have
// one, whatever it executes.
bool drop_capabilities() {
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; ++c)
        if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) != 0) return false;
    return true;
}

// Sets the filter of system calls. This is the last step, because earlier ones may need calls that
// the filter refuses.
bool set_filter(int file) {
    struct stat st;
    if (fstat(file, &st) != 0) return false;
    const auto count = static_cast<size_t>(st.st_size) / sizeof(struct sock_filter);
    errno = EINVAL;
    if (count == 0 || count > BPF_MAXINSNS) return false;
    void* const all =
        mmap(nullptr, static_cast<size_t>(st.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (all == MAP_FAILED) return false;
    struct sock_fprog program = {static_cast<unsigned short>(count),
                                 static_cast<struct sock_filter*>(all)};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Holds a component of a gang before its program. It first tells whether there is a program that
// this user may execute, because that must be known before all others run. Then it waits for a
// byte, or for the end of souk-init.
void wait_for_release(int report, int gate) {
    if (faccessat(AT_FDCWD, launch.view.path, X_OK, AT_EACCESS) != 0) child_failed(report, in_exec);
    const StepError here = {is_held, 0};
    (void)!write(report, &here, sizeof here);
    char go;
    ssize_t n;
    do n = read(gate, &go, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1) _exit(127);
}

[[noreturn]] void run_child(int report, int filter, int gate) {
    const SpecView& v = launch.view;
    const souk_spec* s = v.head;
    // If the job kept the mount's device open, it would wait for ever for a file that its home does
    // not answer for, also when it is killed (setup.cpp, lay_all_over_served).
    if (g.served) syscall(SYS_close_range, SOUK_FILES_FD, SOUK_FILES_FD + 1, 0U);
    setsid();
    if (s->tty && ioctl(g.slave, TIOCSCTTY, 0) != 0) child_failed(report, in_terminal);
    for (int i = 0; i < 3; ++i)
        if (dup2(s->tty ? g.slave : g.job_end[i], i) < 0) child_failed(report, in_stdio);
    for (uint32_t i = 0; i < s->rlimits; ++i)
        if (!set_limit(v.rlimits[i])) child_failed(report, in_limits);
    (void)write_number("/proc/self/oom_score_adj", SOUK_OOM_FIRST);  // of root: no job lowers it
    // Daemons that leave their parent stay below the job's root, so that they move with it.
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    umask(s->umask);
    if (!own_session_keyring()) child_failed(report, in_keys);
    if (g.files && (chdir(SOUK_FILES_ROOT) != 0 || chroot(".") != 0)) child_failed(report, in_root);
    if (s->uid != 0 && !drop_capabilities()) child_failed(report, in_credentials);
    if (setgroups(s->groups, v.groups) != 0 || setresgid(s->gid, s->gid, s->gid) != 0 ||
        setresuid(s->uid, s->uid, s->uid) != 0)
        child_failed(report, in_credentials);
    // Programs with a set-user-ID or set-group-ID bit gain nothing.
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) child_failed(report, in_credentials);
    if (chdir(v.cwd) != 0) child_failed(report, in_cwd);
    if (gate >= 0) wait_for_release(report, gate);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (filter >= 0 && !set_filter(filter)) child_failed(report, in_filter);
    execve(v.path, launch.vectors, launch.vectors + s->argc + 1);
    child_failed(report, in_exec);
}

// Forks into another group at once, because moving a process afterwards takes the kernel
// milliseconds.
pid_t fork_into(int cgroup) {
    struct clone_args args = {};
    args.exit_signal = SIGCHLD;
    if (cgroup >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = static_cast<uint64_t>(cgroup);
    }
    return static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
}

void write_exit_record() {
    const int fd = create_at(g.dir, SOUK_EXIT_NAME ".tmp", O_TRUNC);
    // Agentd reads it, which may run as a user of its own. The directory is open to that user
    // alone.
    bool good = fd >= 0 && fchmod(fd, 0644) == 0 && write_all(fd, &g.exit, sizeof g.exit) &&
                (!g.durable || fsync(fd) == 0);
    if (fd >= 0) close(fd);
    good = good && renameat(g.dir, SOUK_EXIT_NAME ".tmp", g.dir, SOUK_EXIT_NAME) == 0 &&
           (!g.durable || fsync(g.dir) == 0);
    if (!good) say("write the exit record", errno);
}

// The parent of a process of this namespace, -1 if there is no such process.
int parent_of(int pid) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    ProcStat stat;
    return parse_proc_stat(text, &stat) ? stat.parent : -1;
}

// Tells whether processes of the job are left. Once the job's first process is dead, they are
// children of this process. CRIU is not: it comes from outside, after room for its pids was made.
bool others_are_here() {
    siginfo_t none;
    return g.last_pid > 0 || waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) == 0 ||
           errno != ECHILD;
}
}  // namespace

void start_job(int spec_fd, int cgroup, int filter, bool hold) {
    if (g.state != SOUK_FRESH) return say("ignored a second start", 0);
    const char* wrong = read_launch(spec_fd);
    const souk_spec* s = launch.view.head;
    if (!wrong && !is_its_user(launch.view)) wrong = "the capsule is for another user";
    if (!wrong)
        wrong = s->tty ? make_terminal(static_cast<int>(s->rows), static_cast<int>(s->cols))
                       : make_pipes();
    if (wrong) return not_started(errno, false, wrong, ""), forget_launch();
    g.uid = s->uid;
    g.gid = s->gid;
    g.durable = s->durable != 0;
    make_run_user(g.uid, g.gid);
    // Owned by the job's user, so that /dev/stdout and /dev/tty can be opened.
    if (g.tty)
        fchown(g.slave, s->uid, static_cast<gid_t>(-1)) == 0 ? void()
                                                             : say("chown the terminal", errno);
    for (const int fd : g.job_end)
        if (fd >= 0 && fchown(fd, s->uid, s->gid) != 0) say("chown a pipe", errno);
    int report[2], gate[2] = {-1, -1};
    if (pipe2(report, O_CLOEXEC) != 0 || (hold && pipe2(gate, O_CLOEXEC) != 0))
        return not_started(errno, false, "make a pipe", ""), forget_launch();
    if (g.of_one) begin_pids();  // a capsule that is nobody's has one job alone
    const pid_t pid = fork_into(cgroup);
    const int code = errno;
    if (pid == 0) {
        if (hold) close(gate[1]);
        run_child(report[1], filter, gate[0]);
    }
    close(report[1]);
    if (hold) close(gate[0]);
    g.gate = gate[1];
    close_job_ends();
    if (pid < 0) {
        if (hold) close(g.gate);
        g.gate = -1;
        close(report[0]);
        return not_started(code, false, "start a process", ""), forget_launch();
    }
    set_nonblocking(report[0]);
    g.root = pid;
    g.exec_pipe = report[0];
    g.state = SOUK_STARTING;
    g.children_left = true;
}

void release_job() {
    if (g.state != SOUK_HELD_STATE) return;
    g.state = SOUK_STARTING;
    const char go = 0;
    if (write(g.gate, &go, 1) != 1) say("release the job", errno);
    close(g.gate);
    g.gate = -1;
}

void on_exec_pipe() {
    StepError e;
    const ssize_t n = read(g.exec_pipe, &e, sizeof e);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n == sizeof e && e.step == is_held) {
        g.state = SOUK_HELD_STATE;
        g.held_told = false;
        return;
    }
    close(g.exec_pipe);
    g.exec_pipe = -1;
    if (n == sizeof e && e.step >= 0 && e.step <= in_exec) {
        const char* subject = e.step == in_exec  ? launch.view.path
                              : e.step == in_cwd ? launch.view.cwd
                                                 : "";
        not_started(e.code, e.step == in_exec, step_names[e.step], subject);
    } else if (g.gate >= 0) {
        close(g.gate);
        g.gate = -1;
        not_started(0, false, "it was killed before it was released", "");
    } else {
        g.state = SOUK_RUNNING;
    }
    forget_launch();
}

void finish_root() {
    for (int steps = 0; steps < 2 && (g.state == SOUK_STARTING || g.state == SOUK_HELD_STATE);
         ++steps)
        on_exec_pipe();
    if (g.state == SOUK_NOT_STARTED) return;
    // The job is its root: what it left behind ends with it. Mostly there is nothing, and the
    // kernel would look at each process of the machine for it.
    if (others_are_here()) kill(-1, SIGKILL);
    g.exit.magic = SOUK_EXIT_MAGIC;
    g.exit.version = SOUK_INIT_VERSION;
    g.exit.wait_status = g.root_status;
    const struct rusage& u = g.root_usage;
    g.exit.user_us = static_cast<uint64_t>(u.ru_utime.tv_sec) * 1000000 +
                     static_cast<uint64_t>(u.ru_utime.tv_usec);
    g.exit.system_us = static_cast<uint64_t>(u.ru_stime.tv_sec) * 1000000 +
                       static_cast<uint64_t>(u.ru_stime.tv_usec);
    g.exit.rss_max_kib = static_cast<uint64_t>(u.ru_maxrss);
    g.exit.faults_minor = static_cast<uint64_t>(u.ru_minflt);
    g.exit.faults_major = static_cast<uint64_t>(u.ru_majflt);
    write_exit_record();
    g.state = SOUK_ENDED;
}

void on_child() {
    char drop[128 * 16];
    while (read(g.child_signals, drop, sizeof drop) > 0) {
    }
    for (;;) {
        int status;
        struct rusage usage;
        const pid_t pid = wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) {
            g.children_left = pid == 0;
            return;
        }
        if (pid != g.root) continue;
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
            g.stopped = WIFSTOPPED(status);
            g.stop_signal = g.stopped ? WSTOPSIG(status) : 0;
            g.stop_told = false;
            continue;
        }
        g.root_dead = true;
        g.root_status = status;
        g.root_usage = usage;
        // Killed by the dump, or dead between a restore and its word: agentd decides what that
        // means.
        if (g.state == SOUK_STARTING || g.state == SOUK_RUNNING || g.state == SOUK_HELD_STATE)
            finish_root();
    }
}

bool of_the_job(int pid) {
    for (int hops = 0; pid > 1 && hops < 4096; ++hops) pid = parent_of(pid);
    return pid == 1;
}
// The root leads its session, so its own process group is orphaned and the kernel drops a SIGTSTP
// to it. A shell would stop a program that does not handle it; so do we. (Groups that the root made
// are not orphaned: the kernel does it.)
bool stop_orphaned(pid_t group) {
    if (group != g.root || g.root_dead) return false;
    char path[32], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", static_cast<int>(g.root));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    const char* const fields[] = {"SigIgn:", "SigCgt:"};
    for (const char* field : fields) {
        const char* at = strstr(text, field);
        if (!at || (strtoull(at + 7, nullptr, 16) >> (SIGTSTP - 1) & 1) != 0) return false;
    }
    kill(-group, SIGSTOP);
    return true;
}

void send_signal(int number, uint32_t target) {
    if (g.root <= 1 || g.root_dead || number < 1 || number >= NSIG) return;
    pid_t group = 0;
    switch (target) {
        case SOUK_TO_ROOT: kill(g.root, number); return;
        case SOUK_TO_FOREGROUND:
            if (g.master < 0 || ioctl(g.master, TIOCGPGRP, &group) != 0 || group <= 1)
                group = g.root;
            if (number != SIGTSTP || !stop_orphaned(group)) kill(-group, number);
            return;
        default: break;
    }
    DIR* proc = opendir("/proc");
    if (!proc) return say("open /proc", errno);
    while (struct dirent* entry = readdir(proc)) {
        const int pid = atoi(entry->d_name);
        if (pid > 1 && of_the_job(pid)) kill(pid, number);
    }
    closedir(proc);
}

}  // namespace souk::init
