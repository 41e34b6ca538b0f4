// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/web_sessions.hpp"

#include <algorithm>
#include <string_view>

#include "kernel/base/ids.hpp"

namespace souk::market {
namespace {

// One node that speaks for many users leaves the others theirs.
constexpr size_t all_max = 4'096, node_max = 256, each_max = 16;
constexpr int wrong_max = 10;
constexpr ptrdiff_t tries_node_max = 64;  // so many users of one node may have tried a wrong one
constexpr Nanos wrong_within = Nanos::from_s(60);

// Makes room for one more of this user: his oldest goes, or that of the node which speaks for him.
// `speaker`: of an entry.
template <class Map>
Status make_room(Map& all, const WebSessions::Speaker& who, const auto& speaker) {
    auto oldest = all.end(), nodes_oldest = all.end();
    size_t his = 0, of_node = 0;
    for (auto it = all.begin(); it != all.end(); ++it) {
        const WebSessions::Speaker one = speaker(it->second);
        if (one.via != who.via) continue;
        ++of_node;
        if (nodes_oldest == all.end() || it->second.ends < nodes_oldest->second.ends)
            nodes_oldest = it;
        if (one.uid != who.uid) continue;
        ++his;
        if (oldest == all.end() || it->second.ends < oldest->second.ends) oldest = it;
    }
    if (his >= each_max)
        all.erase(oldest);
    else if (!who.via.empty() && of_node >= node_max)
        all.erase(nodes_oldest);
    if (all.size() < all_max) return {};
    return fail("too many are logged in at pages of this market; try again later");
}

}  // namespace

void WebSessions::forget_old(Nanos now) {
    std::erase_if(tokens_, [now](const auto& t) { return t.second.ends <= now; });
    std::erase_if(sessions_, [now](const auto& s) { return s.second.ends <= now; });
    std::erase_if(wrong_, [now](const auto& w) { return now - w.second.since >= wrong_within; });
}

Status WebSessions::add_token(const std::string& digest, const Speaker& user, Nanos now) {
    forget_old(now);
    TRY(make_room(tokens_, user, [](const Token& t) { return t.user; }));
    tokens_.insert_or_assign(digest, Token{user, now + web_token_life});
    return {};
}

Status WebSessions::one_more_try(const Speaker& web, Nanos now) {
    const auto found = wrong_.find({web.uid, web.via});
    if (found == wrong_.end() || found->second.count < wrong_max) return {};
    const int64_t left =
        (found->second.since + wrong_within - now + Nanos{999'999'999}).ns / 1'000'000'000;
    return fail("too many wrong tokens; try again in " + std::to_string(left) + " s");
}

Result<uint32_t> WebSessions::exchange(const std::string& token, const std::string& session,
                                       const Speaker& web, std::optional<uint32_t> may_serve,
                                       Nanos now) {
    forget_old(now);
    TRY(one_more_try(web, now));
    const auto found = tokens_.find(token);
    if (found == tokens_.end()) {
        const auto of_node = std::ranges::count_if(
            wrong_, [&](const auto& one) { return one.first.second == web.via; });
        if (wrong_.size() >= all_max || (!web.via.empty() && of_node >= tries_node_max))
            return fail("too many wrong tokens; try again in a minute");
        Tries& tries = wrong_[{web.uid, web.via}];
        if (tries.count++ == 0) tries.since = now;
        return fail("this token is not good: it was used, is older than " +
                    std::to_string(web_token_life.ns / 1'000'000'000) +
                    " s, or never was one (marketctl web-token makes one)");
    }
    const Token known = found->second;
    tokens_.erase(found);  // also when it is refused
    const bool serves = web.via.empty() && may_serve && *may_serve == web.uid;
    if (web.uid != 0 && web.uid != known.user.uid && !serves)
        return fail("this souk-web runs as user " + std::to_string(web.uid) +
                    ", and may not serve others (web_user of marketd's configuration); run a "
                    "souk-web of your own");
    TRY(make_room(sessions_, Speaker{known.user.uid, web.via}, [](const Begun& s) {
        return Speaker{s.uid, s.web.via};
    }));
    sessions_.insert_or_assign(session, Begun{known.user.uid, web, now + web_session_life});
    return known.user.uid;
}

Result<uint32_t> WebSessions::user_of(const std::string& session, const Speaker& web, Nanos now) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.ends <= now || !(found->second.web == web))
        return fail("not logged in any more: log in again");
    return found->second.uid;
}

void WebSessions::end(const std::string& session, const Speaker& web) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end() && found->second.web == web) sessions_.erase(found);
}

Status web_may_ask(const std::string& verb, const std::vector<std::string>& args) {
    constexpr std::string_view shown[] = {"status", "list-jobs", "list-providers", "job",
                                          "why",    "story",     "account",        "receipts",
                                          "report", "prices",    "statement",      "peer-list"};
    constexpr std::string_view orders[] = {"cancel", "move", "freeze", "thaw", "hold", "release"};
    const auto among = [&](const auto& verbs) {
        return std::find(std::begin(verbs), std::end(verbs), verb) != std::end(verbs);
    };
    if (among(shown)) return {};
    if (!among(orders)) return fail("a page may not ask for '" + verb + "'");
    if (args.empty() || !parse_job_id(args[0]) ||
        ((verb == "cancel" || verb == "hold" || verb == "release") && args.size() > 1))
        return fail(verb + ": a page gives an order to one job");
    return {};
}

}  // namespace souk::market
