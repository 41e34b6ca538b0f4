// SPDX-License-Identifier: GPL-2.0-or-later
// GuestJobs: every (job, epoch) that a Guest (guest.hpp) knows: those that it holds, those whose
// remains are being removed, and those whose records cannot be read. It bounds how many it holds.
// An answer that a job failed takes no place of a guest. Of these each home has a bound of its own,
// and there is one for all, and the oldest go, because a home that asks again is answered again.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "agentd/core/guest_entry.hpp"

namespace souk {

class GuestJobs {
  public:
    explicit GuestJobs(size_t jobs_max) : jobs_max_(jobs_max) {}

    guest::Entry* find(const GuestKey& key);
    const guest::Entry* find(const GuestKey& key) const;
    // Adds an entry, unless the key is held already.
    guest::Entry& add(const GuestKey& key, guest::Entry e);
    // Adds an answer that the job could not begin or has failed, in place of one that is held.
    guest::Entry& add_failed(const GuestKey& key, guest::Entry e);
    // Adds an empty entry, in place of one that is held already.
    guest::Entry& add_anew(const GuestKey& key);
    std::map<GuestKey, guest::Entry>& all() { return jobs_; }
    const std::map<GuestKey, guest::Entry>& all() const { return jobs_; }
    bool is_full() const { return jobs_.size() - failed_count_ >= jobs_max_; }

    // Begins to remove everything of the job from the node; its entry stays.
    void remove(const guest::Entry& e, guest::Outputs& out);
    // Does the same, and forgets the entry.
    void erase(const GuestKey& key, guest::Outputs& out);
    // Forgets an entry of which the node has nothing.
    void forget(GuestKey key);
    // Forgets the failed jobs of a home.
    void forget_failed(const NodeName& home);

    // Jobs whose remains are being removed. The same (job, epoch) must not begin anew until then.
    void is_going(const GuestKey& key) { going_.insert(key); }
    void has_gone(const GuestKey& key) { going_.erase(key); }
    bool goes(const GuestKey& key) const { return going_.contains(key); }
    size_t going() const { return going_.size(); }

    // Jobs with an image here and a record that cannot be read.
    void set_aside(const GuestKey& key) { aside_.insert(key); }
    bool is_aside(const GuestKey& key) const { return aside_.contains(key); }
    // Removes one of these.
    void remove_aside(const GuestKey& key, guest::Outputs& out);

  private:
    void uncount_failed(const GuestKey& key);
    void make_room_for_failed(const NodeName& home);

    size_t jobs_max_;
    std::map<GuestKey, guest::Entry> jobs_;
    std::map<NodeName, std::deque<GuestKey>> failed_;  // of each home, the oldest first
    size_t failed_count_ = 0;
    std::set<GuestKey> going_;
    std::set<GuestKey> aside_;
};

}  // namespace souk
