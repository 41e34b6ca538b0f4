// SPDX-License-Identifier: GPL-2.0-or-later
// Finds the parts of this installation, starting from the running program. The installation may be
// a build (all programs in one directory), or an installed prefix (bin, sbin, lib/souk), wherever
// that was moved to.
#pragma once

#include <string>

namespace souk {

// Returns the directory of the running program.
std::string program_directory();
// Returns the path of another program: beside the running one, else in lib/souk, sbin or bin of its
// prefix. If it is nowhere, the path is beside the running program.
std::string program_path(const std::string& name);
// Returns the prefix of the CRIU that was installed with Souk (package souk-criu); empty if there
// is none.
std::string installed_criu_root();
// Returns installed_criu_root(), else the prefix that `make deps` uses; there may be no CRIU in it.
std::string criu_root();

// Returns a path beside an agentd's state directory: files there are root's alone
// (agentd/who/who.hpp).
std::string beside_state(const std::string& state);
// This file there is the certificate of the market that the agentd has joined.
inline constexpr const char* kept_market = "/market.pem";

}  // namespace souk
