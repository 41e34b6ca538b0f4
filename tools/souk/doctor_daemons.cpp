// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/doctor_daemons.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/table.hpp"
#include "tools/souk/configured.hpp"

namespace souk {
namespace {

constexpr int64_t backup_age_max_s = 2 * 86'400;

Need advice(std::string name, std::string use, const std::string& wrong, const std::string& good,
            const std::string& mend) {
    const bool met = wrong.empty();
    return {std::move(name), std::move(use), false, met, met ? good : wrong, met ? "" : mend};
}

Result<tools::Json> ask_daemon(const std::string& config, const std::string& usual,
                               const std::string& verb) {
    const std::string said = configured(config_text(config), "socket");
    const std::string socket = said.empty() ? usual : said;
    TRY_ASSIGN(const auto answer,
               tools::ask([&] { return Result<std::string>(socket); }, verb, {}, Nanos{}));
    return tools::parse_object(answer);
}

// Seconds since the newest file of that directory was written; none: there is none.
std::optional<int64_t> newest_age_s(const std::string& directory) {
    const auto names = list_dir(AT_FDCWD, directory);
    std::optional<int64_t> age;
    for (const std::string& name : names ? *names : std::vector<std::string>{}) {
        struct stat st {};
        if (!name.ends_with(".db") || ::stat((directory + "/" + name).c_str(), &st) != 0) continue;
        const int64_t since = unix_now().ns / 1'000'000'000 - st.st_mtim.tv_sec;
        age = std::min(since, age.value_or(since));
    }
    return age;
}

}  // namespace

void examine_agentd(const std::string& config, const std::string& renew, std::vector<Need>& needs) {
    const auto node = ask_daemon(config, "/run/souk/agentd.sock", "node-status");
    needs.push_back(advice("agentd", "jobs run and are submitted here",
                           node ? "" : "it does not answer: " + node.error().message, "answers",
                           "systemctl start souk-agentd (journalctl -u souk-agentd says why not)"));
    if (!node) return;
    const bool connected = node->value("market_connected", false);
    const std::string trouble = blank_controls(tools::field(*node, "market_trouble"));
    const bool revoked = trouble.find("revoked") != std::string::npos;
    needs.push_back(advice("market", "it takes this node",
                           connected ? "" : "not connected: " + trouble,
                           "connected to " + tools::field(*node, "market"),
                           revoked ? "souk setup node --join TOKEN, if the operator wants it back"
                                   : renew + ", if it is the certificate; else the market's "
                                             "machine must be reached"));
    if (!node->contains("gateway")) return;
    const std::string gateway = tools::field(*node, "gateway");
    needs.push_back(advice(
        "gateway", "others reach this node",
        node->value("gateway_connected", false) ? "" : "not connected to " + gateway,
        "connected to " + gateway,
        "journalctl -u souk-agentd says why not; that node needs `relay = true` (docs/sites.md)"));
}

void examine_marketd(const std::string& config, const std::string& backups,
                     std::vector<Need>& needs) {
    const auto market = ask_daemon(config, "/run/souk/marketd.sock", "status");
    needs.push_back(advice(
        "marketd", "jobs get places", market ? "" : "it does not answer: " + market.error().message,
        "answers", "systemctl start souk-marketd (journalctl -u souk-marketd says why not)"));
    if (market) {
        const tools::Json warnings = market->value("warnings", tools::Json::array());
        const bool warns = !warnings.empty() && warnings.back().is_string();
        needs.push_back(advice("warnings", "nothing is amiss at the market",
                               warns ? blank_controls(warnings.back().get<std::string>()) : "",
                               "none since it started", "marketctl status shows all of them"));
    }
    const auto age = newest_age_s(backups);
    const bool old = age && *age > backup_age_max_s;
    std::string wrong;
    if (!age) wrong = "there is no copy of the market's records in " + backups;
    if (old) wrong = "the newest in " + backups + " is " + span_text(Nanos::from_s(*age)) + " old";
    needs.push_back(advice(
        "backups", "the books outlive this disk", wrong,
        "the newest in " + backups + " is " + span_text(Nanos::from_s(age.value_or(0))) + " old",
        "systemctl enable --now souk-backup.timer, or marketctl backup FILE each night"));
}

}  // namespace souk
