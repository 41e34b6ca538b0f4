// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
[[noreturn]] void give_up(const char* what) {
    const int code = errno;
    say(what, code);
    send_record(SOUK_FAILED, 0, code, 0, 0, what, strlen(what));
    _exit(1);
}

void set_up_mounts() {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) give_up("make mounts private");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) give_up("mount /proc");
    if (mount("souk", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0) give_up("mount /dev/shm");
    // CRIU keeps what it learnt of the kernel in /run, on a tmpfs only. Where the host's /run is one, all capsules share it.
    struct statfs fs;
    if (statfs("/run", &fs) == 0 && fs.f_type != TMPFS_MAGIC && mount("souk", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0)
        give_up("mount /run");
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
    if (bind(g.listen, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0 ||
        chmod(SOUK_CTL_NAME, 0600) != 0 || listen(g.listen, 4) != 0)
        give_up("open the control socket");
    if (chdir("/") != 0) give_up("go to /");
}
}  // namespace

void set_up(bool own_net) {
    set_up_socket();
    set_up_mounts();
    if (own_net) set_up_loopback();
    // Every signal waits in the mask; children are all that matters. The job's own mask is cleared before its exec.
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
