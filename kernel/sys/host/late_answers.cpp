// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/late_answers.hpp"

#include <pthread.h>
#include <semaphore.h>

#include <cerrno>
#include <ctime>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/loop/backoff.hpp"

namespace souk {
namespace {

// No descriptor: a process that has used up its own is told so by who is asked.
struct Answered {
    sem_t come;
    Answered() { ::sem_init(&come, 0, 0); }
    ~Answered() { ::sem_destroy(&come); }
    Answered(const Answered&) = delete;
    Answered& operator=(const Answered&) = delete;

    bool within(Nanos limit) {
        const timespec end = to_timespec(monotonic_now() + limit);
        int failed = 0;
        do failed = ::sem_clockwait(&come, CLOCK_MONOTONIC, &end);
        while (failed != 0 && errno == EINTR);
        return failed == 0;
    }
};

struct Question {
    std::function<void()> ask;
    std::shared_ptr<std::atomic<int>> late;
    std::shared_ptr<Answered> answered;  // who has asked may be gone
};

void* answer(void* given) {
    const std::unique_ptr<Question> question(static_cast<Question*>(given));
    question->ask();
    --*question->late;
    ::sem_post(&question->answered->come);
    return nullptr;
}

}  // namespace

Status LateAnswers::in_time(Nanos limit, std::function<void()> ask) {
    const auto late = [] { return fail_errno("an answer of others", ETIMEDOUT); };
    if (++*late_ > late_max) {
        --*late_;
        return late();
    }
    const auto answered = std::make_shared<Answered>();
    auto question = std::make_unique<Question>(Question{std::move(ask), late_, answered});
    pthread_t thread;
    if (const int failed = ::pthread_create(&thread, nullptr, answer, question.get())) {
        --*late_;
        return fail_errno("a thread", failed);
    }
    (void)question.release();  // the thread's now
    ::pthread_detach(thread);
    const bool came = answered->within(limit);
    (void)late_->load();  // what the thread wrote before it counted itself out is seen from here on
    return came ? Status() : late();
}

}  // namespace souk
