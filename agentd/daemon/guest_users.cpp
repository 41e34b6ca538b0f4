// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_users.hpp"

#include <fcntl.h>

#include <cerrno>
#include <sstream>

#include "kernel/sys/host/fd.hpp"
#include "kernel/trust/identity.hpp"

namespace souk {

std::vector<std::string> names_in(const std::string& text) {
    std::istringstream names(text);
    std::vector<std::string> all;
    for (std::string name; names >> name;) all.push_back(name);
    return all;
}

Result<UserMap> load_user_map(const Config& config, const std::string& realm,
                              const ReadFile& read) {
    UserMap::Rules rules{realm, config.guest_uid_min, names_in(config.guest_groups)};
    std::string text;
    if (!config.user_map.empty()) {
        auto file = read ? read(config.user_map) : read_file(AT_FDCWD, config.user_map);
        if (!file) return wrap("user_map", file.error());
        text = std::move(*file);
    }
    auto map = UserMap::parse(text, std::move(rules));
    if (!map) return wrap("user_map: " + config.user_map, map.error());
    return map;
}

std::string user_map_text(const Config& config) {
    if (config.insecure)
        return "# insecure: the users of other nodes are the same here, root too\n";
    const auto identity = trust::load_identity(config.identity);
    const std::string realm = identity && *identity ? (*identity)->root.site() : "souk";
    const auto map = load_user_map(config, realm);
    if (!map) return "# " + map.error().message + "\n";
    std::string text =
        "# who the users of other nodes are here (this market's realm is " + realm + "):\n";
    size_t wrong = 0;
    const SystemAccounts accounts(std::nullopt);
    const auto lines = accounts.told([&] { return map->describe(accounts, &wrong); });
    if (!lines) return text + "# " + lines.error().message + "\n";
    for (const std::string& line : *lines) text += "#   " + line + "\n";
    if (wrong > 0)
        text += "# " + std::to_string(wrong) +
                " of these lines name nobody who may run here: their users' jobs are refused\n";
    return text;
}

Status GuestUsers::reload(const Config& config) {
    if (!tls_) return {};
    TRY_ASSIGN(map_, load_user_map(config, tls_->identity()->root.site(),
                                   [this](const std::string& path) { return root_.read(path); }));
    return {};
}

// Says as whom the job begins or comes here. A number that names one user on one machine may name
// another, or root, on this one. A job of this node's own user is that user's, whatever another
// node says.
Result<RunsAs> GuestUsers::runs_as(const NodeName& from, const GuestCommand& command,
                                   const Warrant& warrant) const {
    const LaunchSpec& launch = command.spec.launch;
    RunsAs own{true, launch.uid, launch.gid, launch.groups};
    const RunsAs& was = command.spec.as.known ? command.spec.as : own;
    if (!map_) return own;
    if (from == node_) {
        if (launch.uid != 0) own.groups = map_->within(launch.groups, accounts_);
        return command.verb == GuestVerb::start ? own : UserMap::returns(own, was);
    }
    // The user's name counts as the market has signed it, not as the home says it.
    const Principal who{peers_.realm_of(from),
                        warrant.ticket ? warrant.ticket->user : command.spec.user,
                        launch.uid,
                        launch.gid,
                        launch.groups,
                        warrant.ticket ? command.spec.user : "",
                        warrant.ticket ? warrant.ticket->account : ""};
    return command.verb == GuestVerb::start ? map_->begins(who, accounts_)
                                            : map_->comes(who, was, accounts_);
}

OwnerBans::Job GuestUsers::for_bans(const JobId& id, const JobSpec& spec) const {
    return {id, peers_.realm_of(id.home), spec.user,
            spec.launch.argv.empty() ? "" : spec.launch.argv[0]};
}

std::vector<JobId> GuestUsers::banned(const Guest& guests) const {
    std::vector<JobId> all;
    for (const auto& [key, e] : guests.all())
        if (!OwnerBans::refuses(bans_, for_bans(key.id, e.job.spec)).empty()) all.push_back(key.id);
    return all;
}

std::optional<GuestEvent> GuestUsers::refuse(const NodeName& from, GuestCommand& command,
                                             const Warrant& warrant) const {
    if (command.verb != GuestVerb::start && command.verb != GuestVerb::prepare) return std::nullopt;
    auto told = accounts_.told([&] { return runs_as(from, command, warrant); });
    auto as = told ? std::move(*told) : tl::unexpected(told.error());
    const char* refuses = " does not take its user: ";
    if (const auto ban = OwnerBans::refuses(bans_, for_bans(command.id, command.spec));
        !ban.empty()) {
        refuses = " does not take it: ";
        as = fail("its owner takes no " + std::string(ban));
    }
    if (as) {
        command.spec.launch.uid = as->uid;
        command.spec.launch.gid = as->gid;
        command.spec.launch.groups = std::move(as->groups);
        return std::nullopt;
    }
    log_.limited("user", Loop::now(), Level::warning, "a job was refused",
                 {{"JOB", command.id.text()}, {"NODE", from}, {"WHY", as.error()}});
    GuestEvent refused;
    refused.id = command.id;
    refused.epoch = command.epoch;
    refused.state = GuestState::failed;
    // A lookup of accounts that gave no answer in time says nothing about the user. It may answer
    // soon.
    refused.no_user = as.error().code != EAGAIN;
    refused.why = Trouble(node_ + refuses + as.error().message)
                      .or_code(refused.no_user ? CauseCode::user_refused : CauseCode::start_failed);
    return refused;
}

}  // namespace souk
