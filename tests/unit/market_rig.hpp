// SPDX-License-Identifier: GPL-2.0-or-later
// MarketRig: a real marketd in a directory of its own, on a port that the kernel chose, and
// blocking peers that speak the protocol to it. Every wait has a limit; the daemon and the
// directory go with the rig.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sys/host/fd.hpp"
#include "kernel/wire/frame.hpp"
#include "market/wire/codec.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

std::string marketd_path();  // beside the test program

// One connection.
class MarketPeer {
  public:
    explicit MarketPeer(Fd socket) : socket_(std::move(socket)) {}
    void send_raw(std::string_view bytes);
    template <class T>
    void send(const T& message) {
        const Bytes frame =
            wire::encode_frame(wire::market_words, wire::frame_type<T>, wire::pack(message));
        send_raw(text_of(frame));
    }
    // Both in one packet, so that the market reads both before it does anything else.
    template <class A, class B>
    void send_together(const A& first, const B& second) {
        Bytes frames =
            wire::encode_frame(wire::market_words, wire::frame_type<A>, wire::pack(first));
        const Bytes more =
            wire::encode_frame(wire::market_words, wire::frame_type<B>, wire::pack(second));
        frames.insert(frames.end(), more.begin(), more.end());
        send_raw(text_of(frames));
    }
    // The same as send(), unless the market has closed the connection.
    template <class T>
    void send_if_open(const T& message) {
        const Bytes frame =
            wire::encode_frame(wire::market_words, wire::frame_type<T>, wire::pack(message));
        (void)::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    }
    // The next frame, with its body; nothing when the market has closed the connection. Fails the
    // test after 30 s.
    std::optional<std::pair<wire::FrameType, std::string>> next();
    // The next message of type T, others are passed over; fails the test when the connection ends
    // before.
    template <class T>
    T expect() {
        for (;;) {
            const auto frame = next();
            ck_assert_msg(frame.has_value(), "the connection ended");
            if (frame->first != wire::frame_type<T>) continue;
            auto message = wire::unpack<T>(frame->second);
            ck_assert_msg(message.has_value(), "%s",
                          message ? "" : message.error().message.c_str());
            return std::move(*message);
        }
    }
    // The text of the error frame that ends the connection.
    std::string refusal();

  private:
    Fd socket_;
    wire::FrameDecoder decoder_{wire::market_words, wire::Side::connector};
    std::string bytes_;
    size_t taken_ = 0;
};

class MarketRig {
  public:
    explicit MarketRig(std::string more_config = {});
    ~MarketRig();

    void start();  // and waits until it listens, on a port of its own
    void kill();   // SIGKILL
    int stop();    // SIGTERM; its exit status
    // Runs another marketd with `config` to its end; its exit status, and what it printed on
    // stderr.
    int run_other(const std::string& config, std::string& stderr_text) const;
    std::string config(const std::string& listen, const std::string& state,
                       const std::string& socket) const;

    // of the socket's buffer; 0: the kernel's choice
    MarketPeer connect_tcp(int receive_bytes = 0) const;
    MarketPeer connect_unix() const;
    // A connection that has said hello and been welcomed.
    MarketPeer agent(const std::string& node) const;
    MarketPeer tool() const;
    // One question, as the user who runs the test.
    wire::CtlReply ask(const std::string& verb, std::vector<std::string> args = {},
                       std::string after = {}) const;
    // Asks until the answer's JSON contains `text`; fails the test after 30 s.
    std::string ask_until(const std::string& verb, const std::vector<std::string>& args,
                          const std::string& text) const;

    const TempDir temp;
    const std::string& dir = temp.path;
    int port = 0;
    pid_t pid = 0;

  private:
    pid_t spawn(const std::string& config_path, const std::string& log_path) const;
    std::string more_;
};

}  // namespace souk::unit
