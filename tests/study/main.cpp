// SPDX-License-Identifier: GPL-2.0-or-later
// study: what docs/market-study.md shows. `study --traces DIR [--out DIR] [--jobs N] [--seeds N]
// [STUDY...]` prints tables, and writes each study's as JSON into --out.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "kernel/base/number.hpp"
#include "tests/study/study.hpp"

using namespace souk;
using namespace souk::study;

namespace {
struct Study {
    const char* name;
    std::vector<Table> (*make)(const Settings& settings);
};
constexpr Study studies[] = {
    {"lies", lies_in_one_decision},  {"regret", lies_over_time},
    {"owners", owners_who_ask_more}, {"ratio", welfare_beside_the_optimum},
    {"side-by-side", side_by_side},
};

int usage(const std::string& what) {
    std::fprintf(stderr, "study: %s\nusage: study --traces DIR [--out DIR] [--jobs N] [--seeds N]",
                 what.c_str());
    for (const Study& s : studies) std::fprintf(stderr, " [%s]", s.name);
    std::fprintf(stderr, "\n");
    return 2;
}

void tell(const Study& study, const Settings& settings, const std::string& out) {
    std::string json = "[";
    for (const Table& table : study.make(settings)) {
        std::printf("%s", table.text().c_str());
        std::fflush(stdout);
        json += (json.size() > 1 ? ",\n" : "") + table.json();
    }
    if (out.empty()) return;
    std::ofstream(out + "/" + study.name + ".json") << json << "]\n";
}
}  // namespace

int main(int argc, char** argv) {
    Settings settings;
    std::string out;
    std::vector<const Study*> wanted;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word.starts_with("--")) {
            if (++i == argc) return usage(word + " needs a value");
            const auto count = whole_number<int64_t>(argv[i]);
            if (word == "--traces")
                settings.traces = argv[i];
            else if (word == "--out")
                out = argv[i];
            else if (word == "--jobs" && count && *count > 9)
                settings.jobs = *count;
            else if (word == "--seeds" && count && *count > 0)
                settings.seeds = *count;
            else
                return usage("'" + word + " " + argv[i] + "' is not understood");
            continue;
        }
        const Study* found = nullptr;
        for (const Study& s : studies)
            if (word == s.name) found = &s;
        if (!found) return usage("there is no study '" + word + "'");
        wanted.push_back(found);
    }
    if (settings.traces.empty()) return usage("--traces is missing");
    if (wanted.empty())
        for (const Study& s : studies) wanted.push_back(&s);
    for (const Study* s : wanted) tell(*s, settings, out);
    return 0;
}
