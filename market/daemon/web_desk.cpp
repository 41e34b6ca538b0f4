// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/web_desk.hpp"

#include <optional>
#include <utility>

#include "kernel/base/json.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {

namespace {

constexpr size_t secret_bytes = 16;

// Unwraps what the user of a session asks.
Result<wire::CtlRequest> unwrapped(market::WebSessions& sessions,
                                   const market::WebSessions::Speaker& who,
                                   const wire::CtlRequest& request) {
    if (request.args.size() < 2) return fail("web: a session or a verb is missing");
    TRY_ASSIGN(const uint32_t uid,
               sessions.user_of(trust::sha256(request.args[0]), who, Loop::now()));
    wire::CtlRequest asked = request;
    asked.uid = uid;
    asked.verb = request.args[1];
    asked.args.erase(asked.args.begin(), asked.args.begin() + 2);
    TRY(market::web_may_ask(asked.verb, asked.args));
    return asked;
}

}  // namespace

Status WebDesk::check_user() const {
    if (config_.web_user.empty()) return {};
    TRY_ASSIGN(const auto known, accounts_.told([&] { return accounts_.named(config_.web_user); }));
    if (!known) return fail("web_user: this machine has no user '" + config_.web_user + "'");
    return {};
}

Result<std::string> WebDesk::answered(const market::WebSessions::Speaker& who,
                                      const wire::CtlRequest& request) {
    if (who.uid == market::nobody_uid)
        return fail(
            "only a user of a node, root on the market's machine, or an operator may do so");
    if (request.args.size() != (request.verb == "web-token" ? 0U : 1U))
        return fail(request.verb + ": a word is missing, or one too many");
    JsonWriter w;
    w.begin_object();
    if (request.verb == "web-token") {
        TRY_ASSIGN(const std::string token, trust::random_secret(secret_bytes));
        TRY(sessions_.add_token(trust::sha256(token), who, Loop::now()));
        w.field("token", token).field("uid", who.uid);
        w.field("lives_s", market::web_token_life.seconds());
    } else if (request.verb == "web-logout") {
        sessions_.end(trust::sha256(request.args[0]), who);
    } else if (request.verb == "web-login") {
        TRY_ASSIGN(const auto account,
                   accounts_.told([&] { return accounts_.named(config_.web_user); }));
        const auto may_serve = account ? std::optional(account->uid) : std::nullopt;
        TRY_ASSIGN(const std::string session, trust::random_secret(secret_bytes));
        TRY_ASSIGN(const uint32_t uid,
                   sessions_.exchange(trust::sha256(request.args[0]), trust::sha256(session), who,
                                      may_serve, Loop::now()));
        log_.notice("a user has logged in at a page", {{"uid", static_cast<int64_t>(uid)},
                                                       {"of", static_cast<int64_t>(who.uid)},
                                                       {"via", who.via}});
        w.field("session", session).field("uid", uid);
        w.field("operates", uid == market::root_uid);
        w.field("lives_s", market::web_session_life.seconds());
    } else {
        return fail("the market does not know the verb '" + request.verb + "'");
    }
    w.end_object();
    return w.take();
}

bool WebDesk::answer(uint64_t number, const Connection& c, wire::CtlRequest& request) {
    if (request.verb != "web" && !request.verb.starts_with("web-")) return false;
    const std::string via =
        c.local ? "" : (c.kind == Connection::Kind::agent ? "node " : "operator ") + c.node;
    const market::WebSessions::Speaker who{request.uid, via};
    wire::CtlReply reply{request.request, false, {}, {}, {}};
    if (request.verb == "web") {
        auto asked = unwrapped(sessions_, who, request);
        if (asked) {
            request = std::move(*asked);
            trust_.audit(c, request, true);
            return false;
        }
        reply.error = asked.error();
    } else if (auto json = answered(who, request)) {
        reply.ok = true;
        reply.json = std::move(*json);
    } else {
        reply.error = json.error();
        log_.limited("web " + via, Loop::now(), Level::warning, "a page's question was refused",
                     {{"verb", request.verb},
                      {"uid", static_cast<int64_t>(who.uid)},
                      {"via", via},
                      {"WHY", reply.error}});
    }
    replies_.add(number, std::move(reply));
    return true;
}

}  // namespace souk
