// SPDX-License-Identifier: GPL-2.0-or-later
// Feed: tells those who watch when there may be something new, and asks the market for them.
//
// Answers are kept for a moment, so that any number of watchers of one page cost the market one
// question. While nobody watches, nothing is asked. One owner; every function may be called by any
// thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernel/base/time.hpp"
#include "tools/common/table.hpp"
#include "tools/souk-web/line.hpp"
#include "tools/souk-web/options.hpp"
#include "tools/web/pages.hpp"

namespace souk::tools::web {

class Feed {
  public:
    explicit Feed(const Options& options);
    ~Feed();
    Feed(const Feed&) = delete;
    Feed& operator=(const Feed&) = delete;

    // An object, or a whole list. Errors: the market's own words, or that it does not answer.
    Result<Json> ask(const std::string& verb, const std::vector<std::string>& args);
    // One part of a list; `after` as the part before said, or empty.
    struct Part {
        Json rows;
        std::string next;
    };
    Result<Part> part(const std::string& verb, const std::vector<std::string>& args,
                      const std::string& after);
    // An order: asked once and not kept, and what was kept from before is not answered any more.
    Result<Json> tell(const std::string& verb, const std::vector<std::string>& args);

    struct Tick {
        uint64_t number = 0;
        std::string trouble;  // why the market does not answer; empty: it does
    };
    // Waits for a tick above `seen`; nothing: none came in this time, or it ends.
    std::optional<Tick> wait(uint64_t seen, Nanos limit);
    // One more who watches, if there are less than so many.
    bool join(size_t watchers_max);
    void leave();
    void stop();
    bool stopped() const;

  private:
    void run();
    Result<Part> once(const std::string& verb, const std::vector<std::string>& args,
                      const std::string& after, Nanos limit) const;

    struct Kept {
        Nanos at;
        Result<Part> part;
    };
    const Options& options_;
    const std::unique_ptr<Line> line_;  // null: the market is on this host
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Kept> kept_;
    // The market lets its questions wait. Until then none is asked.
    std::optional<Error> silent_;
    Nanos silent_until_;
    Tick tick_;
    size_t watchers_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace souk::tools::web
