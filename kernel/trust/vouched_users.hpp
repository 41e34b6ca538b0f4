// SPDX-License-Identifier: GPL-2.0-or-later
// VouchedUsers: the users that a home may speak for, as its join token says: numbers, ranges of
// them, and names with their number ("20000-29999,alice=4321"). A name that stands there is that
// number's in the home's whole realm. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::trust {

class VouchedUsers {
  public:
    static constexpr size_t parts_max = 64, bytes_max = 2'048;

    // Each part is N, N-M or NAME=N. An error is one line that says what is wrong. Empty text:
    // nobody is named, which is everybody of the market's own realm.
    static Result<VouchedUsers> parse(std::string_view text);

    bool empty() const { return ranges_.empty(); }
    bool has(uint32_t uid) const;
    const std::map<std::string, uint32_t, std::less<>>& names() const { return names_; }
    // First and last of each.
    const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

  private:
    std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // with the numbers of names
    std::map<std::string, uint32_t, std::less<>> names_;
};

}  // namespace souk::trust
