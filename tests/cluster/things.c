// SPDX-License-Identifier: GPL-2.0-or-later
// Holds one of each thing whose state the kernel keeps, says "set", waits for a line and then says
// how it finds each: the same whatever came between. Arguments: a directory for its files; "locks",
// if it is to hold some.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static void must(long done, const char *what) {
    if (done < 0) perror(what), exit(3);
}

// Whatever waits there, one read each.
static void reads(const char *name, int fd) {
    char text[8192];
    printf("%s, flags %x:", name, fcntl(fd, F_GETFL) & ~0100000);
    for (struct pollfd p = {fd, POLLIN, 0}; poll(&p, 1, 0) == 1 && (p.revents & POLLIN);) {
        ssize_t n = read(fd, text, sizeof text);
        unsigned sum = 0;
        for (ssize_t i = 0; i < n; ++i) sum = sum * 31 + (unsigned char)text[i];
        printf(" %zd<", n);
        for (ssize_t i = 0; i < n && i < 40; ++i)
            text[i] >= ' ' ? printf("%c", text[i]) : printf("\\%o", text[i]);
        printf(">%x", sum);
        if (n < 0) break;
    }
    printf("\n");
}

static void modes(const char *name, int fd) {
    struct termios t;
    int packet = 0;
    must(tcgetattr(fd, &t), "tcgetattr");
    printf("%s: %x %x %x %x", name, t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag);
    for (int i = 0; i < NCCS; ++i) printf(" %d", t.c_cc[i]);
    printf(" %s packet %d\n", ttyname(fd) ? ttyname(fd) : "-",
           ioctl(fd, TIOCGPKT, &packet) == 0 ? packet : -1);
}

static void say(int fd, const char *text) { must(write(fd, text, strlen(text)), "write"); }

static struct pair { int master, slave; } lines, raw, packets, full, stopped;

static void open_pair(struct pair *p) { must(openpty(&p->master, &p->slave, 0, 0, 0), "openpty"); }

// A worker of the kernel carries bytes from one end to the other.
static void wait_for(int fd, int bytes) {
    for (int n = 0; n < bytes; usleep(1000)) must(ioctl(fd, FIONREAD, &n), "FIONREAD");
}

static void set_ptys(void) {
    struct termios t;
    // echoes; a line, one that an end of file has ended, an end of file, and half a line
    open_pair(&lines);
    say(lines.master, "one line\nhalf\004\004typed a");
    wait_for(lines.master, 21);
    open_pair(&raw);  // bytes both ways, some that a terminal would take for signals
    must(tcgetattr(raw.slave, &t), "tcgetattr");
    cfmakeraw(&t);
    must(tcsetattr(raw.slave, TCSANOW, &t), "tcsetattr");
    say(raw.master, "in\003\032\r\n");
    say(raw.slave, "out\r\n\003");
    open_pair(&packets);
    must(ioctl(packets.master, TIOCPKT, &(int){1}), "TIOCPKT");
    say(packets.slave, "in a packet\n");
    must(fcntl(packets.master, F_SETFL, O_NONBLOCK), "F_SETFL");
    open_pair(&full);  // more than a line discipline holds
    must(tcgetattr(full.slave, &t), "tcgetattr");
    cfmakeraw(&t);
    must(tcsetattr(full.slave, TCSANOW, &t), "tcsetattr");
    must(fcntl(full.master, F_SETFL, O_RDWR | O_NONBLOCK), "F_SETFL");
    must(fcntl(full.slave, F_SETFL, O_RDWR | O_NONBLOCK), "F_SETFL");
    char some[100];
    for (int i = 0; i < 100; ++i) some[i] = (char)('!' + i % 90);
    for (int i = 0; i < 60; ++i) must(write(full.master, some, sizeof some), "write");
    for (int i = 0; i < 60; ++i) must(write(full.slave, some, sizeof some), "write");
    open_pair(&stopped);  // output that was stopped
    say(stopped.slave, "before");
    say(stopped.master, "\023");
    for (struct pollfd p = {stopped.slave, POLLOUT, 0}; poll(&p, 1, 0) == 1; usleep(1000))
        p.revents = 0;
}

static void tell_ptys(void) {
    reads("pty: lines", lines.slave);
    say(lines.master, "head\n");
    wait_for(lines.slave, 12);
    reads("pty: the line", lines.slave);
    reads("pty: echo", lines.master);
    modes("pty: lines", lines.slave);
    reads("pty: raw in", raw.slave);
    reads("pty: raw out", raw.master);
    modes("pty: raw", raw.slave);
    reads("pty: packet", packets.master);
    modes("pty: packet", packets.slave);
    modes("pty: packet", packets.master);
    char all[2][8192];
    size_t got[2] = {0, 0};
    for (int i = 0; i < 2; ++i)
        for (struct pollfd p = {i ? full.master : full.slave, POLLIN, 0};
             got[i] < 6000 && poll(&p, 1, 5000) == 1;)
            got[i] += (size_t)read(p.fd, all[i] + got[i], sizeof all[i] - got[i]);
    printf("pty: full %zu %zu, the same %d\n", got[0], got[1], memcmp(all[0], all[1], 6000) == 0);
    struct pollfd p = {stopped.slave, POLLOUT, 0};
    printf("pty: stopped %d\n", poll(&p, 1, 0));
    reads("pty: stopped", stopped.master);
}

static int anonymous[2], fifo, stream[2], packet[2], named, events;
static const char *where;

static char *in_there(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", where, name);
    return path;
}

static void set_queues(void) {
    must(pipe2(anonymous, O_NONBLOCK), "pipe");
    say(anonymous[1], "through a pipe");
    must(mkfifo(in_there("fifo"), 0600), "mkfifo");
    must(fifo = open(in_there("fifo"), O_RDWR), "fifo");
    say(fifo, "hello");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, stream), "socketpair");
    say(stream[0], "through a socket");
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, packet), "socketpair");
    say(packet[0], "one"), say(packet[0], "two");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", in_there("named"));
    must(named = socket(AF_UNIX, SOCK_STREAM, 0), "socket");
    must(bind(named, (struct sockaddr *)&a, sizeof a), "bind");
    must(listen(named, 5), "listen");
    must(events = eventfd(41, EFD_NONBLOCK), "eventfd");
}

static void tell_queues(void) {
    reads("pipe", anonymous[0]);
    reads("fifo", fifo);
    reads("stream", stream[1]);
    reads("packets", packet[1]);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", in_there("named"));
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    printf("a socket by its name: %s\n",
           connect(client, (struct sockaddr *)&a, sizeof a) == 0 ? "connected" : strerror(errno));
    uint64_t n = 0;
    must(read(events, &n, sizeof n), "eventfd");
    printf("eventfd %lu\n", (unsigned long)n);
}

static timer_t timer;
static int timer_fd, ticking, handled;
static void handler(int number) { handled += number; }

static void set_times(void) {
    struct itimerval real = {{50, 0}, {5000, 0}};
    must(setitimer(ITIMER_REAL, &real, 0), "setitimer");
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    must(timer_create(CLOCK_MONOTONIC, &how, &timer), "timer_create");
    struct itimerspec each = {{60, 0}, {6000, 0}};
    must(timer_settime(timer, 0, &each, 0), "timer_settime");
    must(timer_fd = timerfd_create(CLOCK_MONOTONIC, 0), "timerfd");
    must(timerfd_settime(timer_fd, 0, &each, 0), "timerfd");
    must(ticking = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timerfd");
    each = (struct itimerspec){{0, 1000000}, {0, 1000000}};
    must(timerfd_settime(ticking, 0, &each, 0), "timerfd");
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 2; ++i) sigaddset(&set, SIGRTMIN + i);
    sigaddset(&set, SIGUSR1);
    must(sigprocmask(SIG_BLOCK, &set, 0), "sigprocmask");
    signal(SIGUSR2, handler);
    kill(getpid(), SIGUSR1);
    for (int i = 0; i < 3; ++i)
        sigqueue(getpid(), SIGRTMIN + i % 2, (union sigval){.sival_int = 100 + i});
}

static void tell_times(void) {
    struct itimerval real;
    struct itimerspec each;
    getitimer(ITIMER_REAL, &real);
    printf("itimer %ld %d\n", real.it_interval.tv_sec,
           real.it_value.tv_sec > 4000 && real.it_value.tv_sec <= 5000);
    timer_gettime(timer, &each);
    printf("timer %ld %d\n", each.it_interval.tv_sec,
           each.it_value.tv_sec > 5000 && each.it_value.tv_sec <= 6000);
    timerfd_gettime(timer_fd, &each);
    printf("timerfd %ld %d\n", each.it_interval.tv_sec,
           each.it_value.tv_sec > 5000 && each.it_value.tv_sec <= 6000);
    struct pollfd p = {ticking, POLLIN, 0};
    for (int i = 0; i < 3; ++i) {
        uint64_t n = 0;
        int ready = poll(&p, 1, 5000);
        printf("tick %d %d\n", ready, read(ticking, &n, sizeof n) == sizeof n && n > 0);
    }
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    printf("blocked %d %d\n", sigismember(&set, SIGUSR1), sigismember(&set, SIGUSR2));
    siginfo_t info;
    while (sigtimedwait(&set, &info, &(struct timespec){0, 0}) > 0)
        printf("signal %d %d\n", info.si_signo,
               info.si_signo == SIGUSR1 ? 0 : info.si_value.sival_int);
    raise(SIGUSR2);
    printf("handled %d\n", handled == SIGUSR2);
}

static int file, appended, locked[2];

static void set_files(int locks) {
    must(file = open(in_there("file"), O_RDWR | O_CREAT, 0600), "open");
    say(file, "0123456789");
    must(lseek(file, 4, SEEK_SET), "lseek");
    must(appended = open(in_there("file"), O_WRONLY | O_APPEND), "open");
    for (int i = 0; i < 2 && locks; ++i) {
        must(locked[i] = open(in_there(i ? "posix" : "flock"), O_RDWR | O_CREAT, 0600), "open");
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
        must(i ? fcntl(locked[i], F_SETLK, &l) : flock(locked[i], LOCK_EX), "lock");
    }
}

static void tell_files(int locks) {
    char one;
    printf("offset %ld", (long)lseek(file, 0, SEEK_CUR));
    say(appended, "x");
    must(read(file, &one, 1), "read");
    printf(" reads %c, %ld bytes\n", one, (long)lseek(file, 0, SEEK_END));
    if (!locks) return;
    fflush(stdout);
    if (fork() == 0) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 1};
        int other = open(in_there("flock"), O_RDWR);
        printf("flock %s", flock(other, LOCK_EX | LOCK_NB) == 0 ? "free" : "held");
        printf(" posix %s", fcntl(locked[1], F_SETLK, &l) == 0 ? "free" : "held");
        l.l_start = 20;
        printf(" beside it %s\n", fcntl(locked[1], F_SETLK, &l) == 0 ? "free" : "held");
        fflush(stdout);
        _exit(0);
    }
    wait(0);
}

int main(int argc, char **argv) {
    (void)argc;
    where = argv[1];
    const int locks = argv[2] != 0;
    // A file that grows in another's hand makes a restore fail.
    must(open(in_there("growing"), O_RDONLY | O_CREAT, 0600), "open");
    set_ptys(), set_queues(), set_times(), set_files(locks);
    say(1, "set\n");
    for (char c = 0; c != '\n';) {
        ssize_t n = read(0, &c, 1);
        if (n == 0) break;
    }
    tell_ptys(), tell_queues(), tell_times(), tell_files(locks);
    printf("end\n");
    return 0;
}
