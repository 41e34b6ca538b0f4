// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/operator_programs.hpp"

#include <unistd.h>

#include "kernel/sys/host/accounts.hpp"

namespace souk {
namespace {

// Programs are another user where marketd is root; nullopt: there is no such user.
std::optional<Account> runs_as(const MarketConfig& config) {
    if (::geteuid() != 0) return Account{};
    const auto account = SystemAccounts().named(config.programs_user);
    return account && account->uid != 0 ? account : std::nullopt;
}

AskedProgram::Options options_of(const MarketConfig& config, const std::string& path) {
    AskedProgram::Options options;
    options.path = path;
    options.limit = config.programs_limit;
    if (path.empty()) return options;
    const auto as = runs_as(config);
    options.uid = as ? as->uid : 0;
    options.gid = as ? as->gid : 0;
    return options;
}

}  // namespace

OperatorPrograms::OperatorPrograms(Loop& loop, Log& log, const MarketConfig& config)
    : submit(loop, log, "submit_filter", options_of(config, config.submit_filter)),
      arrival(loop, log, "arrival_filter", options_of(config, config.arrival_filter)),
      users(loop, log, "user_map", options_of(config, config.user_map)),
      metric(loop, log, "site_metric", options_of(config, config.site_metric)),
      reroute(loop, log, "site_reroute", options_of(config, config.site_reroute)) {}

Status OperatorPrograms::check() const {
    for (const AskedProgram* program : {&submit, &arrival, &users, &metric, &reroute})
        if (program->is_set()) TRY(program->check());
    return {};
}

std::vector<std::string> OperatorPrograms::troubles() const {
    std::vector<std::string> lines;
    for (const AskedProgram* program : {&submit, &arrival, &users, &metric, &reroute}) {
        if (!program->is_set()) continue;
        if (const auto path = program->check(); !path) lines.push_back(path.error().message);
    }
    return lines;
}

void OperatorPrograms::close() {
    for (AskedProgram* program : {&submit, &arrival, &users, &metric, &reroute}) program->close();
}

}  // namespace souk
