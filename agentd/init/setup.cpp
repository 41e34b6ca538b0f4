// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agentd/init/init.hpp"
#include "kernel/sys/process/laid_over.h"
#include "kernel/sys/process/read_ahead.hpp"

namespace souk::init {
namespace {
[[noreturn]] void give_up(const char* what) {
    const int code = errno;
    say(what, code);
    send_record(SOUK_FAILED, 0, code, 0, 0, what, strlen(what));
    _exit(1);
}

// The group of terminals, where /etc/group has it, as Debian's /dev/pts has.
int tty_group() {
    static char text[64 * 1024];
    const int fd = open("/etc/group", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 2);
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    memmove(text + 1, text, static_cast<size_t>(n));
    text[0] = '\n';
    text[n + 1] = 0;
    const char* line = strstr(text, "\ntty:");
    const char* number = line ? strchr(line + 5, ':') : nullptr;
    return number ? atoi(number + 1) : -1;
}

// Terminals of its own, numbered from 0: a pty has a name and a number, by which CRIU opens it
// again, that nobody else has.
void set_up_terminals() {
    if (access("/dev/pts", F_OK) != 0) return;
    char options[64];
    const int group = tty_group();
    const int n = snprintf(options, sizeof options, "newinstance,ptmxmode=0666,mode=620");
    if (group >= 0)
        snprintf(options + n, sizeof options - static_cast<size_t>(n), ",gid=%d", group);
    if (mount("souk", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options) != 0)
        give_up("mount /dev/pts");
    struct stat st;  // a link to pts/ptmx needs nothing
    if (lstat("/dev/ptmx", &st) == 0 && S_ISCHR(st.st_mode) &&
        mount("/dev/pts/ptmx", "/dev/ptmx", nullptr, MS_BIND, nullptr) != 0)
        give_up("bind /dev/ptmx");
}

// Programs resolve names with these directories below /run. Through them a program reaches nobody
// else, so a job may see them.
constexpr const char* always_kept = "systemd/resolve resolvconf NetworkManager connman";

struct Kept {
    char name[64];
    int fd;
};

// Opens those of these names that are there. Returns how many.
size_t open_kept(const char* names, Kept* kept, size_t count, size_t max) {
    while (*names != 0 && count < max) {
        const size_t n = strcspn(names, " ");
        Kept& k = kept[count];
        if (n > 0 && n < sizeof k.name) {
            char path[80];
            memcpy(k.name, names, n);
            k.name[n] = 0;
            snprintf(path, sizeof path, "/run/%.63s", k.name);
            k.fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (k.fd >= 0) ++count;
        }
        names += n + strspn(names + n, " ");
    }
    return count;
}

bool bind_kept(const Kept& k) {
    char path[80], link[32];
    snprintf(path, sizeof path, "/run/%.63s", k.name);
    for (char* slash = strchr(path + 5, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0755) != 0 && errno != EEXIST) return false;
        *slash = '/';
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", k.fd);
    return (mkdir(path, 0755) == 0 || errno == EEXIST) &&
           mount(link, path, nullptr, MS_BIND, nullptr) == 0 &&
           mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
                 nullptr) == 0;
}

// Gives the capsule a /run of its own: the sockets in the node's (a user's services, a container
// engine) would start processes outside of the capsule. CRIU, too, keeps there what it has learnt
// of the kernel, and does so on a tmpfs only.
void set_up_run(const char* keep) {
    constexpr size_t kept_max = 32;
    static Kept kept[kept_max];
    if (access("/run", F_OK) != 0) return;
    size_t count = open_kept(always_kept, kept, 0, kept_max);
    count = open_kept(keep, kept, count, kept_max);
    if (mount("souk", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0)
        give_up("mount /run");
    g.own_run = true;
    if (mkdir("/run/lock", 01777) != 0 || chmod("/run/lock", 01777) != 0 ||
        mkdir("/run/user", 0755) != 0)
        give_up("fill /run");
    for (size_t i = 0; i < count; ++i) {
        if (!bind_kept(kept[i])) say(kept[i].name, errno);  // a job can do without
        close(kept[i].fd);
    }
}

// Names that mean something among the components of its job alone. A file below /run, so that it is
// the capsule's own; a job without it goes on.
constexpr const char* hosts_file = "/run/souk.hosts";

bool copy_hosts() {
    const int from = openat(g.dir, "hosts", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const int to = open(hosts_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = from >= 0 && to >= 0 && fchmod(to, 0644) == 0;
    char bytes[4096];
    for (ssize_t n = 1; good && n > 0;) {
        n = read(from, bytes, sizeof bytes);
        good = n >= 0 && write_all(to, bytes, static_cast<size_t>(n));
    }
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return good;
}

void set_up_hosts() {
    if (!copy_hosts() || mount(hosts_file, "/etc/hosts", nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, "/etc/hosts", nullptr,
              MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0)
        say("/etc/hosts", errno);
}

// Reads DIR/cpus: how many CPUs the job may have. 0: all of the machine's.
unsigned cpus_of_job() {
    char text[16] = {};
    const int fd = openat(g.dir, "cpus", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    cpu_set_t all;
    if (n <= 0 || sched_getaffinity(0, sizeof all, &all) != 0) return 0;
    const unsigned long cpus = strtoul(text, nullptr, 10);
    return cpus < static_cast<unsigned long>(CPU_COUNT(&all)) ? static_cast<unsigned>(cpus) : 0;
}

// Copies the first `cpus` paragraphs of /proc/cpuinfo, which has one for each CPU.
bool copy_cpu_list(int to, unsigned cpus) {
    const int from = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    bool good = from >= 0, line_is_empty = true;
    char bytes[4096];
    for (ssize_t n = 1; good && cpus > 0 && n > 0;) {
        n = read(from, bytes, sizeof bytes);
        ssize_t end = 0;
        for (; end < n && cpus > 0; ++end) {
            const bool line_ends = bytes[end] == '\n';
            if (line_ends && line_is_empty) --cpus;
            line_is_empty = line_ends;
        }
        good = n >= 0 && write_all(to, bytes, static_cast<size_t>(end > 0 ? end : 0));
    }
    if (from >= 0) close(from);
    return good;
}

// Lays a file of the capsule's own /run over one of the kernel's.
template <class Fill>
void show_instead(const char* own, const char* kernels, Fill&& fill) {
    const int to = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    const bool good = to >= 0 && fchmod(to, 0444) == 0 && fill(to);
    if (to >= 0) close(to);
    if (!good || mount(own, kernels, nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, kernels, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
              nullptr) != 0)
        say(kernels, errno);  // a job can do without
}

// A program that counts the CPUs begins a thread for each, so it finds as many as the job may have.
// It runs on any of the machine's: no CPU is its own.
void set_up_cpus() {
    const unsigned cpus = cpus_of_job();
    if (cpus == 0) return;
    show_instead("/run/souk.cpus", SOUK_CPUS_ONLINE, [&](int to) {
        char text[16];
        const int n = cpus == 1 ? snprintf(text, sizeof text, "0\n")
                                : snprintf(text, sizeof text, "0-%u\n", cpus - 1);
        return write_all(to, text, static_cast<size_t>(n));
    });
    show_instead("/run/souk.cpuinfo", SOUK_CPUS_LISTED,
                 [&](int to) { return copy_cpu_list(to, cpus); });
}

// These numbers of open_tree(2), move_mount(2) and mount_setattr(2) are those of <linux/mount.h>,
// which cannot stand beside <sys/mount.h>.
constexpr unsigned tree_clone = 1, tree_cloexec = O_CLOEXEC, tree_recursive = 0x8000,
                   move_from_fd = 4;
struct MountChange {
    uint64_t set, clear, propagation, user_namespace;
};
constexpr uint64_t change_nosuid = 2;

int clone_tree(const char* path, unsigned how) {
    const long tree = syscall(SYS_open_tree, AT_FDCWD, path, tree_clone | tree_cloexec | how);
    if (tree < 0) give_up(path);
    return static_cast<int>(tree);
}

// This node's tree below `path` as it is before anything of the capsule's lies over it. No program
// gets rights from its file there: elsewhere it would not (MS_NOSUID below).
int take_tree(const char* path) {
    const int tree = clone_tree(path, tree_recursive);
    const MountChange nosuid = {change_nosuid, 0, 0, 0};
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | tree_recursive, &nosuid,
                sizeof nosuid) != 0)
        give_up(path);
    return tree;
}

// The home says what is there: a link on the way would lead out of the job's root. False: nothing
// of that kind is there.
bool lay_over_if_there(const char* path, int tree, uint64_t kind) {
    constexpr uint64_t no_links = 0x04 | 0x02;  // RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS
    constexpr unsigned to_empty_path = 0x40;
    const struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_CLOEXEC | kind, 0, no_links};
    char over[sizeof SOUK_FILES_ROOT + 256];
    snprintf(over, sizeof over, SOUK_FILES_ROOT "%s", path);
    const long to = syscall(SYS_openat2, AT_FDCWD, over, &how, sizeof how);
    const bool laid =
        to >= 0 && syscall(SYS_move_mount, tree, "", to, "", move_from_fd | to_empty_path) == 0;
    const int error = errno;
    if (to >= 0) close(static_cast<int>(to));
    close(tree);
    errno = error;
    return laid;
}

void lay_over(const char* path, int tree) {
    if (!lay_over_if_there(path, tree, O_DIRECTORY)) give_up(path);
}

// Lays a directory of the machine over the home's tree.
void bind_over(const char* path, unsigned how) { lay_over(path, clone_tree(path, how)); }

void mount_files(bool checks) {
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other%s",
             SOUK_FILES_FD, checks ? ",default_permissions" : "");
    if (mount("souk", SOUK_FILES_ROOT, "fuse.souk", MS_NOSUID | MS_NODEV, options) != 0)
        give_up("mount " SOUK_FILES_ROOT);
}

void lay_all_over(const Wishes& wishes, const int* over) {
    bind_over("/proc", tree_recursive);  // with what set_up_cpus has laid over it
    bind_over("/sys", tree_recursive);
    bind_over("/dev", tree_recursive);
    bind_over("/run", tree_recursive);
    if (umount2(SOUK_FILES_ROOT SOUK_FILES_ROOT, MNT_DETACH) != 0)  // it came with /run
        give_up("umount " SOUK_FILES_ROOT SOUK_FILES_ROOT);
    for (size_t i = 0; i < wishes.overs; ++i) lay_over(wishes.over[i], over[i]);
    if (wishes.hosts && access(hosts_file, F_OK) == 0 &&
        !lay_over_if_there("/etc/hosts", clone_tree(hosts_file, 0), 0))
        say("/etc/hosts", errno);
}

// Does the same where the home serves the tree. Each name that is looked up then waits for the
// home, also when this process is killed. So a child looks the names up, without the mount's
// device: the device closes when this process ends, and with it end the mount and the wait.
void lay_all_over_served(const Wishes& wishes, const int* over) {
    const pid_t child = fork();
    if (child < 0) give_up("fork");
    if (child == 0) {
        close(SOUK_FILES_FD);
        close(SOUK_FILES_FD + 1);
        read_ahead(SOUK_FILES_ROOT);
        lay_all_over(wishes, over);
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) give_up("wait for its files");
    if (status != 0) _exit(1);  // it has said why
    for (size_t i = 0; i < wishes.overs; ++i) close(over[i]);
}

// The job's root. `tree` is of this node, if this is its home; else below 0.
void set_up_files(const Wishes& wishes, int tree) {
    int over[overs_max];
    for (size_t i = 0; i < wishes.overs; ++i) over[i] = take_tree(wishes.over[i]);
    if (mkdir(SOUK_FILES_ROOT, 0755) != 0) give_up("make " SOUK_FILES_ROOT);
    if (tree < 0) {
        mount_files(wishes.checks);
        lay_all_over_served(wishes, over);
        g.served = true;
    } else {
        if (syscall(SYS_move_mount, tree, "", AT_FDCWD, SOUK_FILES_ROOT, move_from_fd) != 0)
            give_up("mount " SOUK_FILES_ROOT);
        close(tree);
        lay_all_over(wishes, over);
    }
    g.files = true;
}

// An empty directory lies over it, also where others are laid over the job's root later.
void hide(const char* path) {
    if (mount("souk", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=555") !=
            0 &&
        errno != ENOENT)
        give_up(path);
}

void set_up_mounts(const Wishes& wishes) {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        give_up("make mounts private");
    for (size_t i = 0; i < wishes.hidden; ++i) hide(wishes.hide[i]);
    const int tree = wishes.tree ? take_tree("/") : -1;
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
        give_up("mount /proc");
    set_up_groups();
    if (mount("souk", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
        give_up("mount /dev/shm");
    set_up_run(wishes.run_keep);
    if (wishes.hosts) set_up_hosts();
    set_up_cpus();
    if (wishes.private_tmp)
        if (const char* failed = mount_tmp()) give_up(failed);
    set_up_terminals();
    if (wishes.files || wishes.tree) set_up_files(wishes, tree);
    note_mounts();
}

void set_up_loopback() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {};
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) give_up("set the loopback device up");
    close(fd);
}

void set_up_socket() {
    g.listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, SOUK_CTL_NAME);
    if (g.listen < 0 || fchdir(g.dir) != 0) give_up("open the control socket");
    unlink(SOUK_CTL_NAME);
    const mode_t mask = umask(0177);  // by no name: that may be another file by now
    if (bind(g.listen, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0 ||
        listen(g.listen, 4) != 0)
        give_up("open the control socket");
    umask(mask);
    if (chdir("/") != 0) give_up("go to /");
}
}  // namespace

const char* mount_tmp() {
    g.private_tmp = true;
    return mount("souk", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0 ? nullptr
                                                                                  : "mount /tmp";
}

// Programs put their sockets there, and it is no secret whose it is.
void make_run_user(uint32_t uid, uint32_t gid) {
    char path[32];
    snprintf(path, sizeof path, "/run/user/%u", uid);
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || chown(path, uid, gid) != 0) say(path, errno);
}

void set_up(const Wishes& wishes) {
    const char* ping_groups = wishes.ping_groups;
    g.own_net = ping_groups != nullptr;
    set_up_socket();
    set_up_mounts(wishes);
    if (g.own_net) set_up_loopback();
    if (g.own_net) set_ping_groups(ping_groups);
    // Every signal waits in the mask; children are all that matters. The job's own mask is cleared
    // before its exec.
    sigset_t all, child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    for (int s = 1; s < NSIG; ++s) signal(s, SIG_DFL);
    g.child_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (g.child_signals < 0) give_up("signalfd");
    umask(0);
    set_nonblocking(g.conn);
}

}  // namespace souk::init
