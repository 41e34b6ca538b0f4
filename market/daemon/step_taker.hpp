// SPDX-License-Identifier: GPL-2.0-or-later
// StepTaker: has marketd decide, commit and send what came in. ReplyQueue: the answers that leave
// with the next step, once what they say is durable. Warnings: lines of this process's life for
// people. Owned by Marketd.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {

// A question that waits is answered at least so often with "ask again", so that nobody need take a
// long silence for an end.
inline constexpr Nanos answer_within = Nanos::from_s(5);

class StepTaker {
  public:
    // A step comes at the end of this iteration, or when the market has rested.
    virtual void wake() = 0;
    // One step is taken at once.
    virtual void step() = 0;

  protected:
    ~StepTaker() = default;
};

struct Reply {
    uint64_t connection = 0;
    wire::CtlReply reply;
};

class ReplyQueue {
  public:
    explicit ReplyQueue(StepTaker& steps) : steps_(steps) {}

    void add(uint64_t connection, wire::CtlReply reply) {
        put(connection, std::move(reply));
        steps_.wake();
    }
    void refuse(uint64_t connection, const wire::CtlRequest& request, Cause why) {
        add(connection, {request.request, false, std::move(why), {}, {}});
    }
    // Within a step, which sends it.
    void put(uint64_t connection, wire::CtlReply reply) {
        all_.push_back({connection, std::move(reply)});
    }
    // So much waits for that connection.
    size_t bytes(uint64_t connection) const {
        size_t sum = 0;
        for (const Reply& r : all_)
            if (r.connection == connection) sum += r.reply.json.size();
        return sum;
    }
    std::vector<Reply> take() { return std::exchange(all_, {}); }

  private:
    StepTaker& steps_;
    std::vector<Reply> all_;
};

class Warnings {
  public:
    explicit Warnings(Log& log) : log_(log) {}

    // Each text once.
    void add(std::string text) {
        constexpr size_t kept_max = 16;
        if (std::find(all_.begin(), all_.end(), text) != all_.end()) return;
        log_.limited("warn", Loop::now(), Level::warning, text);
        if (all_.size() < kept_max) all_.push_back(std::move(text));
    }
    const std::vector<std::string>& all() const { return all_; }

  private:
    Log& log_;
    std::vector<std::string> all_;
};

}  // namespace souk
