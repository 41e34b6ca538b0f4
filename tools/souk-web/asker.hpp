// SPDX-License-Identifier: GPL-2.0-or-later
// Asker: the market as one request of a browser asks it: for who has logged in there, else as the
// user whom souk-web runs as.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/souk-web/feed.hpp"
#include "tools/souk-web/logins.hpp"

namespace souk::tools::web {

class Asker {
  public:
    // `feed` and `logins` outlive this. `logins` is null where nobody can log in.
    Asker(Feed& feed, Logins* logins, std::optional<Login> login)
        : feed_(feed), logins_(logins), login_(std::move(login)) {}

    // These ask as Feed does. If the market does not know the session any more, the visitor is
    // logged out and is shown what everybody may see.
    Result<Json> ask(const std::string& verb, const std::vector<std::string>& args);
    Result<Feed::Part> part(const std::string& verb, const std::vector<std::string>& args,
                            const std::string& after);
    // Gives an order, once. Errors: also that nobody has logged in.
    Result<Json> order(const std::string& verb, const std::vector<std::string>& args);

    const std::optional<Login>& login() const { return login_; }
    Visitor visitor() const;
    // Returns the text that the visitor is told on this page.
    std::string told(const std::string& path) const;

  private:
    std::vector<std::string> words_of(const std::string& verb,
                                      const std::vector<std::string>& args) const;
    bool is_logged_out(const Error& error);

    Feed& feed_;
    Logins* logins_;
    std::optional<Login> login_;
};

}  // namespace souk::tools::web
