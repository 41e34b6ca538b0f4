// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/tool_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>

#include "agentd/core/owner_names.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk {
namespace {

// A process in a capsule is a job, and does not speak for the owner, because its user is whom its
// home says. A process that cannot be looked at counts as one.
bool in_a_capsule(pid_t pid) {
    const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
    const auto pids = status ? pids_of_status(*status) : std::nullopt;
    return !pids || pids->below;
}

bool changes_offer(const wire::CtlRequest& request) {
    const std::string& verb = request.verb;
    if (!verb.starts_with("provider-")) return false;
    if (verb == "provider-frames" || verb == "provider-price") return !request.args.empty();
    return verb != "provider-status" && verb != "provider-history" && verb != "provider-limits" &&
           verb != "provider-why";
}

}  // namespace

// The open files of this daemon bound how many tools may be connected, and jobs and other agents
// need them too.
UserShare::Bounds ToolServer::bounds(const Config& config) {
    constexpr size_t sessions_max = 8192;
    rlimit files{};
    const size_t all = ::getrlimit(RLIMIT_NOFILE, &files) < 0
                           ? sessions_max
                           : std::clamp<size_t>(files.rlim_max / 2, 64, sessions_max);
    const size_t each = config.user_connections > 0
                            ? std::min(all, static_cast<size_t>(config.user_connections))
                            : all / 4;
    return {.all = all, .reserve = all / 8, .each = each};
}

// -------------------------------------------------------------------------------------------------
// sessions

Status ToolServer::open() {
    TRY_ASSIGN(watch_, p_.loop.watch(p_.socket, POLLIN, [this](short) { come(); }));
    return {};
}

// souk-root has taken each of them from the socket. The kernel tells both who calls.
void ToolServer::come() {
    char room[8];
    for (;;) {
        auto packet = receive_descriptors(p_.socket, room);
        if (!packet || !*packet || (*packet)->bytes == 0) return;
        for (Fd& socket : (*packet)->descriptors) accept(std::move(socket));
    }
}

bool ToolServer::is_owner(const PeerCred& who, std::vector<uint32_t> groups) const {
    groups.push_back(who.gid);
    const auto owns =
        p_.accounts.told([&] { return owned_by(p_.config.owners, who.uid, groups, p_.accounts); });
    if (!owns)
        p_.log.limited("owner", Loop::now(), Level::warning,
                       "whether a tool is its owner's is unknown",
                       {{"uid", int64_t{who.uid}}, {"WHY", owns.error()}});
    return owns.value_or(false) && !in_a_capsule(who.pid);
}

void ToolServer::accept(Fd socket) {
    const auto who = peer_cred(socket.get());
    if (!who)
        return p_.log.limited("tool", Loop::now(), Level::warning, "refused a tool",
                              {{"WHY", who.error()}});
    auto place = share_.take(who->uid);
    if (!place) {
        wire::send_last_word(socket.get(), place.error());
        return p_.log.limited("tool of " + std::to_string(who->uid), Loop::now(), Level::warning,
                              "refused a tool",
                              {{"uid", int64_t{who->uid}}, {"WHY", place.error()}});
    }
    ToolHost& host = *this;
    std::vector<uint32_t> groups = peer_groups(socket.get());
    const bool owner = is_owner(*who, groups);
    auto session =
        std::make_shared<ToolSession>(host, *who, std::move(groups), owner, std::move(*place));
    if (auto opened = session->open(p_.loop, std::move(socket)); !opened)
        return p_.log.limited("tool", Loop::now(), Level::warning, "refused a tool",
                              {{"WHY", opened.error()}});
    sessions_.emplace(session.get(), session);
}

bool ToolServer::may_wait(uint32_t uid, size_t more) const {
    size_t waits = more;
    for (const auto& [session, kept] : sessions_)
        if (session->uid() == uid) waits += session->waiting();
    return waits <= static_cast<size_t>(p_.config.user_answers_mb) << 20;
}

void ToolServer::drop(ToolSession* session) {
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    const auto kept = it->second;
    sessions_.erase(it);
    kept->end();
    p_.loop.defer([kept] {});  // it may be calling now
}

void ToolServer::closed(ToolSession* session, bool welcomed, const Error& why) {
    if (!welcomed)
        p_.log.limited("tool", Loop::now(), Level::warning, "a connection ended before its hello",
                       {{"uid", int64_t{session->uid()}}, {"WHY", why}});
    drop(session);
}

// The caller may be in a loop over its sessions, so the session ends after it.
void ToolServer::finished(std::shared_ptr<ToolSession> session) {
    p_.loop.defer([this, session = std::move(session)] { drop(session.get()); });
}

// -------------------------------------------------------------------------------------------------
// requests

wire::CtlReply ToolServer::provider_request(const wire::CtlRequest& request) {
    return request.verb == "node-status" ? p_.views.status() : p_.rules.request(request);
}

std::optional<wire::CtlReply> ToolServer::view(const wire::CtlRequest& request) const {
    if (!p_.views.answers(request)) return std::nullopt;
    return p_.views.answer(request);
}

void ToolServer::ask_market(wire::CtlRequest request, std::function<void(wire::CtlReply)> answer) {
    if (request.verb == "quote")  // as a job without a word about its memory would get
        for (std::string& arg : request.args)
            if (arg == "memory=0")
                arg = "memory=" + std::to_string(p_.config.home.memory_default_mb);
    p_.market.ask(std::move(request), std::move(answer));
}

// The owner's word counts as root's. An operator of the market sees what this node does and changes
// nothing, because the node is its owner's.
void ToolServer::remote_request(uint64_t connection, const trust::Peer& who,
                                wire::CtlRequest request) {
    const bool owner = who.subject.roles == trust::only(trust::Role::owner);
    const bool changes = changes_offer(request);
    request.uid = 0;
    wire::CtlReply answer;
    if (changes && !owner)
        answer.error = {CauseCode::not_allowed,
                        "an operator may look at a node; what it offers is its owner's to say "
                        "(souk operator add --owner " +
                            p_.config.node + ")"};
    else if (request.verb == "guests")
        answer = p_.views.answer(request);
    else if (request.verb.starts_with("provider-") || request.verb == "node-status")
        answer = provider_request(request);
    else
        answer.error = "unknown request " + request.verb;
    answer.request = request.request;
    if (changes)
        p_.log.notice("a word from another host", {{"verb", request.verb},
                                                   {"from", who.subject.name},
                                                   {"taken", answer.ok ? "yes" : answer.error}});
    const auto of = waits_for(request);
    if (!answer.ok || !of) return p_.peers.answer_tool(connection, answer);
    when_guests_left(*of, [this, connection, answer]() mutable {
        answer.json = provider_json();
        p_.peers.answer_tool(connection, answer);
    });
}

}  // namespace souk
