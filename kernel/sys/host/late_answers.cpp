// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/late_answers.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/loop/backoff.hpp"

namespace souk {
namespace {

struct Question {
    std::function<void()> ask;
    std::shared_ptr<std::atomic<int>> late;
    Fd answered;  // its own: who has asked may be gone
};

void* answer(void* given) {
    const std::unique_ptr<Question> question(static_cast<Question*>(given));
    question->ask();
    --*question->late;
    const uint64_t one = 1;
    (void)!::write(question->answered.get(), &one, sizeof one);
    return nullptr;
}

bool readable_within(int fd, Nanos limit) {
    const Nanos end = monotonic_now() + limit;
    for (;;) {
        const Nanos left = end - monotonic_now();
        pollfd p{fd, POLLIN, 0};
        const timespec wait = to_timespec(left.ns > 0 ? left : Nanos{});
        const int ready = ::ppoll(&p, 1, &wait, nullptr);
        if (ready > 0) {
            uint64_t count = 0;
            return ::read(fd, &count, sizeof count) == sizeof count;
        }
        if (ready == 0 || errno != EINTR) return false;
    }
}

}  // namespace

bool LateAnswers::in_time(Nanos limit, std::function<void()> ask) {
    if (++*late_ > late_max) {
        --*late_;
        return false;
    }
    const Fd answered(::eventfd(0, EFD_CLOEXEC));
    auto own = answered ? duplicate(answered.get()) : Result<Fd>(fail("no eventfd"));
    pthread_t thread;
    auto question = std::make_unique<Question>(Question{std::move(ask), late_, Fd()});
    if (own) question->answered = std::move(*own);
    if (!own || ::pthread_create(&thread, nullptr, answer, question.get()) != 0) {
        --*late_;
        return false;
    }
    (void)question.release();  // the thread's now
    ::pthread_detach(thread);
    const bool came = readable_within(answered.get(), limit);
    (void)late_->load();  // what the thread wrote before it counted itself out is seen from here on
    return came;
}

}  // namespace souk
