// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/complain.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "kernel/base/cause.hpp"
#include "kernel/base/json.hpp"

namespace souk {

void complain(const char* program, std::string_view text, std::string_view code) {
    const char* const form = std::getenv("SOUK_ERRORS");
    std::string all = std::string(program) + ": " + std::string(text);
    if (form && std::string_view(form) == "json") {
        JsonWriter w;
        w.begin_object().key("error").begin_object().field("program", program);
        all = w.field("code", code).field("message", text).end_object().end_object().take();
    }
    all += '\n';
    if (write(STDERR_FILENO, all.data(), all.size()) < 0) return;  // nobody is there to be told
}

void complain(const char* program, const Error& error) {
    complain(program, error.message, code_of(error));
}

int complain_usage(const char* program, std::string_view why) {
    complain(program, std::string(why) + " (see " + program + " --help)",
             to_string(CauseCode::invalid));
    return 2;
}

}  // namespace souk
