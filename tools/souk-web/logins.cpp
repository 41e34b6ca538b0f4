// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/logins.hpp"

#include <algorithm>

#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk::tools::web {
namespace {

constexpr size_t logins_max = 1'024;
constexpr Nanos told_for = Nanos::from_s(20);

}  // namespace

std::string_view cookie_named(std::string_view cookies, std::string_view name) {
    while (!cookies.empty()) {
        const size_t end = std::min(cookies.find(';'), cookies.size());
        std::string_view one = cookies.substr(0, end);
        cookies.remove_prefix(std::min(end + 1, cookies.size()));
        one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
        if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
            return one.substr(name.size() + 1);
    }
    return {};
}

Result<Login> Logins::begin(const Json& session) {
    Login login;
    login.session = field(session, "session");
    login.visitor.may_log_in = true;
    login.visitor.operates = session.value("operates", false);
    login.visitor.uid = session.value("uid", uint64_t{0});
    login.ends = monotonic_now() + Nanos::from_s(session.value("lives_s", int64_t{0}));
    const auto account =
        SystemAccounts(std::nullopt).numbered(static_cast<uint32_t>(login.visitor.uid));
    login.visitor.name = account ? account->name : "user " + std::to_string(login.visitor.uid);
    TRY_ASSIGN(login.cookie, trust::random_secret(secret_bytes));
    TRY_ASSIGN(login.visitor.form_key, trust::random_secret(secret_bytes));
    const std::lock_guard lock(mutex_);
    const Nanos now = monotonic_now();
    std::erase_if(entries_, [now](const Entry& e) { return e.login.ends <= now; });
    if (entries_.size() >= logins_max) entries_.erase(entries_.begin());
    entries_.push_back({login, "", "", now});
    return login;
}

// All are looked at, so that the time says nothing.
Logins::Entry* Logins::find(std::string_view cookie) {
    Entry* found = nullptr;
    for (Entry& entry : entries_)
        if (trust::is_same_secret(entry.login.cookie, cookie)) found = &entry;
    return found && found->login.ends > monotonic_now() ? found : nullptr;
}

std::optional<Login> Logins::of(std::string_view cookies) {
    const std::string_view cookie = cookie_named(cookies, name_);
    if (cookie.empty()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const Entry* entry = find(cookie);
    return entry ? std::optional(entry->login) : std::nullopt;
}

void Logins::end(const Login& login) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& e) { return e.login.cookie == login.cookie; });
}

std::string Logins::set_cookie(const Login* login, bool over_tls) const {
    const int64_t left = login ? (login->ends - monotonic_now()).ns / 1'000'000'000 : 0;
    return name_ + "=" + (login ? login->cookie : "") + "; Path=/; HttpOnly; SameSite=Strict" +
           (over_tls ? "; Secure" : "") + "; Max-Age=" + std::to_string(std::max<int64_t>(0, left));
}

void Logins::tell(const Login& login, const std::string& path, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (Entry* entry = find(login.cookie)) {
        entry->path = path;
        entry->text = text;
        entry->until = monotonic_now() + told_for;
    }
}

std::string Logins::told(const Login& login, const std::string& path) {
    const std::lock_guard lock(mutex_);
    const Entry* entry = find(login.cookie);
    return entry && entry->path == path && monotonic_now() < entry->until ? entry->text : "";
}

}  // namespace souk::tools::web
