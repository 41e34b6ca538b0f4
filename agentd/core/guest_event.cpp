// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_event.hpp"

namespace souk::guest {

Input input_of(const Event& event) {
    return std::visit([](const auto& e) { return e.input; }, event);
}

Trouble why_of(const Event& event) {
    return std::visit(
        [](const auto& e) -> Trouble {
            if constexpr (requires { e.why; }) return e.why;
            return {};
        },
        event);
}

std::string text_of(const Event& event) {
    if (const auto* froze = std::get_if<DumpFroze>(&event)) return move_name(froze->forecast);
    if (const auto* held = std::get_if<DumpHeld>(&event)) return held->fenced ? "fenced" : "";
    if (const auto* image = std::get_if<ImageReceived>(&event)) return to_string(image->form);
    if (const auto* job = std::get_if<Stopped>(&event)) return job->is_stopped ? "" : "it goes on";
    if (const auto* look = std::get_if<Movable>(&event)) return look->why_not;
    return why_of(event);
}

}  // namespace souk::guest
