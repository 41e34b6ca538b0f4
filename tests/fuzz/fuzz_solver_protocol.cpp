// SPDX-License-Identifier: GPL-2.0-or-later
// Lines of the solver's text protocol, both directions: what is accepted must format to a line that
// gives the same, and a session must survive any sequence of lines.
#include <cstdlib>
#include <string>
#include <string_view>

#include "market/core/solver_protocol.hpp"
#include "market/core/solver_session.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace souk::market;
    std::string_view text(reinterpret_cast<const char*>(data), size);
    SolverSession session;
    while (!text.empty() && !session.ended()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (const auto command = parse_command(line)) {
            const std::string formatted = format_command(*command);
            const auto again = parse_command(formatted);
            if (!again || again->index() != command->index() || format_command(*again) != formatted)
                std::abort();
        }
        if (const auto a = parse_alloc_line(line); a && !parse_alloc_line(format_alloc_line(*a)))
            std::abort();
        if (const auto p = parse_payment_line(line);
            p && !parse_payment_line(format_payment_line(*p)))
            std::abort();
        const std::string answer = session.take(line);
        if (!answer.empty() && answer.back() != '\n') std::abort();
    }
    return 0;
}
