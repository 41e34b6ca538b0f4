// SPDX-License-Identifier: GPL-2.0-or-later
// WebSessions: for whom a souk-web may ask and give orders. A user asks for a token at a terminal,
// where the kernel (or his certificate) says who he is. The souk-web to which he gives it exchanges
// it, once, for a session of that user, and puts the session before each question of his.
//
// It holds digests, and never a token or a session's secret. It is in memory alone: when marketd is
// started anew, everybody logs in again. What fails: too many of them, or one that is not known,
// over, used already, or somebody else's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

inline constexpr Nanos web_token_life = Nanos::from_s(120);
inline constexpr Nanos web_session_life = Nanos::from_s(8 * 3'600);

class WebSessions {
  public:
    // The caller: by the kernel's word on the market's socket (`via` is empty), by a node's word or
    // by an operator's certificate (`via` is the name).
    struct Speaker {
        uint32_t uid = 0;
        std::string via;
        bool operator==(const Speaker&) const = default;
    };

    // `digest`: of a token for this user.
    Status add_token(const std::string& digest, const Speaker& user, Nanos now);
    // `may_serve`: the account whose souk-web serves everybody, on the market's own machine. All
    // others serve themselves alone; who is root, or an operator, may serve anybody.
    // `token`, `session`: digests; of the session that begins if this is a user's number.
    Result<uint32_t> exchange(const std::string& token, const std::string& session,
                              const Speaker& web, std::optional<uint32_t> may_serve, Nanos now);
    // Whose session it is. Only the souk-web that began it is told.
    Result<uint32_t> user_of(const std::string& session, const Speaker& web, Nanos now);
    void end(const std::string& session, const Speaker& web);

  private:
    struct Token {
        Speaker user;
        Nanos ends;
    };
    struct Begun {
        uint32_t uid = 0;
        Speaker web;
        Nanos ends;
    };
    struct Tries {
        Nanos since;
        int count = 0;
    };
    void forget_old(Nanos now);
    Status one_more_try(const Speaker& web, Nanos now);

    std::map<std::string, Token> tokens_;
    std::map<std::string, Begun> sessions_;
    std::map<std::pair<uint32_t, std::string>, Tries> wrong_;
};

// Which questions and orders a session is good for: what a page shows, and what is ordered of one
// job. The words are a CtlRequest's. Errors: it is none of these.
Status web_may_ask(const std::string& verb, const std::vector<std::string>& args);

}  // namespace souk::market
