// SPDX-License-Identifier: GPL-2.0-or-later
// Answers each address: asks the market what the page needs, and tools/web writes the page.
#pragma once

#include <map>
#include <span>
#include <string>

#include "tools/souk-web/asker.hpp"
#include "tools/web/html.hpp"

namespace souk::tools::web {

using Query = std::map<std::string, std::string>;  // decoded; `id`: the part of the path

struct PageAnswer {
    int status = 200;
    std::string title;
    Html main;
};

struct AnswerRoute {
    const char* pattern;  // of the path; its group is the `id`
    const char* place;    // in the navigation
    PageAnswer (*answer)(Asker& asker, const Query& query);
};
std::span<const AnswerRoute> routes();
// Returns the market's name; empty if the market did not say.
std::string market_name(Feed& feed);

}  // namespace souk::tools::web
