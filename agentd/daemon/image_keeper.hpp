// SPDX-License-Identifier: GPL-2.0-or-later
// ImageKeeper: the keys of images and the room for them. Homes tell with their commands which key
// an image is encrypted or sealed with; from these it makes the seals of images that leave and come
// (checkpoint/stream_tag.hpp). It says how large an image that comes may be, and how much of the
// disk a user's images may take. GuestHost owns it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "agentd/cell/cell.hpp"
#include "agentd/cell/disk_secrets.hpp"
#include "agentd/core/guest.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/transfer.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

// The cells of all guests that are here.
using GuestCells = std::map<GuestKey, std::unique_ptr<Cell>>;
inline Cell* find_cell(const GuestCells& cells, const GuestKey& key) {
    const auto it = cells.find(key);
    return it == cells.end() ? nullptr : it->second.get();
}

class ImageKeeper {
  public:
    ImageKeeper(Log& log, const Config& config, const Guest& machine, const GuestCells& cells)
        : log_(log), config_(config), machine_(machine), cells_(cells) {}
    // `ram`: the directory in memory where the keys of disks lie.
    Status open(int ram);

    // Keys, and the ticket that a home has shown for a job. All but the keys of disks are in memory
    // alone.
    void note(const NodeName& from, const GuestCommand& command);
    void forget(const GuestKey& key);
    // Forgets the keys of disks of all guests but these.
    void forget_but(const std::set<std::string>& known) { secrets_.forget_but(known); }
    std::string disk_secret(const GuestKey& key) const { return secrets_.find(key); }
    std::string ticket(const GuestKey& key) const;
    // A seal has all but the nonce, and no key if the home gave none.
    ImageSeal seal_of_going(const GuestKey& of, Epoch to) const;
    ImageSeal seal_of_coming(const GuestKey& to, const NodeName& sender, Epoch from) const;

    // Whether the disk has room for one more image, beside the daemon's reserve and the images that
    // the job's user has there.
    Status has_room(const GuestKey& key) const;
    Result<Transfers::Place> place(const GuestKey& key) const;
    // Whether so much memory is within what the job's ticket allows.
    Status check_memory(const GuestKey& key, uint64_t bytes) const;
    // The same for the memory that the image leaves out, which its source is to send.
    Status check_left_out(const GuestKey& key, const Cell& cell) const;
    // The destination refuses the image; without a reason: it takes it after all.
    void refused(const GuestKey& key, const std::string& why) const;

  private:
    struct Going {
        Epoch to;
        std::string key;
    };
    Result<uint64_t> bytes_left(uint32_t uid, int images) const;
    uint64_t memory_bytes_max(const GuestKey& key) const;

    Log& log_;
    const Config& config_;
    const Guest& machine_;
    const GuestCells& cells_;
    std::map<GuestKey, std::string> coming_;  // by the (job, epoch) that an image is to come for
    std::map<GuestKey, Going> going_;         // by the (job, epoch) of which one is to be sent
    std::map<GuestKey, std::string> shown_;   // the ticket, which souk-root reads too
    DiskSecrets secrets_;
};

}  // namespace souk
