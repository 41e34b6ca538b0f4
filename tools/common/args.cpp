// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/args.hpp"

#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "kernel/base/version.hpp"
#include "tools/common/nearest.hpp"

namespace souk::tools {
namespace {

constexpr int help_value = 1000, version_value = 1001, source_value = 1002, first_value = 2000;
constexpr const char *help_help = "show this and exit", *version_help = "show the version and exit";

std::string synopsis_of(const CommandLine& line) {
    if (line.synopsis) return line.synopsis;
    std::string text = "[options]";
    for (const Argument& a : line.arguments)
        text += std::string(" ") + a.name + (a.several ? "..." : "");
    return text + (line.commands.empty() ? "" : " COMMAND");
}

const char* last_word(const char* text) {
    const char* blank = std::strrchr(text, ' ');
    return blank ? blank + 1 : text;
}

// A program has a version, a command below it has none of its own.
bool has_version(const CommandLine& line) { return !std::strchr(line.tool, ' '); }

// Above 20 characters a word has a line of its own, above its help.
std::string verb_row(const char* words, const char* help) {
    std::string left = std::string("  ") + words;
    if (left.size() > 20) left += "\n";
    left.append(left.size() < 20 ? 20 - left.size() : left.ends_with('\n') ? 20 : 0, ' ');
    return left + "  " + help + "\n";
}

void print_help(const CommandLine& line) {
    std::string text =
        std::string("usage: ") + line.tool + " " + synopsis_of(line) + "\n" + line.summary + "\n\n";
    for (const Argument& a : line.arguments) text += verb_row(a.name, a.help);
    if (!line.arguments.empty()) text += "\n";
    const auto row = [&](char letter, const std::string& name, const std::string& help) {
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
            o.help + std::string(o.required ? " (needed)" : "") +
                (o.usual.empty() ? "" : " (default: " + o.usual + ")"));
    row('h', "help", help_help);
    if (has_version(line)) row(0, "version", version_help);
    if (!line.verbs.empty() || !line.commands.empty()) text += "\n";
    for (const VerbHelp& verb : line.verbs) text += verb_row(verb.words, verb.help);
    for (const CommandLine& c : line.commands) text += verb_row(last_word(c.tool), c.summary);
    text += line.footer;
    std::fputs(text.c_str(), stdout);
}

// A letter as a text; without one it is empty.
std::string letter_text(char letter) { return letter ? std::string(1, letter) : ""; }

void write_option(JsonWriter& w, const Option& o) {
    w.begin_object().field("letter", letter_text(o.letter)).field("name", o.name);
    w.field("value", o.value ? o.value : "").field("help", o.help);
    if (o.required) w.field("required", true);
    if (!o.usual.empty()) w.field("default", o.usual);
    w.end_object();
}

void write_source(JsonWriter& w, const CommandLine& line) {
    w.begin_object().field("program", line.tool);
    if (line.synopsis) w.field("synopsis", line.synopsis);
    w.field("about", line.summary).key("options").begin_array();
    for (const Option& o : line.options) write_option(w, o);
    write_option(w, {'h', "help", nullptr, help_help, {}});
    if (has_version(line)) write_option(w, {0, "version", nullptr, version_help, {}});
    w.end_array().key("verbs").begin_array();
    for (const VerbHelp& verb : line.verbs)
        w.begin_object().field("words", verb.words).field("help", verb.help).end_object();
    w.end_array().field("notes", line.footer);
    if (!line.arguments.empty()) {
        w.key("arguments").begin_array();
        for (const Argument& a : line.arguments)
            w.begin_object().field("name", a.name).field("help", a.help).end_object();
        w.end_array();
    }
    if (!line.commands.empty()) {
        w.key("commands").begin_array();
        for (const CommandLine& c : line.commands) write_source(w, c);
        w.end_array();
    }
    w.end_object();
}

void print_source(const CommandLine& line) {
    JsonWriter w;
    write_source(w, line);
    std::puts(w.take().c_str());
}

Status take_arguments(const CommandLine& line, std::span<char*> words) {
    for (const Argument& a : line.arguments) {
        if (words.empty()) return fail(std::string(a.name) + " is required");
        do {
            TRY(a.set(words[0]));
            words = words.subspan(1);
        } while (a.several && !words.empty());
    }
    if (words.empty()) return {};
    return fail("unexpected argument '" + std::string(words[0]) + "'");
}

int takes_of(const Option& o) {
    return !o.value ? no_argument : *o.value == '[' ? optional_argument : required_argument;
}

std::vector<option> long_options(const CommandLine& line) {
    std::vector<option> longs;
    for (int i = first_value; const Option& o : line.options)
        longs.push_back({o.name, takes_of(o), nullptr, i++});
    longs.push_back({"help", no_argument, nullptr, help_value});
    if (has_version(line)) longs.push_back({"version", no_argument, nullptr, version_value});
    longs.push_back({"help-source", no_argument, nullptr, source_value});
    longs.push_back({});
    return longs;
}

std::string short_options(const CommandLine& line) {
    std::string letters = line.mixed || !line.arguments.empty() ? ":h" : "+:h";
    for (const Option& o : line.options) {
        if (!o.letter) continue;
        letters += o.letter;
        if (takes_of(o) == required_argument) letters += ':';
    }
    return letters;
}

// The end of a complaint: an option that somebody may have meant, or that does it here.
std::string meant(const CommandLine& line, const std::string& given) {
    const std::string option = given.substr(0, given.find('='));
    const std::string here = line.elsewhere ? line.elsewhere(option) : "";
    if (!here.empty()) return ": " + here;
    if (!option.starts_with("--")) return {};
    std::vector<std::string> known;
    known.reserve(line.options.size());
    for (const Option& o : line.options) known.push_back("--" + std::string(o.name));
    // Two that begin so are ambiguous, and both are in --help.
    return did_you_mean(option, known);
}

std::vector<std::string> verbs_of(const std::vector<CommandLine>& commands) {
    std::vector<std::string> all;
    all.reserve(commands.size());
    for (const CommandLine& c : commands) all.emplace_back(last_word(c.tool));
    return all;
}

// "up, down or status".
std::string names_of(const std::vector<CommandLine>& commands) {
    std::string all;
    for (const CommandLine& c : commands)
        all += std::string(all.empty()              ? ""
                           : &c == &commands.back() ? " or "
                                                    : ", ") +
               last_word(c.tool);
    return all;
}

}  // namespace

std::optional<int> parse_options(const CommandLine& line, int argc, char** argv) {
    std::span<char*> words;
    switch (parse(line, argc, argv, words)) {
        case Parsed::done:
            if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
            complain(line.tool, std::string("standard output: ") + std::strerror(errno));
            return 1;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    const Status taken = take_arguments(line, words);
    if (taken) return std::nullopt;
    return complain_usage(line.tool, taken.error().message);
}

int run_command(const CommandLine& line, int argc, char** argv) {
    if (argc > 1 && *argv[1] != '-' && !line.commands.empty()) {
        for (const CommandLine& c : line.commands)
            if (std::strcmp(last_word(c.tool), argv[1]) == 0)
                return run_command(c, argc - 1, argv + 1);
        return complain_usage(line.tool, "'" + std::string(argv[1]) +
                                             "' is not a verb: " + names_of(line.commands) +
                                             did_you_mean(argv[1], verbs_of(line.commands)));
    }
    if (const auto status = parse_options(line, argc, argv)) return *status;
    if (line.run) return line.run();
    return complain_usage(line.tool, "a verb is needed: " + names_of(line.commands));
}

void keep_standard_fds() {
    for (int fd = 0; fd <= 2; ++fd)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) _exit(1);
}

Parsed parse(const CommandLine& line, int argc, char** argv, std::span<char*>& rest) {
    const std::vector<option> longs = long_options(line);
    const std::string letters = short_options(line);
    std::vector<bool> seen(line.options.size());
    const auto failed = [&](const std::string& why) {
        complain_usage(line.tool, line.at + why);
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
            return failed("unknown or ambiguous option '" + given + "'" + meant(line, given));
        }
        for (size_t i = 0; i < line.options.size(); ++i) {
            const Option& o = line.options[i];
            if (value != o.letter && value != first_value + static_cast<int>(i)) continue;
            if (o.once && seen[i]) return failed(std::string("--") + o.name + " is given twice");
            seen[i] = true;
            if (auto status = o.set(optarg); !status)
                return failed(std::string("--") + o.name + ": " + status.error().message);
            break;
        }
    }
    for (size_t i = 0; i < line.options.size(); ++i)
        if (line.options[i].required && !seen[i])
            return failed(std::string("--") + line.options[i].name + " is required");
    rest = std::span<char*>(argv + optind, argv + argc);
    return Parsed::go;
}

const char* lasting(std::string text) {
    static std::deque<std::string> texts;
    return texts.emplace_back(std::move(text)).c_str();
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

std::function<Status(const char*)> add_text(std::vector<std::string>& texts) {
    return [&texts](const char* value) -> Status {
        texts.emplace_back(value);
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
