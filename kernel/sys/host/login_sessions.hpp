// SPDX-License-Identifier: GPL-2.0-or-later
// LoginSessions: who is logged in on this machine, as logind tells (sd-login(3)). fd() is readable
// when that may have changed. Owned by one thread. Without logind, open() fails and says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel/base/account.hpp"
#include "kernel/base/result.hpp"

struct sd_login_monitor;

namespace souk {

struct LoginSession {
    std::string id, user, seat;  // seat: empty, if it is at none (ssh)
    bool remote = false;
    bool operator==(const LoginSession&) const = default;
};

class LoginSessions {
  public:
    static Result<LoginSessions> open();
    int fd() const;
    short events() const;
    // Takes the news. Call it when the descriptor is ready.
    void flush();
    // Returns the sessions of people (no greeter, no service) that are in use now.
    static std::vector<LoginSession> active(const Accounts& accounts);

  private:
    using Monitor = std::unique_ptr<sd_login_monitor, sd_login_monitor* (*)(sd_login_monitor*)>;
    explicit LoginSessions(Monitor monitor) : monitor_(std::move(monitor)) {}
    Monitor monitor_;
};

}  // namespace souk
