// SPDX-License-Identifier: GPL-2.0-or-later
// The answer to `report`: the sums of market/store/usage.hpp by user, node or day. It is added up a
// piece at a time, so that whoever owns it does other things between two pieces.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/store/usage.hpp"

namespace souk {

class UsageReport {
  public:
    static constexpr size_t rows_max = 100'000, piece = 1'000;

    // `filters`: by=user|node|day, since=UNIX_SECONDS, until=UNIX_SECONDS. Who is not root is told
    // of the own use alone.
    static Result<UsageReport> begin(const std::vector<std::string>& filters, uint32_t uid);
    // Adds up at most `piece` rows more. False: there were no more. Errors: too many, or the
    // database's own.
    Result<bool> step(const UsageBook& book);
    // When all are added up. Errors: it is too long.
    Result<std::string> text() const;

  private:
    struct Sum {
        double run = 0, cpu = 0, waited = 0, ran = 0, asked_mb = 0, slowdown = 0;
        int64_t jobs = 0, failed = 0, moves = 0, freezes = 0;
        Money paid, earned;
        void add(const UsageRecord& u);
    };
    static void write(JsonWriter& w, const std::string& by, const std::string& name, const Sum& s);

    uint32_t uid_ = 0;
    std::string by_ = "user";
    int64_t since_ = 0, until_ = INT64_MAX;  // days
    std::map<std::string, Sum> sums_;
    std::string key_;  // of the row that was added last
    size_t seen_ = 0;
};

}  // namespace souk
