// SPDX-License-Identifier: GPL-2.0-or-later
// Transfers: images between agentds, each over a connection of its own, from the source straight to the destination.
// Sent as fast as the connection takes it, in slices, so that one big image holds nothing else up; written as it comes and
// checked against its digests before it counts. A connection that stalls or breaks ends the transfer on both sides;
// what becomes of the job is the home's word. Owned by the Agent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/core/guest.hpp"
#include "checkpoint/stream.hpp"
#include "kernel/sys/loop.hpp"
#include "market/wire/channel.hpp"
#include "market/wire/codec.hpp"

namespace souk {

class Transfers {
  public:
    struct Handlers {
        // As a destination. expects: an image may come for that (job, epoch) now; image_dir: where it goes.
        std::function<bool(const GuestKey&)> expects;
        std::function<Result<Fd>(const GuestKey&)> image_dir;
        // All of it is there, each digest right; an error refuses it.
        std::function<Status(const GuestKey&, const Manifest&)> received;
        std::function<void(const GuestKey&, const std::string& why)> failed;
        // What follows on that connection is bytes of the image.
        std::function<void(uint64_t connection, std::function<void(ByteView)>)> receive_raw;
        std::function<void(uint64_t connection, const wire::ImageResult&)> answer;
    };
    Transfers(Loop& loop, NodeName node, std::string address, Handlers handlers);

    // `done` gets the manifest of what went out when the destination has all of it, checked; else why not. Once.
    using Done = std::function<void(const Result<Manifest>&)>;
    void send(const GuestKey& from, const GuestKey& to, const Peer& dest, Result<Fd> image, const Manifest& needs, Done done);
    // No more word about it.
    void cancel_sending(const GuestKey& from);

    // A connection of role `image`, after its hello.
    Status frame(uint64_t connection, const NodeName& sender, const wire::Frame& frame);
    void closed(uint64_t connection);

  private:
    struct Sending {
        GuestKey to;
        Connect connecting;
        std::unique_ptr<wire::Channel> channel;
        Watch writable;
        std::unique_ptr<ImageReader> reader;
        bool all_sent = false;
        Timer stall, again;
        Done done;
    };
    struct Receiving {
        GuestKey key;
        std::unique_ptr<ImageWriter> writer;
        Timer stall;
    };

    void connected(const GuestKey& from, Result<Fd> socket);
    void sender_frame(const GuestKey& from, const wire::Frame& frame);
    void pump(const GuestKey& from);
    void end_sending(const GuestKey& from, const std::string& why);
    void sent(const GuestKey& from);
    Status begin_receiving(uint64_t connection, const NodeName& sender, const wire::ImageBegin& begin);
    void receive(uint64_t connection, ByteView bytes);
    void end_receiving(uint64_t connection);
    Status pump_some(const GuestKey& from, Sending& s);
    void give_up_receiving(uint64_t connection, const std::string& why);

    Loop& loop_;
    NodeName node_;
    std::string address_;
    Handlers handlers_;
    std::map<GuestKey, Sending> sending_;
    std::map<uint64_t, Receiving> receiving_;
};

}  // namespace souk
