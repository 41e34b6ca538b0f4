// SPDX-License-Identifier: GPL-2.0-or-later
// souk-inspect and agentd talk to each other, and one of them may send any bytes. Reading them
// gives a value or an error of one line, and a value is what its packet says.
#include <string>

#include "agentd/inspect/answers.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace souk;
using namespace souk::inspect;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto answer = parse_answer(bytes);
    one_line(answer);
    if (answer) REQUIRE(*parse_answer(pack(*answer)) == *answer);
    const auto question = parse_question(bytes);
    one_line(question);
    if (question) REQUIRE(pack(*question) == bytes);
    return 0;
}
