// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/messages.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

std::string output_file_name(std::string_view pattern, const OutputSigns& signs) {
    const auto in_a_path = [](std::string text) {
        std::replace(text.begin(), text.end(), '/', '_');
        return text;
    };
    std::string name;
    for (size_t at = 0; at < pattern.size(); ++at) {
        const char sign = pattern[at] == '%' && at + 1 < pattern.size() ? pattern[at + 1] : '\0';
        switch (sign) {
            case 'j': name += signs.id.text(); break;
            case 'a': name += signs.index ? std::to_string(*signs.index) : ""; break;
            case 'A': name += signs.array.text(); break;
            case 'N': name += signs.id.home; break;
            case 'x': name += in_a_path(signs.name); break;
            case 'u': name += in_a_path(signs.user); break;
            case '%': name += '%'; break;
            default: name += pattern[at]; continue;
        }
        ++at;
    }
    return name;
}

const char* to_string(ComponentClass c) {
    switch (c) {
        case ComponentClass::required: return "required";
        case ComponentClass::interactive: return "interactive";
        case ComponentClass::optional: return "optional";
    }
    MUST(false);
}

const char* to_string(GuestVerb verb) {
    switch (verb) {
        case GuestVerb::query: return "query";
        case GuestVerb::start: return "start";
        case GuestVerb::prepare: return "prepare";
        case GuestVerb::prepare_dump: return "prepare_dump";
        case GuestVerb::ship: return "ship";
        case GuestVerb::freeze: return "freeze";
        case GuestVerb::commit: return "commit";
        case GuestVerb::resume: return "resume";
        case GuestVerb::release: return "release";
        case GuestVerb::restore_here: return "restore_here";
        case GuestVerb::drop: return "drop";
        case GuestVerb::kill: return "kill";
        case GuestVerb::signal: return "signal";
        case GuestVerb::keep: return "keep";
        case GuestVerb::checkpoint: return "checkpoint";
    }
    MUST(false);
}

const char* to_string(GuestState state) {
    switch (state) {
        case GuestState::unknown: return "unknown";
        case GuestState::starting: return "starting";
        case GuestState::running: return "running";
        case GuestState::dump_ready: return "dump_ready";
        case GuestState::dumping: return "dumping";
        case GuestState::shipped: return "shipped";
        case GuestState::frozen: return "frozen";
        case GuestState::prepared: return "prepared";
        case GuestState::held: return "held";
        case GuestState::exited: return "exited";
        case GuestState::killed: return "killed";
        case GuestState::failed: return "failed";
        case GuestState::retained: return "retained";
        case GuestState::filling: return "filling";
    }
    MUST(false);
}

}  // namespace souk
