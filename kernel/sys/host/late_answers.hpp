// SPDX-License-Identifier: GPL-2.0-or-later
// LateAnswers: questions that may wait for others for as long as they like, asked by a thread each,
// so that who asks waits for a while at most. For a process that may not fork (bounded_work.hpp).
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "kernel/base/time.hpp"

namespace souk {

class LateAnswers {
  public:
    static constexpr int late_max = 8;  // questions without an answer: no more are asked then

    // None: it has taken longer, or too many have. What `ask` needs it has copies of: it may go on
    // after that.
    template <class T>
    std::optional<T> within(Nanos limit, std::function<T()> ask) {
        auto question = std::make_shared<Question<T>>();
        question->ask = std::move(ask);
        question->late = late_;
        {
            const std::lock_guard locked(late_->mutex);
            if (late_->count >= late_max) return std::nullopt;
            ++late_->count;
        }
        auto* const given = new std::shared_ptr<Question<T>>(question);
        pthread_t thread;
        if (::pthread_create(&thread, nullptr, answer<T>, given) != 0) {
            delete given;
            const std::lock_guard locked(late_->mutex);
            --late_->count;
            return std::nullopt;
        }
        ::pthread_detach(thread);
        std::unique_lock locked(question->mutex);
        question->answered.wait_for(locked, std::chrono::nanoseconds(limit.ns),
                                    [&] { return question->answer.has_value(); });
        return question->answer;
    }

  private:
    struct Late {
        std::mutex mutex;
        int count = 0;
    };
    template <class T>
    struct Question {
        std::function<T()> ask;
        std::shared_ptr<Late> late;
        std::mutex mutex;
        std::condition_variable answered;
        std::optional<T> answer;
    };
    template <class T>
    static void* answer(void* given) {
        const std::unique_ptr<std::shared_ptr<Question<T>>> held(
            static_cast<std::shared_ptr<Question<T>>*>(given));
        Question<T>& question = **held;
        T said = question.ask();
        {
            const std::lock_guard locked(question.late->mutex);
            --question.late->count;
        }
        const std::lock_guard locked(question.mutex);
        question.answer = std::move(said);
        question.answered.notify_one();
        return nullptr;
    }
    std::shared_ptr<Late> late_ = std::make_shared<Late>();
};

}  // namespace souk
