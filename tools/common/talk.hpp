// SPDX-License-Identifier: GPL-2.0-or-later
// A conversation with a daemon on another host: one TLS connection, on an event loop of its own.
#pragma once

#include <functional>
#include <string>

#include "kernel/wire/channel.hpp"
#include "kernel/wire/messages.hpp"
#include "kernel/wire/tls.hpp"

namespace souk::tools {

struct Talk {
    std::string address;  // HOST:PORT
    trust::Role role;     // as whom the daemon must prove itself;
    std::string name;     // empty: whatever its name is
    wire::Words words = nullptr;
    wire::Hello hello;
    Nanos limit;                 // for all of it
    Nanos keepalive = Nanos{0};  // as ChannelOptions::keepalive
    std::string says = {};       // stands before what it says of its refusal
};

// Deals with a frame of the daemon (never an error text), and sends what comes next; true: that was
// all.
using OnFrame = std::function<Result<bool>(wire::Channel&, const wire::Frame&)>;

// Connects, says hello and hands on each frame until `on_frame` has all. Errors: no connection
// within 10 s; no end within the limit; what the daemon says of its refusal; those of `on_frame`.
Status talk(wire::Tls& tls, const Talk& what, const OnFrame& on_frame);

}  // namespace souk::tools
