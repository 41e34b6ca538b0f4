// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim: the market's algorithms on recorded work. See verbs.hpp.
#include <cstdio>
#include <string_view>

#include "kernel/base/json.hpp"
#include "kernel/base/version.hpp"
#include "tools/marketsim/verbs.hpp"

namespace {

struct Verb {
    std::string_view name;
    int (*run)(int argc, char** argv);
    const char* about;
};

constexpr Verb verbs[] = {
    {"run", souk::tools::marketsim_run, "job and provider files through the market's solver"},
    {"import", souk::tools::marketsim_import, "job and provider files from a job log"},
    {"compare", souk::tools::marketsim_compare, "solvers, pricings and parameters side by side"},
    {"report", souk::tools::marketsim_report, "one page of HTML of a comparison"},
    {"replay", souk::tools::marketsim_replay, "a job log straight through a policy on one machine"},
    {"reserve", souk::tools::marketsim_reserve, "what an owner earns who learns what to ask"},
    {"coallocation", souk::tools::marketsim_coallocation,
     "jobs of several components over clusters"},
};

int help_source() {
    souk::JsonWriter w;
    w.begin_object().field("program", "marketsim");
    w.field("about", "Simulates the market, and policies to compare with it, on recorded work.");
    w.key("options").begin_array().end_array().key("subprograms").begin_array();
    for (const Verb& verb : verbs) w.value(verb.name);
    w.end_array().end_object();
    std::puts(w.take().c_str());
    return 0;
}

int help() {
    std::fputs("usage: marketsim VERB [options]   (marketsim VERB --help tells more)\n", stdout);
    for (const Verb& verb : verbs) std::printf("  %-12s %s\n", verb.name.data(), verb.about);
    if (std::fflush(stdout) == 0) return 0;
    std::perror("marketsim: standard output");
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (souk::version_asked("marketsim", argc, argv)) return 0;
    if (argc < 2) {
        std::fputs("marketsim: a verb is needed: see marketsim --help\n", stderr);
        return 2;
    }
    const std::string_view name = argv[1];
    if (name == "--help" || name == "-h" || name == "help") return help();
    if (name == "--help-source") return help_source();
    for (const Verb& verb : verbs)
        if (verb.name == name) return verb.run(argc - 1, argv + 1);
    std::fprintf(stderr, "marketsim: no verb '%s': see marketsim --help\n", argv[1]);
    return 2;
}
