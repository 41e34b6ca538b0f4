// SPDX-License-Identifier: GPL-2.0-or-later
// Line: questions to a market on another host over one connection, which is kept between them. A
// thread of its own makes it when it is asked for, answers its pings, and closes it when nothing
// was asked for a while; it is made anew with the certificate as it then lies there. Owned by Feed;
// ask() may be called by any thread.
#pragma once

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agentd/wire/codec.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"
#include "tools/common/remote.hpp"

namespace souk::tools::web {

class Line {
  public:
    explicit Line(Remote remote);
    ~Line();
    Line(const Line&) = delete;

    // Asks as ask_market_part_at() does. Errors: also that too many wait already, or no answer in
    // time.
    Result<ListPart> ask(const std::string& verb, const std::vector<std::string>& args,
                         const std::string& after, Nanos limit);

  private:
    struct Question {
        wire::CtlRequest request;
        std::promise<Result<wire::CtlReply>> answer;
    };
    void run();
    void take();
    Status connect();
    Status connected(Result<Fd> socket);
    void frame(const wire::Frame& frame);
    void send_all();
    void broken(const Error& why);
    void rest();

    const Remote remote_;
    Fd wake_;  // an eventfd
    std::mutex mutex_;
    std::deque<Question> asked_;  // not taken by the thread yet
    size_t waiting_ = 0;          // these, and those that it has taken
    bool stop_ = false;

    // The thread's own.
    std::optional<Loop> loop_;
    std::shared_ptr<wire::Tls> tls_;
    Connect connecting_;
    std::unique_ptr<wire::Channel> channel_;
    bool welcomed_ = false;
    uint64_t last_ = 0;            // number of a question on this connection
    std::deque<Question> unsent_;  // until it stands
    std::map<uint64_t, Question> unanswered_;
    Nanos opened_;
    Timer idle_;
    std::thread thread_;
};

}  // namespace souk::tools::web
