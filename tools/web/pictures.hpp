// SPDX-License-Identifier: GPL-2.0-or-later
// Pictures of a page as SVG: a line of prices, and lanes in which something lasted from one time to
// another (a job's life, what ran on nodes). Pure. Colours are style.css's.
#pragma once

#include <string>
#include <vector>

#include "tools/common/table.hpp"
#include "tools/web/html.hpp"

namespace souk::tools::web {

struct Stretch {
    double from = 0, to = 0;  // Unix seconds
    double value = 0;         // below 0: none, a gap
};
// A line from `from` to `to` (Unix seconds), each stretch where its time is. `label` says the
// same in words.
Html line_picture(const std::vector<Stretch>& stretches, double from, double to,
                  const std::string& label);

struct Bar {
    enum class Kind { waits, runs, frozen, stopped, unknown };
    size_t lane = 0;
    double from = 0, to = 0;  // Unix seconds
    Kind kind = Kind::runs;
    std::string label;    // what a pointer over it shows
    std::string address;  // where it leads; empty: nowhere
};
struct Mark {
    size_t lane = 0;
    double at = 0;
    std::string label;
};
struct Lanes {
    std::vector<std::string> names;
    std::vector<Bar> bars;
    std::vector<Mark> marks;
    double from = 0, to = 0;
};
Html lanes_picture(const Lanes& lanes, const std::string& label);

// A job's story (tools/common/replies.md) as lanes: a lane for each node in the order in which the
// job came there, and one for its waits. `now`: until when what lasts has lasted.
Lanes lanes_of_story(const Json& story, double now);

}  // namespace souk::tools::web
