// SPDX-License-Identifier: GPL-2.0-or-later
// PrecopyLinks: memory of jobs that still run, from the source's agentd to the destination's, each
// over a connection of its own: rounds of pages (checkpoint/precopy_source.hpp), unframed; the end
// of each is acknowledged. What has come stays with the destination's cell as long as that
// connection stands, and no longer, until an image comes that uses it. A connection that stalls or
// breaks ends it: the job has never stopped. Owned by GuestMoves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agentd/core/guest.hpp"
#include "agentd/daemon/bulk_sender.hpp"
#include "agentd/wire/codec.hpp"
#include "checkpoint/pages.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"

namespace souk {

class PrecopySource;

class PrecopyLinks {
  public:
    struct Handlers {
        // As a source. round: the destination is ready for the first, or has all of the one before.
        // refused: it does not take any, and nothing was sent. broken: it did, and does not any
        // more.
        std::function<void(const GuestKey& from)> round;
        std::function<void(const GuestKey&from, const std::string&why)> refused, broken;
        // As a destination. begin: may so many bytes come for that (job, epoch) now, from that
        // node? lost: no more comes.
        std::function<Status(const GuestKey&, const NodeName& sender, uint64_t bytes)> begin;
        std::function<Status(const GuestKey&, const PageRange&, std::string_view bytes)> take;
        std::function<void(const GuestKey&)> lost;
        std::function<void(uint64_t connection, std::function<void(ByteView)>)> receive_raw;
        std::function<void(uint64_t connection, const wire::PagesState&)> state;
        std::function<void(uint64_t connection, const wire::ImageResult&)> answer;
    };
    PrecopyLinks(Loop& loop, BulkIdentity own, Handlers handlers);

    // Connects; `round` or `refused` follows. bytes: what the job has now.
    void open(const GuestKey& from, const GuestKey& to, const Peer& dest, uint64_t bytes);
    // In `round`: sends what `source` has for it; it must live until the round or the link ends.
    void send(const GuestKey& from, PrecopySource& source);
    // In `round`: it comes again soon.
    void round_later(const GuestKey& from);
    // No word about it any more; over there what came is dropped, unless its image is there.
    void close(const GuestKey& from) { sending_.erase(from); }

    // Adds what is being sent now: the bytes of all rounds so far, and of the rest of this one.
    void progress(Nanos now, std::vector<JobSend>& to) const;

    // A connection of role `image`, after its hello. takes: this is for here.
    static bool takes(const wire::Frame& frame) { return frame.type == wire::frame::precopy_begin; }
    Status frame(uint64_t connection, const NodeName& sender, const wire::Frame& frame);
    void closed(uint64_t connection);

  private:
    struct Sending {
        PrecopySource* source = nullptr;  // while a round is sent
        bool accepted = false;
        NodeName node;
        Nanos began;
        uint64_t bytes = 0;  // what the job had then
        Timer limit;         // of a round, or until it may begin
        std::unique_ptr<BulkSender> link;
    };
    struct Receiving {
        GuestKey key;
        uint64_t taken = 0;  // bytes of pages
        std::unique_ptr<PageSections> sections;
        bool failed = false;
    };
    void heard(const GuestKey& from, const wire::Frame& frame);
    void end(const GuestKey& from, const std::string& why);
    Status section(uint64_t connection, const PageRange& range, std::string_view bytes);
    void receive(uint64_t connection, ByteView bytes);

    Loop& loop_;
    BulkIdentity own_;
    Handlers handlers_;
    std::map<GuestKey, Sending> sending_;
    std::map<uint64_t, Receiving> receiving_;
};

}  // namespace souk
