// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/as_root.hpp"

#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "agentd/daemon/guest_users.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/page_sink.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/process/own_rights.hpp"

namespace souk {
namespace {

constexpr Nanos root_listen_patience = Nanos::from_s(2);

// As it says itself ("Version: 4.2.1").
Result<std::string> criu_version(const CriuTool& tool) {
    std::string command;
    for (const std::string& word : tool.command) command += "'" + word + "' ";
    FILE* out = ::popen((command + "--version 2>&1").c_str(), "re");
    if (!out) return fail_errno("run " + command, errno);
    char line[256] = {};
    const bool got = std::fgets(line, sizeof line, out) != nullptr;
    ::pclose(out);
    const std::string_view text = line;
    if (!got || !text.starts_with("Version: "))
        return fail("CRIU does not tell its version: " + std::string(text));
    const size_t end = text.find_first_of("\r\n ", 9);
    return std::string(text.substr(9, end == std::string_view::npos ? end : end - 9));
}

// Every user may submit; who calls is the kernel's word.
Result<Fd> listen_to_tools(const std::string& socket) {
    TRY_ASSIGN(const Address path, Address::parse("unix:" + socket));
    auto local = listen_stream(path, 1024, 0666, root_listen_patience);
    if (!local) return wrap("listen on " + socket, local.error());
    return std::move(*local);
}

// For whom processes are started, as the owner has it now; to change that it begins anew.
who::Rules rules_of(const Config& config) {
    who::Rules rules;
    rules.node = config.node;
    rules.any = config.insecure;
    rules.root_jobs = config.root_jobs;
    rules.accepts = config.tickets == TicketRule::accepted;
    rules.id_min = config.guest_uid_min;
    rules.groups = names_in(config.guest_groups);
    return rules;
}

// Root must not read a state that an agentd which was taken over may have changed. So a state that
// belongs to the agent's user counts.
bool has_state(const Config& config, root::AgentUser user) {
    struct stat st {};
    return ::stat(config.state.c_str(), &st) == 0 && st.st_uid == user.uid;
}

// Starts souk-root and returns the user that this daemon can become: souk-root has given him then
// all that is his. Only at a first start may the daemon stay root.
Result<root::AgentUser> begin_souk_root(const Config& config, const std::string& file, int tools,
                                        root::Helper& root, Status& why_root) {
    const std::string criu = config.criu.empty() ? criu_root() : config.criu;
    root::Helper::Own own{file,
                          config.user_map,
                          {},
                          {config.state, config.identity, config.cgroup, config.ram_mb},
                          rules_of(config),
                          config.network,
                          tools};
    if (config.user != "root") {
        const auto user = root::find_agent_user(config.user);
        own.user = user.value_or(root::AgentUser{});
        if (!user) why_root = tl::unexpected(user.error());
    }
    if (own.user) {
        const bool his = has_state(config, own.user);
        if (auto begun = root.start(criu, config.status_file, own); !begun) {
            if (his) return tl::unexpected(begun.error());
            why_root = begun;
            own.user = {};
        }
    }
    if (!own.user) TRY(root.start(criu, config.status_file, own));
    return own.user;
}

}  // namespace

std::string own_user_text(const Config& config) {
    if (::geteuid() != 0) return {};  // only root can say
    if (config.user == "root") return "# agentd is root\n";
    const auto user = root::find_agent_user(config.user);
    return user ? "# agentd is " + config.user + ", who has its state\n"
                : "# agentd stays root: " + user.error().message + "\n";
}

Result<AsRoot> begin_as_root(Log& log, const Config& config, const std::string& file,
                             root::Helper& root) {
    AsRoot begun;
    TRY_ASSIGN(const CriuTool criu, config.criu.empty() ? find_criu() : find_criu(config.criu));
    TRY_ASSIGN(begun.criu_version, criu_version(criu));
    begun.dumps_all = have_capability(CAP_SYS_RESOURCE);
    begun.pages_possible = make_pages_possible();
    begun.write_marks = examine_soft_dirty();
    TRY_ASSIGN(const Fd tools, listen_to_tools(config.socket));
    Status why;
    TRY_ASSIGN(const root::AgentUser user, begin_souk_root(config, file, tools.get(), root, why));
    begun.tools = root.take_door();
    if (user) TRY(become_user(user.uid, user.gid));
    begun.user = user ? config.user : why ? "root" : "root: " + why.error().message;
    if (!why)
        log.notice("agentd stays root", {{"user", config.user}, {"WHY", why.error()}});
    else
        log.info("runs as", {{"user", begun.user}});
    return begun;
}

}  // namespace souk
