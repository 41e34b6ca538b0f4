// SPDX-License-Identifier: GPL-2.0-or-later
// SystemAccounts: the users and groups of this machine, as its C library knows them. A look-up may
// read files or ask a network, so what was found is kept for a minute: who loses a group here keeps
// it for that long in jobs that begin. Nobody waits for one for longer than `limit`: then who
// was found before is there for longer, and for a while nobody else is looked up. So he is if he
// cannot be looked up at all (no descriptor is left, say). Of others nothing comes back then, as of
// who is not there: told() tells the two from each other, as far as the machine's name services do
// (some say of everybody that he is not there when their own daemon is down).
#pragma once

#include <cerrno>
#include <map>
#include <type_traits>
#include <utility>

#include "kernel/base/account.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/late_answers.hpp"

namespace souk {

inline constexpr const char* accounts_silent = "the accounts of this machine are not told in time";

class SystemAccounts final : public Accounts {
  public:
    // Without a limit the caller waits for each answer itself, and no thread is used.
    explicit SystemAccounts(std::optional<Nanos> limit = Nanos::from_s(2)) : limit_(limit) {}
    // Returns the result of `ask`, which asks this object. EAGAIN: a question of `ask` had no
    // answer, so its result would be worth nothing; the message says why.
    template <class Ask>
    Result<std::invoke_result_t<Ask>> told(const Ask& ask) const {
        silent_.reset();
        auto found = ask();
        if (silent_) return tl::unexpected(Error{EAGAIN, *silent_});
        return found;
    }
    std::optional<Account> named(const std::string& name) const override;
    std::optional<Account> numbered(uint32_t uid) const override;
    std::vector<uint32_t> groups_of(const Account& account) const override;
    std::string group_name(uint32_t gid) const override;

  private:
    // Answers from a map of earlier questions and their answers. `look` must not refer to the
    // caller's variables, because its thread may outlive the call; it fails if the account could
    // not be looked up.
    template <class Map, class Look>
    typename Map::mapped_type::second_type kept(Map& known, const typename Map::key_type& asked,
                                                Look look) const;
    template <class Key, class Found>
    using Kept = std::map<Key, std::pair<Nanos, Found>>;  // until when
    mutable Kept<std::string, std::optional<Account>> names_;
    mutable Kept<uint32_t, std::optional<Account>> numbers_;
    mutable Kept<std::pair<std::string, uint32_t>, std::vector<uint32_t>> groups_;
    mutable Kept<uint32_t, std::string> group_names_;
    const std::optional<Nanos> limit_;
    mutable LateAnswers answers_;
    mutable Nanos rest_;                         // until when nobody is looked up
    mutable std::optional<std::string> silent_;  // a question had no answer: why
};

}  // namespace souk
