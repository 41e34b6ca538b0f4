// SPDX-License-Identifier: GPL-2.0-or-later
// LateAnswers: questions that may wait for others for as long as they like, asked by a thread each,
// so that who asks waits for a while at most. For a process that may not fork (bounded_work.hpp).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class LateAnswers {
  public:
    static constexpr int late_max = 8;  // questions without an answer: no more are asked then

    // ETIMEDOUT: it has taken longer, or too many have. Else what keeps a thread from being made.
    // What `ask` needs it has copies of: it may go on after that.
    template <class T>
    Result<T> within(Nanos limit, std::function<T()> ask) {
        auto answer = std::make_shared<std::optional<T>>();
        TRY(in_time(limit, [answer, ask = std::move(ask)] { *answer = ask(); }));
        return Result<T>(tl::in_place, std::move(**answer));
    }

  private:
    // Asks in a thread, and waits for it no longer than the limit.
    Status in_time(Nanos limit, std::function<void()> ask);
    std::shared_ptr<std::atomic<int>> late_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace souk
