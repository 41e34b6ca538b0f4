// SPDX-License-Identifier: GPL-2.0-or-later
// Words that somebody may have meant who wrote one that there is not. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace souk::tools {

// "; did you mean 'list-jobs'?" of the word that is at most two letters away, or begins with
// `given`; empty: none is so, or several are as near.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace souk::tools
