// SPDX-License-Identifier: GPL-2.0-or-later
// pvdctl: what this node offers on the market, for its owner.
#include <string_view>

#include "kernel/base/money.hpp"
#include "market/wire/paths.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"
#include "tools/pvdctl/status.hpp"

namespace souk::tools {
namespace {

constexpr const char* tool = "pvdctl";

struct Request {
    std::string verb;
    std::vector<std::string> args;
};

Result<Request> parse_set(std::span<char*> words) {
    if (words.size() != 3) return fail("set: a name (price, memory, speed, cpus or frames) and a value are wanted");
    const std::string_view key = words[1], value = words[2];
    if (key == "price") {
        if (const auto price = parse_money(value); !price) return wrap("set price", price.error());
    } else if (key == "memory" || key == "speed" || key == "cpus") {
        const int64_t max = key == "memory" ? int64_t{1} << 40 : key == "speed" ? 1'000'000 : 65'536;
        if (const auto number = parse_whole(value, 1, max); !number)
            return wrap("set " + std::string(key), number.error());
    } else if (key != "frames") {
        return fail("set: '" + std::string(key) + "' is not one of price, memory, speed, cpus, frames");
    }
    return Request{"provider-set", {std::string(key), std::string(value)}};
}

Result<Request> parse_words(std::span<char*> words) {
    const std::string_view verb = words.empty() ? "" : words[0];
    if (verb == "status") {
        if (words.size() > 1) return fail(std::string("status: unexpected argument '") + words[1] + "'");
        return Request{"provider-status", {}};
    }
    if (verb == "set") return parse_set(words);
    if (verb == "market") {
        const std::string_view word = words.size() == 2 ? words[1] : "";
        if (word != "on" && word != "off") return fail("market: on or off is wanted");
        return Request{"provider-market", {std::string(word)}};
    }
    return fail(verb.empty() ? "a verb is missing: status, set or market"
                             : "'" + std::string(verb) + "' is not a verb: status, set or market");
}

int failed(const Error& error) {
    complain(tool, error.message);
    return 1;
}

int run(int argc, char** argv) {
    std::string node, socket;
    bool json = false;
    const CommandLine line{
        tool,
        "[options] status | set NAME VALUE | market on|off",
        "Shows and sets what a node offers on the market.",
        {{0, "node", "NAME", "the node (default $SOUK_NODE, then this machine's)", set_text(node)},
         {0, "socket", "PATH", "its agentd's socket", set_text(socket)},
         {0, "json", nullptr, "print the daemon's JSON", set_flag(json)}},
        "\n  status            on or off the market, reservation price, what guests pay, what would take the node\n"
        "  set price N       reservation price per CPU-hour\n"
        "  set memory MB     memory offered\n"
        "  set speed N       speed reported; 100 is standard\n"
        "  set cpus N        CPUs offered\n"
        "  set frames TEXT   when the node is on the market by itself (such as 'always')\n"
        "  market on         offer the node\n"
        "  market off        leave the market; every guest goes at once\n",
        true};
    std::span<char*> words;
    switch (parse(line, argc, argv, words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    const auto request = parse_words(words);
    if (!request) {
        complain(tool, request.error().message + " (see pvdctl --help)");
        return 2;
    }
    const auto path = wire::find_agentd(socket, node);
    if (!path) return failed(path.error());
    const auto answer = ask(*path, request->verb, request->args);
    if (!answer) return failed(answer.error());
    if (!json && request->verb != "provider-status") return 0;
    const Result<std::string> text = json ? *answer : provider_status_text(*answer);
    if (!text) return failed(text.error());
    if (const Status printed = print(*text); !printed) return failed(printed.error());
    return 0;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
