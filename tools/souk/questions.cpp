// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/questions.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace souk {

namespace {

constexpr int tries_max = 3;
constexpr size_t line_bytes_max = 4'096;

Result<std::string> line_of_person() {
    std::string line;
    for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
        if (c == EOF) return fail("no answer: nothing is changed");
        if (line.size() < line_bytes_max) line += static_cast<char>(c);
    }
    const size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    return first == std::string::npos ? std::string() : line.substr(first, last - first + 1);
}

}  // namespace

bool somebody_is_there() { return ::isatty(0) == 1 && ::isatty(1) == 1; }

Result<std::string> ask_person(const std::string& question, const std::string& otherwise) {
    const std::string shown = otherwise.empty() ? "" : " [" + otherwise + "]";
    for (int i = 0; i < tries_max; ++i) {
        std::printf("%s%s: ", question.c_str(), shown.c_str());
        std::fflush(stdout);
        TRY_ASSIGN(std::string answer, line_of_person());
        if (!answer.empty()) return answer;
        if (!otherwise.empty()) return otherwise;
    }
    return fail("no answer: nothing is changed");
}

Result<std::string> ask_person(const std::string& question, const std::vector<std::string>& words,
                               const std::string& otherwise) {
    for (int i = 0; i < tries_max; ++i) {
        TRY_ASSIGN(std::string answer, ask_person(question, otherwise));
        if (std::find(words.begin(), words.end(), answer) != words.end()) return answer;
    }
    return fail("no answer that is understood: nothing is changed");
}

}  // namespace souk
