// SPDX-License-Identifier: GPL-2.0-or-later
// A souk-inspect of the tests' own: a child that has the rights of the test, and reads as the real
// one does or says what a test has it say.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "agentd/inspect/inspector.hpp"
#include "agentd/inspect/reading.hpp"
#include "kernel/sys/net/packets.hpp"

namespace souk::unit {

inline inspect::Inspectors::Start inspect_child(std::function<void(Fd)> work) {
    return [work = std::move(work)](Fd socket) -> Result<Pidfd> {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::alarm(120);
            // As after an exec: nothing else of the test's stays open.
            ::close_range(3, static_cast<unsigned>(socket.get()) - 1, 0);
            ::close_range(static_cast<unsigned>(socket.get()) + 1, ~0U, 0);
            work(std::move(socket));
            ::_exit(0);
        }
        return Pidfd::open(pid);
    };
}

// Has begun, and starts a process for each image.
inline void begin_to_read(const Fd& control) {
    (void)send_packet(control.get(), pack(inspect::Answer(inspect::Refusal{})));
}
inline inspect::Inspectors::Start reads_images() {
    return inspect_child([](Fd control) {
        begin_to_read(control);
        inspect::start_readers(std::move(control), [] { return Status{}; });
    });
}
// Somebody has taken it over: each question gets what `say` says.
using SayOfImage = std::function<void(int socket, inspect::FileKind question)>;
inline inspect::Inspectors::Start says_of_images(SayOfImage say) {
    return inspect_child([say = std::move(say)](const Fd& control) {
        constexpr Nanos long_enough = Nanos::from_s(100);
        begin_to_read(control);
        ::signal(SIGCHLD, SIG_IGN);
        while (const auto word = wait_for_packet(control.get(), 64, long_enough)) {
            if (::fork() != 0) continue;
            while (const auto asked = wait_for_packet(word->descriptor.get(), 64, long_enough))
                say(word->descriptor.get(), *inspect::parse_question(asked->bytes));
            ::_exit(0);
        }
    });
}

}  // namespace souk::unit
