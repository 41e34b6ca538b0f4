// SPDX-License-Identifier: GPL-2.0-or-later
// This class decides for which users souk-root starts processes. agentd asks for them, and may have
// been taken over, so souk-root believes two others:
//
//   the kernel   who has connected to the socket of the tools, which souk-root accepts on. Such a
//                user may have jobs that begin here, and the servers of his files
//   the market   its ticket (market/core/ticket.hpp), for a job of another home that comes here;
//                who its user is on this machine, the owner's map says (agentd/core/user_map.hpp)
//
// Root has no jobs unless the owner says so (root_jobs; guest_uid_min = 0). Without certificates
// nobody is who he says he is, and agentd's word counts.
//
// A directory of root's, beside agentd's state, has all that must be remembered: `users`, who has
// connected (known_users.hpp); `market.pem`, the certificate of the market that this node has
// joined, as it was found when there was none; and `ticket-list.seen`, which of that market's lists
// of ticket keys was the newest (seen_list.hpp). agentd could change what it has in its own files.
// Whoever has the node join a market removes `market.pem`, and the other file goes with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/core/user_map.hpp"
#include "agentd/who/known_users.hpp"
#include "agentd/who/rules.hpp"
#include "agentd/who/seen_list.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/base/time.hpp"
#include "kernel/trust/certificate.hpp"
#include "kernel/trust/ticket_key.hpp"

namespace souk::who {

class Who {
  public:
    // Makes the directory. An error: it cannot be had, or what is there does not fit.
    static Result<Who> open(Rules rules);
    // Makes one for an agentd that is root and needs no leave: its word counts, and nothing is
    // kept.
    static Who believing();

    // Notes a user who has connected. Fails if that is not on the disk; this is tried again when
    // the next user comes. The user is known as long as this process runs.
    Status connected(const RunsAs& user);
    // Names the users who have jobs here already, at the first start with that directory; later it
    // counts nothing. `more` follow.
    Status adopt(const std::vector<RunsAs>& users, bool more);

    // Fails if a job that began here, or a server of its files, may not run as that user.
    Status may_own(const RunsAs& as) const;
    // Fails if a job of another home may not run as that user. `ticket`: as the market has sealed
    // it.
    Status may_come(const RunsAs& as, std::string_view ticket);
    // A capsule was made for that user, or found again. If its user is not known, an older version
    // made it: agentd's word then counts for the programs beside it, but not for users who may have
    // no job of another home.
    void is_here(const RunsAs& as);
    // Fails if the programs beside a capsule may not run as its user.
    Status may_serve(const RunsAs& as) const;

  private:
    explicit Who(Rules rules) : rules_(std::move(rules)) {}
    Status open_users();
    Status open_market();
    Status open_seen();
    Status save() const;
    Result<Principal> principal_of(std::string_view sealed);
    Status read_keys();
    Status believe(const trust::TicketList& list);
    Status read_map();
    Status comes(const Principal& who, const RunsAs& as);
    bool is_root_let() const { return rules_.any || rules_.root_jobs || rules_.id_min == 0; }

    Rules rules_;
    KnownUsers users_, here_;
    bool adopts_ = false, older_ = false, unsaved_ = false;
    std::optional<trust::Certificate> market_;
    std::optional<SeenList> seen_;  // none yet
    // These are the texts that were read of agentd's files and of the owner's, and what was made of
    // them.
    std::string chain_, list_, map_text_;
    trust::TicketKeys keys_;
    std::optional<UserMap> map_;
    Nanos accounts_rest_;  // until when they are not asked
};

}  // namespace souk::who
