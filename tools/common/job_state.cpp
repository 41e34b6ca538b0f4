// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_state.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace souk::tools {

std::string state_word(const std::string& status) {
    return status == "suspend" ? "frozen" : status;
}

std::string status_of_word(const std::string& word) { return word == "frozen" ? "suspend" : word; }

std::string job_state(const Json& job) {
    const std::string status = field(job, "status");
    if (status == "suspend" && job.value("stopped_in_place", false)) return "stands";
    return state_word(status);
}

StateColour state_colour(const std::string& state) {
    const std::string word = state.substr(0, state.find(','));
    if (word == "run" || word == "busy" || word == "free") return StateColour::run;
    if (word == "wait") return StateColour::wait;
    if (word == "frozen") return StateColour::frozen;
    if (word == "stands" || word == "unable" || word == "disconnected" || word == "lost")
        return StateColour::bad;
    if (word == "moving" || word == "starting" || word == "freezing" || word == "thawing")
        return StateColour::moves;
    return word == "off" || word == "finish" ? StateColour::dim : StateColour::plain;
}

std::string coloured_state(const std::string& state) {
    constexpr const char* codes[] = {"", "32", "33", "94", "35", "31", "90"};
    const char* const code = codes[static_cast<size_t>(state_colour(state))];
    return *code ? std::string("\x1b[") + code + "m" + state + "\x1b[0m" : state;
}

bool stdout_has_colours() {
    const char *const none = std::getenv("NO_COLOR"), *const terminal = std::getenv("TERM");
    return !(none && *none) && terminal && std::string_view(terminal) != "dumb" &&
           ::isatty(STDOUT_FILENO) == 1;
}

}  // namespace souk::tools
