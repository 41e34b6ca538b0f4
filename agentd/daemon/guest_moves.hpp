// SPDX-License-Identifier: GPL-2.0-or-later
// GuestMoves: images and memory on their way between this node and others. It ships the image of a
// job that moves, sends its memory ahead of the image or past it, sends checkpoints to where they
// are kept, and takes in what comes. GuestHost owns it, calls it for the machine's effects, and
// hears how each ends by EffectListener.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agentd/daemon/guest_site.hpp"
#include "agentd/daemon/image_keeper.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/precopy.hpp"
#include "agentd/daemon/transfer.hpp"

namespace souk {

// GuestHost hears by this that an effect on a guest has ended, and how.
class EffectListener {
  public:
    virtual ~EffectListener() = default;
    virtual void effect_ended(const GuestKey& key, guest::Event event) = 0;
};

struct GuestMovesParts {
    Loop& loop;
    Log& log;
    const Config& config;
    wire::Tls* tls;  // null: insecure
    Peers& peers;
    const Guest& machine;
    const GuestCells& cells;
    ImageKeeper& images;
    GuestSite& site;
    EffectListener& listener;
};

class GuestMoves {
  public:
    explicit GuestMoves(const GuestMovesParts& parts);

    // Connections that carry an image, or memory ahead of one.
    Status frame(uint64_t connection, const NodeName& node, const wire::Frame& frame);
    void closed(uint64_t connection);

    // Effects of the machine.
    void send_precopy(Cell& cell, const guest::Do& effect);
    void ship(const Cell& cell, const guest::Do& effect);
    void send_checkpoint(const Cell& cell, const guest::Do& effect);
    // Connects to the destination while the job is dumped, so that no time is lost afterwards.
    void reach(const guest::Do& effect) { transfers_->reach(effect.key, effect.dest); }
    void cancel(const GuestKey& key) { transfers_->cancel_sending(key); }
    double bytes_per_s(const NodeName& node) const { return transfers_->bytes_per_s(node); }

    // Cells. Nothing is read any more of a job's memory that was to be sent ahead.
    void drop_precopy(const GuestKey& key) { precopy_->close(key); }
    // Nothing will be shipped of a job that was to be dumped.
    void forget_reached(const GuestKey& key) { transfers_->forget_reached(key); }
    // The pages of a job that runs here in part: which it wants next, that all are here, or that
    // they are not taken.
    void want_pages(const GuestKey& key, bool restored, uint64_t put,
                    const std::vector<PageRange>& wishes);
    void pages_whole(const GuestKey& key) { transfers_->whole(key); }
    void pages_refused(const GuestKey& key, const std::string& why) {
        transfers_->refuse(key, why);
    }

    // How far all that is.
    void progress(Nanos now, std::vector<JobSend>& to) const;

  private:
    void make_transfers();
    void make_precopy();
    Cell* cell(const GuestKey& key) const { return find_cell(p_.cells, key); }
    void ended(const GuestKey& key, guest::Event event);
    Result<Transfers::Cargo> cargo(const Cell& cell, const guest::Do& effect) const;
    Result<Transfers::Cargo> checkpoint(const Cell& cell, const guest::Do& effect) const;
    void image_sent(const GuestKey& key, const Result<Manifest>& sent);
    Status image_came(const GuestKey& key, const Manifest& m, MoveForm form);
    void precopy_round(const GuestKey& key);
    void precopy_broken(const GuestKey& key, const std::string& why);

    GuestMovesParts p_;
    std::unique_ptr<Transfers> transfers_;
    std::unique_ptr<PrecopyLinks> precopy_;
};

}  // namespace souk
