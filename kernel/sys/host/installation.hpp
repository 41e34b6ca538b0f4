// SPDX-License-Identifier: GPL-2.0-or-later
// Where the parts of this installation lie, seen from the running program: it may be a build (all
// programs in one directory), or a prefix that was installed (bin, sbin, lib/souk), wherever that
// was moved to.
#pragma once

#include <string>

namespace souk {

// The directory of the running program.
std::string program_directory();
// Another program: beside the running one, else in lib/souk, sbin or bin of its prefix. Where none
// is: beside it.
std::string program_path(const std::string& name);
// The prefix of the CRIU that was installed with Souk (package souk-criu); empty: there is none.
std::string installed_criu_root();
// That, else the one that `make deps` made; there may be nothing.
std::string criu_root();

// Beside an agentd's state directory, what is root's alone (agentd/who/who.hpp).
std::string beside_state(const std::string& state);
// There: of the market that it has joined.
inline constexpr const char* kept_market = "/market.pem";

}  // namespace souk
