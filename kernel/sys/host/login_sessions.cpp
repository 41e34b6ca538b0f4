// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/login_sessions.hpp"

#include <systemd/sd-login.h>

#include <cstdlib>
#include <utility>

namespace souk {
namespace {

// Frees the text that sd-login has allocated, and returns a copy of it.
std::string taken(int error, char* text) {
    const std::unique_ptr<char, void (*)(void*)> owned(error < 0 ? nullptr : text, ::free);
    return owned ? std::string(owned.get()) : std::string();
}

std::string text_of(int (*get)(const char*, char**), const char* session) {
    char* text = nullptr;
    const int error = get(session, &text);
    return taken(error, text);
}

std::string user_of(const char* session, const Accounts& accounts) {
    uid_t uid = 0;
    if (::sd_session_get_uid(session, &uid) < 0) return {};
    const auto account = accounts.numbered(uid);
    return account ? account->name : std::to_string(uid);
}

}  // namespace

Result<LoginSessions> LoginSessions::open() {
    sd_login_monitor* monitor = nullptr;
    if (const int error = ::sd_login_monitor_new("session", &monitor); error < 0)
        return fail_errno("watch login sessions", -error);
    return LoginSessions(Monitor(monitor, ::sd_login_monitor_unref));
}

int LoginSessions::fd() const { return ::sd_login_monitor_get_fd(monitor_.get()); }
short LoginSessions::events() const {
    return static_cast<short>(::sd_login_monitor_get_events(monitor_.get()));
}
void LoginSessions::flush() { (void)::sd_login_monitor_flush(monitor_.get()); }

std::vector<LoginSession> LoginSessions::active(const Accounts& accounts) {
    std::vector<LoginSession> all;
    char** names = nullptr;
    const int count = ::sd_get_sessions(&names);
    for (int i = 0; i < count; ++i) {
        const std::unique_ptr<char, void (*)(void*)> name(names[i], ::free);
        if (::sd_session_is_active(name.get()) <= 0) continue;
        if (text_of(::sd_session_get_class, name.get()) != "user") continue;
        all.push_back({name.get(), user_of(name.get(), accounts),
                       text_of(::sd_session_get_seat, name.get()),
                       ::sd_session_is_remote(name.get()) > 0});
    }
    if (count >= 0) ::free(names);
    return all;
}

}  // namespace souk
