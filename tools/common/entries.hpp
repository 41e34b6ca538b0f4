// SPDX-License-Identifier: GPL-2.0-or-later
// Lists of entries of several kinds, as `pvdctl guests` and `marketctl dump` bring them. As
// table.hpp: for .cpp files of tools that print answers.
#pragma once

#include <functional>

#include "tools/common/table.hpp"

namespace souk::tools {

// Calls `each` for every entry, in the order of all parts. Errors: the answer is no list.
Status for_each_entry(const Answer& answer, const std::function<void(const Json& entry)>& each);
// Every key with its value, a line each; what is empty is left out. Lists with commas, objects as
// JSON.
std::string all_of_entry(const Json& entry);
// Words that stand after one another, "-" if there is none.
std::string words(std::initializer_list<std::string> words);

}  // namespace souk::tools
