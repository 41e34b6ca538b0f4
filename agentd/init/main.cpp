// SPDX-License-Identifier: GPL-2.0-or-later
// souk-init [as UID gid GID [in GID]...] [net GROUPS] [tmp] [hosts] [files | tree]
// [over DIRECTORY]... [run NAMES]: started by souk-root as PID 1 of fresh namespaces, with the
// state directory as fd 3 and the first connection as fd 4. It is of no use elsewhere.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agentd/init/init.hpp"
#include "kernel/base/version.hpp"

namespace souk::init {

Init g = {};

namespace {
void begin() {
    g.dir = 3;
    g.conn = 4;
    fcntl(g.dir, F_SETFD, FD_CLOEXEC);
    fcntl(g.conn, F_SETFD, FD_CLOEXEC);
    g.gate = g.exec_pipe = g.master = g.slave = g.in.fd = g.in.kept_read = g.affinity = g.queues =
        g.lease_timer = g.freezer = -1;
    for (int& fd : g.job_end) fd = -1;
    g.in.eof_at = UINT64_MAX;
    g.in.told = g.started_told = g.stop_told = g.failure_told = g.exit_told = g.held_told = true;
    bool good = queue_open(&g.in.wait, SOUK_INPUT_WINDOW, 0);
    for (Output& o : g.out) {
        o.fd = -1;
        good = queue_open(&o.kept, SOUK_OUTPUT_WINDOW, 0) && good;
    }
    if (!good) _exit(1);
}

[[noreturn]] void loop() {
    for (;;) {
        enum { signals, door, agent, exec, lease, input, output, error, count };
        struct pollfd p[count];
        for (pollfd& one : p) one = {-1, 0, 0};
        p[signals] = {g.child_signals, POLLIN, 0};
        p[door] = {g.listen, POLLIN, 0};
        // An answer that the socket has not taken is sent when the socket takes more. Until then no
        // other question is read.
        p[agent] = {g.conn,
                    static_cast<short>((g.greeted && g.answer.waits ? 0 : POLLIN) |
                                       (g.blocked ? POLLOUT : 0)),
                    0};
        p[exec] = {g.exec_pipe, POLLIN, 0};
        p[lease] = {g.lease_timer, POLLIN, 0};
        if (input_waits()) p[input] = {g.in.fd, POLLOUT, 0};
        // When the dump kills the job its pipes end, which is no end of the job's output.
        for (int i = 0; i < SOUK_STREAMS && g.state != SOUK_DRAINED_STATE; ++i)
            if (g.out[i].kept.len < SOUK_OUTPUT_WINDOW) p[output + i] = {g.out[i].fd, POLLIN, 0};
        if (poll(p, count, -1) < 0) continue;
        if (p[lease].revents) on_lease_timer();
        for (int i = 0; i < SOUK_STREAMS; ++i)
            if (p[output + i].revents) read_output(&g.out[i], false);
        if (p[exec].revents) on_exec_pipe();
        if (p[signals].revents) on_child();
        if (p[agent].revents & ~POLLOUT) on_record();  // also a broken connection
        if (p[door].revents) on_connect();
        if (input_waits()) write_input();
        check_ends();
        flush();
    }
}

uint32_t number_of(const char* word) { return static_cast<uint32_t>(strtoul(word, nullptr, 10)); }

// Notes the job's user. There is room for as many groups as there are words.
void is_for(uint32_t uid, int words) {
    g.of_one = true;
    g.of_uid = uid;
    g.of_groups = static_cast<uint32_t*>(calloc(static_cast<size_t>(words), sizeof *g.of_groups));
    if (!g.of_groups) _exit(1);
}
}  // namespace
}  // namespace souk::init

int main(int argc, char** argv) {
    using namespace souk::init;
    if (getpid() != 1) {
        if (souk::version_asked("souk-init", argc, argv)) return 0;
        fprintf(stderr,
                "souk-init: is started by agentd as the first process of a capsule; use srun to "
                "run a program\n");
        return 2;
    }
    begin();
    Wishes wishes;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "tmp") == 0) wishes.private_tmp = true;
        if (strcmp(argv[i], "files") == 0) wishes.files = true;
        if (strcmp(argv[i], "checks") == 0) wishes.checks = true;
        if (strcmp(argv[i], "tree") == 0) wishes.tree = true;
        if (strcmp(argv[i], "hosts") == 0) wishes.hosts = true;
        if (i + 1 == argc) continue;
        const char* const word = argv[i];
        if (strcmp(word, "as") == 0 && !g.of_one)
            is_for(number_of(argv[++i]), argc);
        else if (strcmp(word, "gid") == 0 && g.of_one)
            g.of_gid = number_of(argv[++i]);
        else if (strcmp(word, "in") == 0 && g.of_one)
            g.of_groups[g.of_group_count++] = number_of(argv[++i]);
        else if (strcmp(word, "net") == 0)
            wishes.ping_groups = argv[++i];
        else if (strcmp(word, "over") == 0 && wishes.overs < overs_max)
            wishes.over[wishes.overs++] = argv[++i];
        else if (strcmp(word, "hide") == 0 && wishes.hidden < hidden_max)
            wishes.hide[wishes.hidden++] = argv[++i];
        else if (strcmp(word, "run") == 0)
            wishes.run_keep = argv[++i];
    }
    syscall(SYS_close_range, SOUK_FILES_FD + (wishes.files ? 2U : 0U), ~0U, 0U);
    for (int fd = SOUK_FILES_FD; wishes.files && fd < SOUK_FILES_FD + 2; ++fd)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    set_up(wishes);
    loop();
}
