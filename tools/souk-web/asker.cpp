// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/asker.hpp"

namespace souk::tools::web {

std::vector<std::string> Asker::words_of(const std::string& verb,
                                         const std::vector<std::string>& args) const {
    std::vector<std::string> words = {login_->session, verb};
    words.insert(words.end(), args.begin(), args.end());
    return words;
}

// The market's words for it begin so (market/core/web_sessions.cpp).
bool Asker::is_logged_out(const Error& error) {
    if (!login_ || !error.message.starts_with("not logged in any more")) return false;
    logins_->end(*login_);
    login_.reset();
    return true;
}

Result<Json> Asker::ask(const std::string& verb, const std::vector<std::string>& args) {
    if (!login_) return feed_.ask(verb, args);
    auto answer = feed_.ask("web", words_of(verb, args));
    if (answer || !is_logged_out(answer.error())) return answer;
    return feed_.ask(verb, args);
}

Result<Feed::Part> Asker::part(const std::string& verb, const std::vector<std::string>& args,
                               const std::string& after) {
    if (!login_) return feed_.part(verb, args, after);
    auto answer = feed_.part("web", words_of(verb, args), after);
    if (answer || !is_logged_out(answer.error())) return answer;
    return feed_.part(verb, args, after);
}

Result<Json> Asker::order(const std::string& verb, const std::vector<std::string>& args) {
    if (!login_) return fail("nobody has logged in");
    auto answer = feed_.tell("web", words_of(verb, args));
    if (!answer) is_logged_out(answer.error());
    return answer;
}

Visitor Asker::visitor() const {
    Visitor visitor;
    visitor.may_log_in = logins_ != nullptr;
    return login_ ? login_->visitor : visitor;
}

std::string Asker::told(const std::string& path) const {
    return login_ ? logins_->told(*login_, path) : "";
}

}  // namespace souk::tools::web
