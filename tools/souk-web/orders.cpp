// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/orders.hpp"

#include <algorithm>

#include "kernel/base/ids.hpp"
#include "kernel/trust/openssl.hpp"
#include "tools/web/actions.hpp"

namespace souk::tools::web {
namespace {

constexpr int nodes_max = 50;  // to choose from; another one is typed

std::string value_of(const Sent& sent, const char* name) {
    const auto it = sent.fields.find(name);
    return it == sent.fields.end() ? "" : it->second;
}

PageAnswer foreign() {
    return {403, "Not from here",
            trouble("Not from here",
                    "this form was not sent from a page of this souk-web, or from one that is too "
                    "old; open the page again")};
}
PageAnswer logged_out() {
    return {403, "Not logged in", trouble("Not logged in", "log in first, at /login")};
}
bool is_over_tls(const Sent& sent) { return sent.origin.starts_with("https://"); }

// The job that can be ordered about; else the page that says why not.
Result<Json> job_of(Asker& asker, const std::string& id) {
    TRY_ASSIGN(const JobId job, parse_job_id(id));
    return asker.ask("job", {job.text()});
}

}  // namespace

Result<Orders> Orders::open(Feed& feed, Logins& logins, const Guard& guard) {
    Orders orders(feed, logins, guard);
    TRY_ASSIGN(orders.login_key_, trust::random_secret(secret_bytes));
    return orders;
}

bool Orders::is_of_ours(const Sent& sent, const std::string& form_key) const {
    return guard_->is_own_origin(sent.origin, sent.host) &&
           (sent.site.empty() || sent.site == "same-origin") &&
           trust::is_same_secret(value_of(sent, "form"), form_key);
}

PageAnswer Orders::login_page() const { return {200, "Log in", login_form(login_key_, "")}; }

OrderAnswer Orders::log_in(const Sent& sent) {
    if (!is_of_ours(sent, login_key_)) return {foreign()};
    std::string token = value_of(sent, "token");
    std::erase_if(token, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
    const auto refused = [&](int status, const std::string& why) -> OrderAnswer {
        return {{status, "Log in", login_form(login_key_, why)}};
    };
    if (token.empty() || token.size() > 64 ||
        token.find_first_not_of("0123456789abcdef") != std::string::npos)
        return refused(400, "this is no token; marketctl web-token prints one");
    const auto session = feed_->tell("web-login", {token});
    if (!session) {
        const std::string& why = session.error().message;
        return refused(why.starts_with("too many") ? 429 : 403, why);
    }
    const auto login = logins_->begin(*session);
    if (!login) return refused(500, login.error().message);
    return {{}, "/", logins_->set_cookie(&*login, is_over_tls(sent))};
}

OrderAnswer Orders::log_out(Asker& asker, const Sent& sent) {
    const auto& login = asker.login();
    if (!login) return {{}, "/", ""};
    if (!is_of_ours(sent, login->visitor.form_key)) return {foreign()};
    // Log out here even if the market is away: this souk-web forgets the session.
    (void)feed_->tell("web-logout", {login->session});
    logins_->end(*login);
    return {{}, "/", logins_->set_cookie(nullptr, is_over_tls(sent))};
}

PageAnswer Orders::question(Asker& asker, const std::string& id, const std::string& verb) const {
    const Action* action = action_named(verb);
    if (!action) return {404, "Not found", trouble("Not found", "there is no such order")};
    const auto job = job_of(asker, id);
    if (!job) return {404, "Not found", trouble("Not found", job.error().message)};
    if (!asker.login()) return logged_out();
    Feed::Part nodes{Json::array(), ""};
    if (action->takes_node)
        if (auto part = asker.part("list-providers", {"page=" + std::to_string(nodes_max)}, ""))
            nodes = std::move(*part);
    return {
        200, std::string(action->name.text) + " job " + id,
        action_question(*action, *job, asker.login()->visitor, nodes.rows, !nodes.next.empty())};
}

OrderAnswer Orders::give(Asker& asker, const Sent& sent, const std::string& id,
                         const std::string& verb) {
    const Action* action = action_named(verb);
    const auto job = parse_job_id(id);
    if (!action || !job)
        return {{404, "Not found", trouble("Not found", "there is no such order or job")}};
    if (!asker.login()) return {logged_out()};
    const Login login = *asker.login();
    if (!is_of_ours(sent, login.visitor.form_key)) return {foreign()};
    std::vector<std::string> args = {job->text()};
    if (action->takes_node) {
        args.push_back(value_of(sent, "node"));
        if (!valid_node_name(args.back()))
            return {{400, "Not understood",
                     trouble("Not understood", "'" + args.back() + "' is not a node name")}};
    } else if (verb == "thaw") {
        args.emplace_back("-");
    }
    // A user may freeze and thaw a job of his; only an operator's word lasts until a release.
    if (action->may_hold) args.emplace_back(value_of(sent, "hold") == "yes" ? "hold" : "once");
    const auto done = asker.order(verb, args);
    if (!done) return {{409, "Not done", trouble("Not done", done.error().message)}};
    const std::string path = "/job/" + job->text(), said = field(*done, "message");
    logins_->tell(login, path, said == "-" || said.empty() ? verb + ": the order is given" : said);
    return {{}, path, ""};
}

}  // namespace souk::tools::web
