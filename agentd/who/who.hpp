// SPDX-License-Identifier: GPL-2.0-or-later
// Who: as whom souk-root starts processes for agentd, which may have been taken over. It believes
// two others:
//
//   the kernel   who has connected to the socket of the tools, which souk-root accepts on. Such a
//                user may have jobs that begin here, and the servers of his files
//   the market   its ticket (market/core/ticket.hpp), for a job of another home that comes here;
//                who its user is on this machine, the owner's map says (agentd/core/user_map.hpp)
//
// Root has no jobs unless the owner says so (root_jobs; guest_uid_min = 0). Without certificates
// nobody is who he says he is, and agentd's word counts.
//
// What it must know is in a directory of root's, beside agentd's state: `users`, who has connected
// (known_users.hpp); `market.pem`, the certificate of the market that this node has joined, as it
// was found when there was none; and `ticket-list.seen`, which of that market's lists of ticket
// keys was the newest (seen_list.hpp). What agentd has in its own files it could change. Who has
// the node join a market removes `market.pem`, and the other file goes with it.
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
    // Whose agentd is root, and needs no leave: its word counts, and nothing is kept.
    static Who believing();

    // Who has connected. An error: it is not on the disk, and is tried again when the next one
    // comes; it is known as long as this process runs.
    Status connected(const RunsAs& user);
    // Whose jobs there are already, at the first start with that directory; later nobody. `more`
    // follow.
    Status adopt(const std::vector<RunsAs>& users, bool more);

    // Whether a job that began here, or what serves its files, may run as that.
    Status may_own(const RunsAs& as) const;
    // Likewise a job of another home. `ticket`: as the market has sealed it.
    Status may_come(const RunsAs& as, std::string_view ticket);
    // A capsule was made for that user, or found again; not known: an older version made it, and
    // agentd's word counts for what is beside it, but for who may have no job of another home.
    void is_here(const RunsAs& as);
    // Whether the programs beside a capsule may run as its user.
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
    // What was read of agentd's files and of the owner's, and what came of it.
    std::string chain_, list_, map_text_;
    trust::TicketKeys keys_;
    std::optional<UserMap> map_;
    Nanos accounts_rest_;  // until when they are not asked
};

}  // namespace souk::who
