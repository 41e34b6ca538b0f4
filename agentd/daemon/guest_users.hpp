// SPDX-License-Identifier: GPL-2.0-or-later
// GuestUsers: the users of other homes on this node: as whom each job runs here
// (agentd/core/user_map.hpp), and which jobs the owner does not take at all
// (agentd/core/owner_bans.hpp). GuestHost owns it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agentd/core/guest.hpp"
#include "agentd/core/owner_bans.hpp"
#include "agentd/core/user_map.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

// Splits names at blanks.
std::vector<std::string> names_in(const std::string& text);
// Reads the map of users that the configuration names. `realm`: the market's own.
Result<UserMap> load_user_map(const Config& config, const std::string& realm,
                              const ReadFile& read = {});
// Shows the map as comments for --check-config, and how many of its lines name nobody.
std::string user_map_text(const Config& config);

class GuestUsers {
  public:
    GuestUsers(Log& log, const NodeName& node, root::Helper& root, const Peers& peers,
               const SystemAccounts& accounts, wire::Tls* tls)
        : log_(log), node_(node), root_(root), peers_(peers), accounts_(accounts), tls_(tls) {}
    // Reads the map. An error: the map that was read before holds.
    Status reload(const Config& config);
    // The owner takes none of these.
    void bans(std::vector<std::string> bans) { bans_ = std::move(bans); }
    // Lists the guests that he does not take.
    std::vector<JobId> banned(const Guest& guests) const;
    // Writes into a command that brings a job as whom the job runs here. Or returns the event by
    // which its home hears that the job is refused.
    std::optional<GuestEvent> refuse(const NodeName& from, GuestCommand& command,
                                     const Warrant& warrant) const;

  private:
    Result<RunsAs> runs_as(const NodeName& from, const GuestCommand& command,
                           const Warrant& warrant) const;
    OwnerBans::Job for_bans(const JobId& id, const JobSpec& spec) const;

    Log& log_;
    const NodeName& node_;
    root::Helper& root_;
    const Peers& peers_;
    const SystemAccounts& accounts_;
    wire::Tls* tls_;              // null: insecure
    std::optional<UserMap> map_;  // nothing: without certificates all users are the same
    std::vector<std::string> bans_;
};

}  // namespace souk
