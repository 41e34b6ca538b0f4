// SPDX-License-Identifier: GPL-2.0-or-later
// CapsuleLink: the connection of a cell to souk-init, on the loop: what comes is given to its
// owner, and what is told goes out as the socket takes it. Owned by the Cell, which connects again
// when it is lost. What fails: the connection; then every message is refused until open().
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "agentd/cell/job_stdio.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/capsule_client.hpp"

namespace souk {

class CapsuleLink final : public StdioLine {
  public:
    struct Hooks {
        // One message, in order. After `welcome` came, answers() holds.
        std::function<void(CapsuleClient::Event&)> event;
        // It is called after all messages of one look at the socket.
        std::function<void()> read;
        // The connection is closed already.
        std::function<void(const std::string& why)> lost;
    };
    CapsuleLink(Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}

    Status open(Fd connection);
    void close();
    explicit operator bool() const { return static_cast<bool>(client_); }
    // The capsule is gone: words about the job's end and its output that still lie in the socket
    // are given to `event`; then the link is closed.
    void last_words();

    // One message of CapsuleClient. Error: there is no connection, or it takes no more.
    template <typename... Parameters, typename... Values>
    Status tell(Status (CapsuleClient::*message)(Parameters...), Values&&... values) {
        if (!client_) return fail("its capsule does not answer");
        Status told = (client_.*message)(std::forward<Values>(values)...);
        update_watch();
        return told;
    }

    bool answers() const override { return client_ && welcomed_; }
    void ask_again(uint64_t stdout_from, uint64_t stderr_from) override {
        (void)tell(&CapsuleClient::hello, stdout_from, stderr_from);
    }
    void ack(uint32_t stream, uint64_t offset) override {
        (void)tell(&CapsuleClient::ack, stream, offset);
    }
    Status input(uint64_t offset, std::string_view bytes) override {
        return tell(&CapsuleClient::input, offset, bytes);
    }
    Status input_eof(uint64_t offset) override { return tell(&CapsuleClient::input_eof, offset); }

  private:
    void readable();
    void lose(const std::string& why);
    void update_watch();

    Loop& loop_;
    Hooks hooks_;
    CapsuleClient client_;
    Watch watch_;
    bool welcomed_ = false;
};

}  // namespace souk
