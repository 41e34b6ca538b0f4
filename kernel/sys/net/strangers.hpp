// SPDX-License-Identifier: GPL-2.0-or-later
// Strangers: the connections of the market's port whose peer has not proven yet that he is a node
// or an operator, joiners among them. So many may be at once, so many of one address, and so many
// may come of one address in a second. A newcomer is not turned away while another can go for him:
// first the oldest of his own address, else the oldest of the address that has the most; each has a
// second before that, since what it has said may not have been read yet. So whoever fills the port
// with connections that say nothing fills his own share alone. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernel/base/time.hpp"

namespace souk {

class Strangers {
  public:
    struct Bounds {
        size_t all = 4'096;
        size_t host = 256;  // at once, and on average those that come in a second
    };
    // So many seconds' worth of newcomers may come at once: all nodes of one address after a pause.
    static constexpr int64_t burst_s = 4;
    static constexpr Nanos grace = Nanos::from_s(1);

    explicit Strangers(Bounds bounds) : bounds_(bounds) {}

    struct Taken {
        bool in = false;               // false: too many come
        std::optional<uint64_t> goes;  // that connection ends for it
    };
    // `number`: of the connection, greater than all before.
    Taken take(uint64_t number, const std::string& host, Nanos now);
    // The connection has ended, or is no stranger's any more. Does nothing if it is not here.
    void gone(uint64_t number);
    // Returns a connection that came at or before that moment, the oldest first; none: there is
    // none.
    std::optional<uint64_t> since(Nanos then) const;
    size_t size() const { return all_.size(); }

  private:
    struct Host {
        std::map<uint64_t, Nanos> numbers;
        Nanos free_at;  // when one that comes is within the rate (kernel/base/rate_limit.hpp)
    };
    struct Stranger {
        std::string host;
        Nanos came;
    };
    bool comes_too_often(Host& host, Nanos now) const;
    void forget_quiet(Nanos now);

    const Bounds bounds_;
    std::map<uint64_t, Stranger> all_;
    std::map<std::string, Host> hosts_;
};

}  // namespace souk
