// SPDX-License-Identifier: GPL-2.0-or-later
// SystemAccounts: the users and groups of this machine, as its C library knows them. A look-up may
// read files or ask a network, so what was found is kept for a minute: who loses a group here keeps
// it for that long in jobs that begin.
#pragma once

#include <map>
#include <utility>

#include "kernel/base/account.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class SystemAccounts final : public Accounts {
  public:
    std::optional<Account> named(const std::string& name) const override;
    std::optional<Account> numbered(uint32_t uid) const override;
    std::vector<uint32_t> groups_of(const Account& account) const override;
    std::string group_name(uint32_t gid) const override;

  private:
    // Of a map from what is asked to what was found.
    template <class Map, class Look>
    const typename Map::mapped_type::second_type& kept(Map& known,
                                                       const typename Map::key_type& asked,
                                                       const Look& look) const;
    template <class Key, class Found>
    using Kept = std::map<Key, std::pair<Nanos, Found>>;  // until when
    mutable Kept<std::string, std::optional<Account>> names_;
    mutable Kept<uint32_t, std::optional<Account>> numbers_;
    mutable Kept<std::pair<std::string, uint32_t>, std::vector<uint32_t>> groups_;
    mutable Kept<uint32_t, std::string> group_names_;
};

}  // namespace souk
