// SPDX-License-Identifier: GPL-2.0-or-later
// The users who own a node besides root, as its configuration names them.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/account.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// Names of users, and of groups behind an @, parted by blanks.
Status check_owner_names(const std::string& owners);

// Whether somebody with these numbers is one of them. Who is unknown here is nobody.
bool owned_by(const std::string& owners, uint32_t uid, const std::vector<uint32_t>& groups,
              const Accounts& accounts);

}  // namespace souk
