// SPDX-License-Identifier: GPL-2.0-or-later
// Transfers: images between agentds, each over a connection of its own, from the source straight to
// the destination, and behind an image the pages that are not in it, out of the frozen job
// (checkpoint/page_source.hpp). Sent as fast as the connection takes it, or no faster than a rate
// that several share, in slices, so that one big image holds nothing else up; written as it comes
// and checked against its digests before it counts. A connection that stalls or breaks ends the
// transfer on both sides; what becomes of the job is the home's word. Owned by GuestMoves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agentd/core/guest.hpp"
#include "agentd/daemon/bulk_sender.hpp"
#include "agentd/wire/codec.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/stream.hpp"
#include "kernel/base/rate_limit.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"

namespace souk {

class Transfers {
  public:
    // The directory of an image that comes, and how large it may become.
    struct Place {
        Fd image;
        uint64_t bytes_max = 0;
        DiskKey key = {};  // of one that stays on the disk, encrypted
    };
    struct Handlers {
        // As a destination. expects: an image may come for that (job, epoch) now, from that node;
        // place: where it goes; seal: what its tag is made of, but for the nonce.
        std::function<bool(const GuestKey&, const NodeName& sender)> expects;
        std::function<Result<Place>(const GuestKey&)> place;
        std::function<ImageSeal(const GuestKey&, const NodeName& sender, Epoch from)> seal;
        // All of it is there, each digest right; an error refuses it.
        std::function<Status(const GuestKey&, const Manifest&, MoveForm)> received;
        // Pages that were asked for with want().
        std::function<Status(const GuestKey&, const PageRange&, std::string_view bytes)> pages;
        // No more comes; of an image (expects), or of its pages.
        std::function<void(const GuestKey&, const std::string& why)> failed;
        // All that follows on that connection is bytes of the image.
        std::function<void(uint64_t connection, std::function<void(ByteView)>)> receive_raw;
        std::function<void(uint64_t connection, const wire::PagesState&)> want;
        std::function<void(uint64_t connection, const wire::ImageResult&)> answer;
    };
    Transfers(Loop& loop, BulkIdentity own, Handlers handlers);

    // The image directory that is to be sent, and the memory that is not in it.
    struct Cargo {
        Fd image;
        Manifest needs;
        MoveForm form = MoveForm::stop_and_copy;
        std::unique_ptr<PageSource> pages;  // unless in_image
        ImageSeal seal = {};                // without a key: none
        std::string disk_secret = {};       // of an image that is encrypted
        bool home_locks = false;            // the job holds locks of its home's files
        // No faster than that, but for pages that a copy waits for: they go at once, and count. It
        // outlives this; null: as fast as the connection takes it.
        RateLimit* rate = nullptr;
    };
    // `done` gets the manifest of what went out when the destination has all of it, checked; else
    // why not. Once.
    using Done = std::function<void(const Result<Manifest>&)>;
    void send(const GuestKey& from, const GuestKey& to, const Peer& dest, Result<Cargo> cargo,
              Done done);
    // While the image is made: connects for the next send(), which does it itself if this comes to
    // nothing.
    void reach(const GuestKey& from, const Peer& dest);
    void forget_reached(const GuestKey& from);  // nothing will be sent
    // The rate of the newest transfer of some size to that node; 0: there was none.
    double bytes_per_s(const NodeName& node) const;
    // Adds what is being sent now to a job's next place, since when at the earliest.
    void progress(Nanos now, std::vector<JobSend>& to) const;
    // No more word about it.
    void cancel_sending(const GuestKey& from);

    // A connection of role `image`, after its hello.
    Status frame(uint64_t connection, const NodeName& sender, const wire::Frame& frame);
    void closed(uint64_t connection);
    // For an image with pages behind it. want: these first (the rest comes once state.restored was
    // said); whole: all of them are in place, and the source is told; refuse: no more of them is of
    // use.
    void want(const GuestKey& key, const wire::PagesState& state);
    void whole(const GuestKey& key);
    void refuse(const GuestKey& key, const std::string& why);

  private:
    struct Sending {
        GuestKey to;
        Cargo cargo;
        std::unique_ptr<ImageReader> reader;
        bool begun = false, welcomed = false, image_sent = false;
        bool tags = false;     // the destination takes a tag
        uint32_t knows = 0;    // what the destination knows (files_choice.hpp)
        bool refused = false;  // its own image is not what it should be
        NodeName node;
        std::string address;
        Nanos began;                         // to send
        uint64_t bytes = 0, bytes_sent = 0;  // of image and pages
        RateShare share;
        Done done;
        std::unique_ptr<BulkSender> link;
    };
    struct Receiving {
        GuestKey key;
        MoveForm form = MoveForm::stop_and_copy;
        std::unique_ptr<ImageWriter> writer;
        std::unique_ptr<PageSections> pages;  // once the image is here
        Timer stall;
    };

    std::unique_ptr<BulkSender> connect(const GuestKey& from, const Peer& dest);
    static Status begin_pieces(Sending& s);
    void sender_frame(const GuestKey& from, const wire::Frame& frame);
    void wanted(const GuestKey& from, const wire::PagesState& state);
    Result<std::string_view> next_piece(Sending& s);
    static Nanos hold(Sending& s, std::string_view& piece);
    static bool is_waited_for(const Sending& s);
    void piece_left(Sending& s, size_t bytes);
    void end_sending(const GuestKey& from, const std::string& why);
    void sent(const GuestKey& from);
    Status begin_receiving(uint64_t connection, const NodeName& sender,
                           const wire::ImageBegin& begin);
    void receive(uint64_t connection, ByteView bytes);
    Status receive_some(uint64_t connection, Receiving& r, std::string_view bytes);
    Status image_is_here(uint64_t connection, Receiving& r);
    void end_receiving(uint64_t connection);
    void give_up_receiving(uint64_t connection, const std::string& why);
    // 0: there is none.
    uint64_t receiving_pages(const GuestKey& key) const;

    Loop& loop_;
    BulkIdentity own_;
    Handlers handlers_;
    std::map<GuestKey, Sending> sending_;
    std::map<NodeName, double> rates_;  // of nodes that an image went to
    std::map<uint64_t, Receiving> receiving_;
};

}  // namespace souk
