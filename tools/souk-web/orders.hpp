// SPDX-License-Identifier: GPL-2.0-or-later
// Orders: logging in and out, and what a visitor who has logged in orders, asked back once. The
// forms of tools/web/actions.hpp lead here. Each POST must come from a page of this server: its
// Origin is looked at, and the key that each form holds.
#pragma once

#include <string>

#include "tools/souk-web/answers.hpp"
#include "tools/souk-web/asker.hpp"
#include "tools/souk-web/guard.hpp"

namespace souk::tools::web {

// A browser's POST brings this.
struct Sent {
    std::string path, host, origin, site;  // site: Sec-Fetch-Site
    Query fields;
};
struct OrderAnswer {
    PageAnswer page;       // is sent, unless:
    std::string go_to{};   // the browser is led to this page
    std::string cookie{};  // is set, if not empty
};

class Orders {
  public:
    // `feed`, `logins` and `guard` outlive this. Errors: no random bits.
    static Result<Orders> open(Feed& feed, Logins& logins, const Guard& guard);

    PageAnswer login_page() const;
    OrderAnswer log_in(const Sent& sent);
    OrderAnswer log_out(Asker& asker, const Sent& sent);
    // The question, and what is done when it is answered. `id`, `verb`: of the address.
    PageAnswer question(Asker& asker, const std::string& id, const std::string& verb) const;
    OrderAnswer give(Asker& asker, const Sent& sent, const std::string& id,
                     const std::string& verb);

  private:
    Orders(Feed& feed, Logins& logins, const Guard& guard)
        : feed_(&feed), logins_(&logins), guard_(&guard) {}
    bool is_of_ours(const Sent& sent, const std::string& form_key) const;

    Feed* feed_;
    Logins* logins_;
    const Guard* guard_;
    std::string login_key_;
};

}  // namespace souk::tools::web
