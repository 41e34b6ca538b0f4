// SPDX-License-Identifier: GPL-2.0-or-later
// RestoreTurn: what a restore waits for before CRIU may begin it: the ends of the job's stdio from
// souk-init, and CRIU's names of them from the image. Usually that is when souk-init has loaded
// what waits there; early, when the image says all that CRIU needs; late, when the job is told to
// run: locks of files that both nodes share are the source's as long as it is held.
//
// Owned by the Cell. Fails nothing: it says when.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk {

class RestoreTurn {
  public:
    // souk-init has made them.
    void prepared(std::vector<Fd> ends) { ends_ = std::move(ends); }
    bool is_prepared() const { return !ends_.empty(); }
    std::vector<int> ends() const {
        std::vector<int> numbers;
        for (const Fd& fd : ends_) numbers.push_back(fd.get());
        return numbers;
    }
    void close_ends() { ends_.clear(); }

    // CRIU's names of the ends. early: before souk-init has loaded what waits there.
    void named(std::vector<std::string> keys, bool early) {
        keys_ = std::move(keys);
        if (early) when_ = When::early;
    }
    bool has_names() const { return keys_.has_value(); }
    std::vector<std::string> take_names() { return *std::exchange(keys_, std::nullopt); }
    bool early() const { return when_ == When::early; }

    // The image has locks: it waits for the word to run.
    void put_off() { when_ = When::late; }
    bool late() const { return when_ == When::late; }

  private:
    enum class When : uint8_t { loaded, early, late } when_ = When::loaded;
    std::vector<Fd> ends_;
    std::optional<std::vector<std::string>> keys_;
};

}  // namespace souk
