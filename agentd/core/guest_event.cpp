// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: the one entrance of all that befalls a job here. See guest_event.hpp.
#include "agentd/core/guest_event.hpp"

#include <utility>

#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;

namespace {

// What is told of it beside its name.
std::string words_of(const Event& event) {
    if (const auto* froze = std::get_if<DumpFroze>(&event)) return move_name(froze->forecast);
    if (const auto* held = std::get_if<DumpHeld>(&event)) return held->fenced ? "fenced" : "";
    if (const auto* image = std::get_if<ImageReceived>(&event)) return to_string(image->form);
    if (const auto* job = std::get_if<Stopped>(&event)) return job->is_stopped ? "" : "it goes on";
    if (const auto* look = std::get_if<Movable>(&event)) return look->why_not;
    return why_of(event);
}

}  // namespace

Input guest::input_of(const Event& event) {
    return std::visit([](const auto& e) { return e.input; }, event);
}

Trouble guest::why_of(const Event& event) {
    return std::visit(
        [](const auto& e) -> Trouble {
            if constexpr (requires { e.why; }) return e.why;
            return {};
        },
        event);
}

void Guest::ended(const GuestKey& key, Event event, Outputs& out) {
    const Input input = input_of(event);
    const Scene scene(
        *this, &out, [&] { return trace_in(input, key, words_of(event)); },
        input == Input::movable);
    if (input == Input::removed) leaving_.erase(key);
    if (Entry* e = entry(key))
        std::visit(
            [&](auto& happened) {
                if constexpr (requires { happened.otherwise; })
                    happened.why = happened.why.or_code(happened.otherwise);
                on(*e, std::move(happened), out);
            },
            event);
}

}  // namespace souk
