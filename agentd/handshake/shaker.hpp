// SPDX-License-Identifier: GPL-2.0-or-later
// Shaker: what souk-handshake does once it has no rights any more. It gets an identity, and then
// connections; of each it reads one record of TLS after the other, and no byte behind the last one
// of the handshake. It gives back who the peer is and the keys of the session, or one line. How
// many handshakes are under way, how long each takes and how many bytes it has is bounded. It ends
// with the socket to agentd.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "agentd/handshake/handover.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/wire/tls.hpp"

namespace souk::handshake {

class Shaker {
  public:
    // `control`: the socket of packets to agentd.
    static Result<std::unique_ptr<Shaker>> open(Fd control);
    // Works until agentd is gone. Fails if agentd sends what is no packet.
    Status run();
    // Waits at most that long, and deals once with what is ready then; false: agentd is gone.
    Result<bool> step(Nanos wait_max);

  private:
    struct Shaking {
        Fd socket;
        std::unique_ptr<wire::TlsHandshake> tls;
        Bytes record;      // its header, or its body, as far as it is here
        size_t wants = 0;  // so many bytes of it
        bool body = false;
        Bytes unsent;
        Nanos ends;
    };
    Shaker(Fd control, Fd poll) : control_(std::move(control)), poll_(std::move(poll)) {}
    Result<bool> hear();
    Status asked(const Asked& asked, Fd descriptor);
    Status take_identity(int file);
    void begin(const Shake& how, Fd socket);
    void examine(uint64_t number, int file);
    void turn(uint64_t number, Shaking& s);
    Result<bool> read_some(Shaking& s);
    Status send_some(Shaking& s);
    Status taken(Shaking& s);
    void drop(uint64_t number);
    void end(uint64_t number, const Told& told);
    void fail_with(uint64_t number, const Error& why);
    void end_late(Nanos now);
    void tell(const Told& told);

    Fd control_, poll_;
    std::unique_ptr<wire::Tls> tls_;
    std::map<uint64_t, Shaking> shaking_;
    std::deque<std::pair<Nanos, uint64_t>> ends_;  // of all, in order
    std::optional<Error> broken_;
};

}  // namespace souk::handshake
