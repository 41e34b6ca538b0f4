// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/args.hpp"

#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include <cstdio>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "kernel/base/version.hpp"

namespace souk::tools {
namespace {

constexpr int help_value = 1000, version_value = 1001, source_value = 1002, first_value = 2000;
constexpr const char *help_help = "show this and exit", *version_help = "show the version and exit";

void print_help(const CommandLine& line) {
    std::string text =
        std::string("usage: ") + line.tool + " " + line.synopsis + "\n" + line.summary + "\n\n";
    const auto row = [&](char letter, const std::string& name, const char* help) {
        std::string left = letter ? std::string("  -") + letter + ", " : "      ";
        left += "--" + name;
        left.append(left.size() < 28 ? 28 - left.size() : 0, ' ');
        text += left + "  " + help + "\n";
    };
    for (const Option& o : line.options)
        row(o.letter,
            std::string(o.name) + (!o.value          ? ""
                                   : *o.value == '[' ? o.value
                                                     : std::string(" ") + o.value),
            o.help);
    row('h', "help", help_help);
    row(0, "version", version_help);
    if (!line.verbs.empty()) text += "\n";
    for (const VerbHelp& verb : line.verbs) {
        std::string left = std::string("  ") + verb.words;
        if (left.size() > 20) left += "\n";
        left.append(left.size() < 20 ? 20 - left.size() : left.ends_with('\n') ? 20 : 0, ' ');
        text += left + "  " + verb.help + "\n";
    }
    text += line.footer;
    std::fputs(text.c_str(), stdout);
}

// A letter as a text; without one it is empty.
std::string letter_text(char letter) { return letter ? std::string(1, letter) : ""; }

void print_source(const CommandLine& line) {
    JsonWriter w;
    const auto option = [&](char letter, const char* name, const char* value, const char* help) {
        w.begin_object().field("letter", letter_text(letter)).field("name", name);
        w.field("value", value ? value : "").field("help", help).end_object();
    };
    w.begin_object().field("program", line.tool).field("synopsis", line.synopsis);
    w.field("about", line.summary).key("options").begin_array();
    for (const Option& o : line.options) option(o.letter, o.name, o.value, o.help);
    option('h', "help", nullptr, help_help);
    option(0, "version", nullptr, version_help);
    w.end_array().key("verbs").begin_array();
    for (const VerbHelp& verb : line.verbs)
        w.begin_object().field("words", verb.words).field("help", verb.help).end_object();
    w.end_array().field("notes", line.footer).end_object();
    std::puts(w.take().c_str());
}

}  // namespace

std::optional<int> parse_options(const CommandLine& line, int argc, char** argv) {
    std::span<char*> words;
    switch (parse(line, argc, argv, words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    if (words.empty()) return std::nullopt;
    complain(line.tool,
             "unexpected argument '" + std::string(words[0]) + "' (see " + line.tool + " --help)");
    return 2;
}

void keep_standard_fds() {
    for (int fd = 0; fd <= 2; ++fd)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) _exit(1);
}

void complain(const char* tool, std::string_view text) {
    const std::string all = std::string(tool) + ": " + std::string(text) + "\n";
    if (write(STDERR_FILENO, all.data(), all.size()) < 0) return;  // nobody is there to be told
}

Parsed parse(const CommandLine& line, int argc, char** argv, std::span<char*>& rest) {
    std::string letters = line.mixed ? ":h" : "+:h";
    std::vector<option> longs;
    for (size_t i = 0; i < line.options.size(); ++i) {
        const Option& o = line.options[i];
        const int takes = !o.value          ? no_argument
                          : *o.value == '[' ? optional_argument
                                            : required_argument;
        longs.push_back({o.name, takes, nullptr, first_value + static_cast<int>(i)});
        if (!o.letter) continue;
        letters += o.letter;
        if (takes == required_argument) letters += ':';
    }
    longs.push_back({"help", no_argument, nullptr, help_value});
    longs.push_back({"version", no_argument, nullptr, version_value});
    longs.push_back({"help-source", no_argument, nullptr, source_value});
    longs.push_back({});
    const auto failed = [&](const std::string& why) {
        complain(line.tool, why + " (see " + line.tool + " --help)");
        return Parsed::failed;
    };

    opterr = 0;
    optind = 1;
    for (;;) {
        const int value = getopt_long(argc, argv, letters.c_str(), longs.data(), nullptr);
        if (value == -1) break;
        if (value == 'h' || value == help_value) {
            print_help(line);
            return Parsed::done;
        }
        if (value == source_value) {
            print_source(line);
            return Parsed::done;
        }
        if (value == version_value) {
            print_version(line.tool);
            return Parsed::done;
        }
        const bool by_letter = optopt > 0 && optopt < 256;
        const std::string given =
            by_letter ? std::string("-") + static_cast<char>(optopt) : argv[optind - 1];
        if (value == ':') return failed("'" + given + "' needs a value");
        if (value == '?') {
            if (optopt >= help_value) return failed("'" + given + "' takes no value");
            if (by_letter && optopt >= '0' && optopt <= '9')
                return failed("'" + given + "' is not an option, and no value is below 0");
            return failed("unknown or ambiguous option '" + given + "'");
        }
        for (size_t i = 0; i < line.options.size(); ++i) {
            const Option& o = line.options[i];
            if (value != o.letter && value != first_value + static_cast<int>(i)) continue;
            if (auto status = o.set(optarg); !status)
                return failed(std::string("--") + o.name + ": " + status.error().message);
            break;
        }
    }
    rest = std::span<char*>(argv + optind, argv + argc);
    return Parsed::go;
}

std::function<Status(const char*)> set_flag(bool& flag) {
    return [&flag](const char*) -> Status {
        flag = true;
        return {};
    };
}

std::function<Status(const char*)> set_text(std::string& text) {
    return [&text](const char* value) -> Status {
        text = value;
        return {};
    };
}

std::function<Status(const char*)> set_span(Nanos& span, Nanos plain, Nanos most) {
    return [&span, plain, most](const char* text) -> Status {
        TRY_ASSIGN(span, parse_span(text, plain, Nanos{1}, most));
        return {};
    };
}

Result<int64_t> parse_whole(std::string_view text, int64_t lo, int64_t hi) {
    const auto n = whole_number<int64_t>(text);
    if (!n || *n < lo || *n > hi)
        return fail("'" + std::string(text) + "' is not a whole number from " + std::to_string(lo) +
                    " to " + std::to_string(hi));
    return *n;
}

}  // namespace souk::tools
