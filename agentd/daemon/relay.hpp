// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: two sockets whose bytes go from one to the other, both ways, as they are: of two nodes
// that talk TLS through this gateway. What one end does not take yet is kept, up to one buffer, and
// nothing more is read of the other end until it has gone. When one end says no more, the other
// hears so, and may go on; when both have, or one breaks, `ended` is called, once.
//
// The bytes are copied (recv, send), not spliced: a pipe for each way would cost four descriptors
// more, and a user may have few pages in pipes. Owned by the Gateway.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class Relay {
  public:
    static constexpr size_t buffer_bytes = 64 << 10;
    // `buffer`: of so many bytes, for all relays of a loop; it outlives them. `ended` may drop this
    // object only later (Loop::defer).
    Relay(Loop& loop, Bytes& buffer, Fd one, Fd other, std::function<void()> ended);
    Relay(const Relay&) = delete;
    Status begin();

    uint64_t bytes() const { return bytes_; }  // both ways
    Nanos moved() const { return moved_; }     // when something went last
    bool is_half_over() const { return !ends_[0].says_more || !ends_[1].says_more; }

  private:
    struct End {
        Fd socket;
        Watch watch;
        std::string waits;      // for this end
        bool says_more = true;  // it may send yet
        bool told = false;      // it knows that the other end sends no more
    };
    void ready(size_t end, short events);
    Status pump(End& from, End& to);
    Status flush(End& to);
    Status tell_end(const End& from, End& to);
    void arm();
    void end();

    Loop& loop_;
    Bytes& buffer_;
    std::array<End, 2> ends_;
    std::function<void()> ended_;
    uint64_t bytes_ = 0;
    Nanos moved_;
};

}  // namespace souk
