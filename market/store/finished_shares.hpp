// SPDX-License-Identifier: GPL-2.0-or-later
// FinishedShares: who has how many records of finished jobs, so that a home or a user that ends
// very many does not push out those of others. Room is made at the cost of the home that has most,
// and there of its user who has most: whoever has less than his part of the room keeps all of it.
// All nodes of another site are one home. Pure; part of FinishedJobs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "market/core/messages.hpp"

namespace souk {

class FinishedShares {
  public:
    struct Owner {
        std::string home;  // a node of this site, or a site
        uint32_t uid = 0;
        auto operator<=>(const Owner&) const = default;
    };
    static Owner owner_of(const JobReport& report);

    void add(const Owner& owner);
    void drop(const Owner& owner);
    uint64_t count() const { return count_; }
    // Says who has most. There is a record.
    Owner largest() const;

  private:
    struct Home {
        uint64_t count = 0;
        std::map<uint32_t, uint64_t> users;
        std::set<std::pair<uint64_t, uint32_t>> by_count;
    };
    void change(const Owner& owner, int64_t by);

    uint64_t count_ = 0;
    std::map<std::string, Home> homes_;
    std::set<std::pair<uint64_t, std::string>> by_count_;
};

}  // namespace souk
