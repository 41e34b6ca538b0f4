// SPDX-License-Identifier: GPL-2.0-or-later
// Records: bytes under a (kind, key), as a daemon keeps them. Whoever writes them need not know
// whether they go into a database's next commit or wait in a Journal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernel/base/result.hpp"

namespace souk {

using RecordName = std::pair<std::string, std::string>;  // kind, key
// One commit writes these. A record without a value is erased.
using Changes = std::map<RecordName, std::optional<std::string>>;

class Records {
  public:
    virtual ~Records() = default;
    virtual void put(std::string_view kind, std::string_view key, std::string value) = 0;
    virtual void erase(std::string_view kind, std::string_view key) = 0;
    // One record's value, nothing if there is none. Changes that are not durable yet count.
    virtual Result<std::optional<std::string>> get(std::string_view kind,
                                                   std::string_view key) const = 0;

  protected:
    Records() = default;
    Records(const Records&) = default;
    Records(Records&&) = default;
    Records& operator=(const Records&) = default;
    Records& operator=(Records&&) = default;
};

}  // namespace souk
