// SPDX-License-Identifier: GPL-2.0-or-later
// Components as a multi-request of the Globus resource specification language, as co-allocators of
// its time took it:
//
//   + ( &(label="a") (count=8) (subjobStartType=strict-barrier) (environment=(X 1) (Y 2))
//        (rslSubstitution=(DIR /data)) (directory=$(DIR)/run) (executable=/bin/solve)
//        (arguments=4 4) )
//     ( & ... )
//
// count is what it needs of processors. resourceManagerContact names the node: of the contact of a
// cluster's manager the first part of its host ("fs0" of "fs0.site.org:2119/jobmanager"), because
// such a cluster is a node here. Names of attributes are of any case, with _ or without.
// maxWallTime, maxTime and maxCpuTime are limits in minutes. startTime, duration (minutes),
// deadline and promise are of the whole job. What has no meaning here is an error, but for what
// says how processes were to be started there (jobType, subjobCommsType), which is passed over.
#include <algorithm>

#include "tools/srun/components.hpp"

namespace souk::tools::components {
namespace {

constexpr int depth_max = 16;

struct Known {
    const char *theirs, *ours;  // ours empty: passed over
};
constexpr Known known_attributes[] = {{"label", "label"},
                                      {"count", "cpus"},
                                      {"subjobstarttype", "class"},
                                      {"executable", "program"},
                                      {"arguments", "arguments"},
                                      {"environment", "environment"},
                                      {"directory", "directory"},
                                      {"memory", "memory"},
                                      {"minmemory", "memory"},
                                      {"maxmemory", "memory"},
                                      {"resourcemanagercontact", "contact"},
                                      {"stdout", "output"},
                                      {"stderr", "error"},
                                      {"maxwalltime", "time"},
                                      {"maxtime", "time"},
                                      {"maxcputime", "cpu_time"},
                                      {"jobtype", ""},
                                      {"subjobcommstype", ""}};
// These are of the whole job, and no two requests may say otherwise.
constexpr Known known_of_job[] = {
    {"starttime", "start"}, {"duration", "for"}, {"deadline", "finish"}, {"promise", "promise"}};
constexpr Known known_starts[] = {
    {"strict-barrier", "required"}, {"loose-barrier", "interactive"}, {"no-barrier", "optional"}};

class RequestParser {
  public:
    explicit RequestParser(std::string_view text) : text_(text) {}

    Result<File> parse() {
        File file;
        if (next() == '&') {
            TRY(request(file));
            TRY(end());
            return file;
        }
        if (next() == '+') step();
        while (next() == '(') {
            step();
            TRY(request(file));
            TRY(expect(')'));
        }
        TRY(end());
        return file;
    }

  private:
    tl::unexpected<Error> bad(const std::string& what) const {
        return fail(std::to_string(line_) + ": " + what);
    }
    void step() {
        if (text_[at_] == '\n') ++line_;
        ++at_;
    }
    // The next character that is neither blank nor of a comment (* ... *); 0: the end.
    char next() {
        while (at_ < text_.size()) {
            if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
                step();
            } else if (text_.substr(at_, 2) == "(*") {
                const size_t last = std::min(text_.find("*)", at_ + 2), text_.size() - 2) + 2;
                while (at_ < last) step();
            } else {
                return text_[at_];
            }
        }
        return 0;
    }
    Status expect(char c) {
        if (next() != c)
            return bad(std::string("a ") + c + " is missing" +
                       (at_ < text_.size() ? std::string(" before '") + text_[at_] + "'"
                                           : std::string(" at the end")));
        step();
        return {};
    }
    Status end() {
        if (next() == 0) return {};
        return bad(std::string("'") + text_[at_] + "' is no request (& ...)");
    }

    // & and its relations.
    Status request(File& file) {
        if (next() == '|')
            return bad(
                "a choice (|) has no meaning here: submit one of its requests; the market "
                "chooses the nodes where no resourceManagerContact stands");
        TRY(expect('&'));
        Request r;
        r.line = line_;
        while (next() == '(') {
            step();
            TRY(relation(r));
            TRY(expect(')'));
        }
        file.requests.push_back(std::move(r));
        return {};
    }

    Status relation(Request& r) {
        if (next() == '&' || next() == '|' || next() == '+')
            return bad("a request within a request has no meaning here");
        std::string name;
        for (; at_ < text_.size() && word(text_[at_]); step())
            if (text_[at_] != '_')
                name += static_cast<char>(std::tolower(static_cast<unsigned char>(text_[at_])));
        if (name.empty()) return bad("the name of an attribute is missing");
        next();
        std::string sign;
        for (; at_ < text_.size() && std::string_view("<>=!").find(text_[at_]) < 4; step())
            sign += text_[at_];
        Value all;
        all.is_list = true;
        all.line = line_;
        while (next() != ')' && next() != 0) {
            TRY_ASSIGN(all.list.emplace_back(), value(0));
        }
        if (name == "rslsubstitution") return substitute(r, all);
        const auto* known = std::ranges::find_if(
            known_attributes, [&](const Known& one) { return name == one.theirs; });
        const auto* of_job = std::ranges::find_if(
            known_of_job, [&](const Known& one) { return name == one.theirs; });
        if (of_job != std::end(known_of_job) && sign == "=") {
            r.job.emplace_back(of_job->ours, std::move(all));
            return {};
        }
        if (known == std::end(known_attributes)) return bad("'" + name + "' has no meaning here");
        const std::string ours = known->ours;
        if (sign != "=" && !(ours == "memory" && sign == ">="))
            return bad(name + ": '" + sign + "' has no meaning here: write " + name + "=...");
        if (ours.empty()) return {};
        if (ours == "class") start_type(all);
        r.attributes.emplace_back(ours, std::move(all));
        return {};
    }

    Status substitute(Request& r, const Value& all) {
        for (const Value& pair : all.list) {
            const bool good = pair.is_list && pair.list.size() == 2 && !pair.list[0].is_list &&
                              !pair.list[1].is_list && pair.list[0].text.size() == 1 &&
                              !pair.list[0].text[0].name;
            if (!good) return bad("rslSubstitution: needs pairs (NAME value)");
            r.names[pair.list[0].text[0].text] = pair.list[1].text;
        }
        return {};
    }

    static void start_type(Value& all) {
        if (all.list.size() != 1 || all.list[0].text.size() != 1) return;
        std::string& text = all.list[0].text[0].text;
        for (const Known& start : known_starts)
            if (text == start.theirs) text = start.ours;
    }

    static bool word(char c) {
        return c != 0 &&
               std::string_view(" \t\r\n()&|+=<>!\"'^#$").find(c) == std::string_view::npos;
    }

    Result<Value> value(int depth) {
        if (depth > depth_max) return bad("parentheses lie too deep");
        Value v;
        v.line = line_;
        if (next() == '(') {
            step();
            v.is_list = true;
            while (next() != ')' && next() != 0) {
                TRY_ASSIGN(v.list.emplace_back(), value(depth + 1));
            }
            TRY(expect(')'));
            return v;
        }
        // Parts that touch each other, or have # between them, are one text.
        for (;;) {
            TRY_ASSIGN(Piece piece, part());
            if (v.text.empty() || piece.name || v.text.back().name)
                v.text.push_back(std::move(piece));
            else
                v.text.back().text += piece.text;
            const size_t was = at_;
            if (next() == '#') {
                step();
                next();
                continue;
            }
            const char c = at_ < text_.size() ? text_[at_] : ')';
            if (at_ != was || !(word(c) || c == '$' || c == '"' || c == '\'')) return v;
        }
    }

    Result<Piece> part() {
        const char c = at_ < text_.size() ? text_[at_] : '\0';
        if (c == '"' || c == '\'') return quoted(c);
        Piece piece;
        if (c == '$') {
            step();
            TRY(expect('('));
            next();
            for (; at_ < text_.size() && word(text_[at_]); step()) piece.text += text_[at_];
            piece.name = true;
            if (piece.text.empty()) return bad("a name is missing after $(");
            TRY(expect(')'));
            return piece;
        }
        for (; at_ < text_.size() && word(text_[at_]); step()) piece.text += text_[at_];
        if (piece.text.empty())
            return bad(c ? std::string("'") + c + "' is no value"
                         : "a value is missing at the end");
        return piece;
    }

    // A mark that is written twice is of the text.
    Result<Piece> quoted(char mark) {
        Piece piece;
        const uint32_t begins = line_;
        for (step(); at_ < text_.size(); step()) {
            if (text_[at_] == mark) {
                if (at_ + 1 == text_.size() || text_[at_ + 1] != mark) {
                    step();
                    return piece;
                }
                step();
            }
            piece.text += text_[at_];
        }
        return fail(std::to_string(begins) + ": a text in quotes does not end");
    }

    std::string_view text_;
    size_t at_ = 0;
    uint32_t line_ = 1;
};

}  // namespace

Result<File> parse_request(std::string_view text) { return RequestParser(text).parse(); }

}  // namespace souk::tools::components
