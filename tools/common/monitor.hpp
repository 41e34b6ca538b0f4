// SPDX-License-Identifier: GPL-2.0-or-later
// Makes what mmon shows: lines of text, from what the market answered and how the user looks at it.
// Pure: no clock, terminal or connection, so that a test compares the lines. tools/mmon draws them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"

namespace souk::tools::mmon {

// The market answered this last (tools/common/replies.md); lists are JSON lists.
struct Seen {
    Json status = Json::object();
    Json nodes = Json::array(), jobs = Json::array(), prices = Json::array();
    Json peers = Json::array();  // likewise, of peer-list
    std::string trouble;         // why it is not fresh; empty: it is
};

// All of them are on the screen at once, moves where there are some; keys go to one.
enum class Panel : uint8_t { nodes, jobs, moves };
inline constexpr size_t unsorted = SIZE_MAX;  // jobs: those that run first

// The user looks at it like this.
struct View {
    Panel panel = Panel::jobs;
    size_t sort[3] = {0, unsorted, 0};  // by this column of each panel
    bool down[3] = {false, false, false};
    size_t selected[3] = {0, 0, 0};
    size_t top[3] = {0, 0, 0};       // the first row that is shown
    std::set<std::string> unfolded;  // groups whose jobs are shown, by their ids
    std::string filter;              // rows that hold this text, with no group folded
    std::string open;                // a job or node that all is shown of; empty: none
    std::string question;            // asked in the last line
    std::string said;                // what became of an order
    bool help = false;
    bool unicode = true;
};

using Colour = StateColour;
struct Line {
    enum class Kind : uint8_t { plain, head, title, chosen_title, selected, key };
    std::string text;
    Kind kind = Kind::plain;
    struct Paint {
        size_t from = 0, length = 0;  // in characters
        Colour colour = Colour::plain;
    };
    std::vector<Paint> paints = {};
};

// Exactly `rows` lines of at most `columns` characters. Brings what is selected into the view.
std::vector<Line> screen(const Seen& seen, View& view, size_t rows, size_t columns);
// All there is, without a selection, for --once.
std::string once(const Seen& seen, const View& view);

// A key, as one of the words below, or a single character: what changes in the view.
//   up down page_up page_down home end left right tab enter escape
void press(const std::string& key, const Seen& seen, View& view);
// The id of what is selected or open; empty: nothing is. Of a group that of its first job.
std::string chosen(const Seen& seen, const View& view);
// Returns "array" or "gang" if a group is selected, else nothing.
std::string chosen_group(const Seen& seen, const View& view);

// The last values as a line of bars, `width` characters at most; a value below 0 is a gap.
std::string sparkline(const std::vector<double>& values, size_t width, bool unicode);

}  // namespace souk::tools::mmon
