// SPDX-License-Identifier: GPL-2.0-or-later
// TurnQueue: things that wait for their turn, each of an owner (a user, a peer). The owners take
// turns, so that one who brings many holds up nobody who brings one; the things of one owner go in
// the order in which they came. Both all things and those of one owner are bounded. Pure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace souk {

template <class T>
class TurnQueue {
  public:
    TurnQueue(size_t most, size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}

    // False: there is no room, and nothing has changed.
    bool add(const std::string& owner, T thing) {
        const auto known = waits_.find(owner);
        if (size_ >= most_ || (known != waits_.end() && known->second.size() >= most_of_one_))
            return false;
        if (known == waits_.end()) turns_.push_back(owner);
        waits_[owner].push_back(std::move(thing));
        ++size_;
        return true;
    }

    // The next one, taken out; nullopt: none waits.
    std::optional<T> next() {
        if (turns_.empty()) return std::nullopt;
        std::string owner = std::move(turns_.front());
        turns_.pop_front();
        const auto of = waits_.find(owner);
        T thing = std::move(of->second.front());
        of->second.pop_front();
        --size_;
        if (of->second.empty())
            waits_.erase(of);
        else
            turns_.push_back(std::move(owner));
        return thing;
    }

    size_t size() const { return size_; }

  private:
    const size_t most_, most_of_one_;
    std::map<std::string, std::deque<T>> waits_;  // no queue is empty
    std::deque<std::string> turns_;               // each owner of waits_ once
    size_t size_ = 0;
};

}  // namespace souk
