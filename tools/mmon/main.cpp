// SPDX-License-Identifier: GPL-2.0-or-later
// mmon: the market on a terminal. It asks the daemon that marketctl asks, as often as costs it less
// than a hundredth of the time; tools/common/monitor.hpp says what is shown, this file draws it and
// gives orders.
#include <langinfo.h>
#include <ncurses.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <ctime>
#include <map>

#include "kernel/base/ids.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/monitor.hpp"
#include "tools/common/paths.hpp"

namespace souk::tools::mmon {
namespace {

constexpr const char* mmon = "mmon";
constexpr Nanos answer_patience = Nanos{};

struct Options {
    std::string node, socket;
    bool once = false, plain = false;
    Nanos every = Nanos::from_s(2);
};

Nanos cpu_now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return Nanos{t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

class Monitor {
  public:
    explicit Monitor(const Options& options) : options_(options) {
        view_.unicode = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
    }

    Status refresh() {
        const std::string since = std::to_string(::time(nullptr) - 6 * 3'600);
        auto fresh = Seen{};
        TRY_ASSIGN(fresh.status, parsed("status", {}));
        TRY_ASSIGN(fresh.nodes, parsed("list-providers", {}));
        TRY_ASSIGN(fresh.jobs, parsed("list-jobs", {"state=live"}));
        TRY_ASSIGN(fresh.prices, parsed("prices", {since, "360"}));
        // A market of a version before knows no peers.
        if (const auto sites = parsed("peer-list", {}); sites && sites->is_object())
            fresh.peers = sites->value("peers", Json::array());
        seen_ = std::move(fresh);
        return {};
    }
    std::string text() const { return once(seen_, view_); }
    void run();

  private:
    Result<Json> parsed(const std::string& verb, const std::vector<std::string>& args) {
        const auto find = [this] { return wire::find_market(options_.socket, options_.node); };
        TRY_ASSIGN(Answer answer, ask(find, verb, args, answer_patience));
        TRY_ASSIGN(const std::string text, joined(std::move(answer)));
        Json json = parse_json(text);
        if (json.is_discarded()) return fail("the market's answer is not JSON");
        return json;
    }
    void look();
    void draw();
    bool key(int code);
    std::string typed(const std::string& question);
    bool sure(const std::string& question) { return typed(question + " (y/n) ") == "y"; }
    void give(const std::string& verb, const std::string& what, std::vector<std::string> args);
    void order(char what);
    void begin_colours();

    const Options& options_;
    Seen seen_;
    View view_;
    bool coloured_ = false;
    Nanos due_{};
};

// Asks the market and draws. The time that this costs decides when it is done again: it never takes
// more than a hundredth of a processor.
void Monitor::look() {
    constexpr int64_t share = 100;
    const Nanos before = cpu_now();
    const Status fresh = refresh();
    seen_.trouble = fresh ? "" : fresh.error().message + "; it is tried again";
    draw();
    const Nanos cost = cpu_now() - before;
    due_ = monotonic_now() + std::max(options_.every, Nanos{cost.ns * share});
}

void Monitor::draw() {
    erase();
    const auto lines = screen(seen_, view_, static_cast<size_t>(std::max(LINES, 5)),
                              static_cast<size_t>(std::max(COLS, 20)));
    for (size_t i = 0; i < lines.size() && i < static_cast<size_t>(LINES); ++i) {
        const Line& line = lines[i];
        const attr_t how = line.kind == Line::Kind::selected       ? A_REVERSE
                           : line.kind == Line::Kind::chosen_title ? A_BOLD | A_UNDERLINE
                           : line.kind == Line::Kind::title        ? A_UNDERLINE
                           : line.kind == Line::Kind::head         ? A_BOLD
                           : line.kind == Line::Kind::key          ? A_REVERSE
                                                                   : A_NORMAL;
        attrset(how);
        const int row = static_cast<int>(i);
        mvaddnstr(row, 0, line.text.c_str(), -1);
        if (!coloured_) continue;
        for (const Line::Paint& paint : line.paints)
            mvchgat(row, static_cast<int>(paint.from), static_cast<int>(paint.length), how,
                    static_cast<short>(paint.colour), nullptr);
    }
    attrset(A_NORMAL);
    ::refresh();
}

// A line from the user, in the last one of the screen; Escape gives none.
std::string Monitor::typed(const std::string& question) {
    constexpr size_t most = 60;
    std::string text;
    timeout(-1);
    for (;;) {
        view_.question = question + text + "_";
        draw();
        const int code = getch();
        if (code == '\n' || code == KEY_ENTER || code == ERR) break;
        if (code == 27) {
            text.clear();
            break;
        }
        if ((code == KEY_BACKSPACE || code == 127 || code == 8) && !text.empty())
            text.pop_back();
        else if (code >= 32 && code < 127 && text.size() < most)
            text += static_cast<char>(code);
        if (question.ends_with("(y/n) ") && !text.empty()) break;
    }
    view_.question.clear();
    return text;
}

void Monitor::give(const std::string& verb, const std::string& what,
                   std::vector<std::string> args) {
    const auto answer = parsed(verb, args);
    view_.said = !answer                       ? answer.error().message
                 : answer->contains("message") ? field(*answer, "message")
                                               : what;
    due_ = {};
}

void Monitor::order(char what) {
    const std::string id = chosen(seen_, view_), group = chosen_group(seen_, view_);
    if (!parse_job_id(id)) {
        view_.said = "choose a job first (Tab)";
    } else if (group == "array" && what == 'k') {
        if (sure("cancel all jobs of array " + id + "?"))
            give("cancel", "array " + id + " is cancelled", {"array=" + id});
    } else if (!group.empty() && what != 'k') {
        view_.said = "that is for one job: Enter unfolds " + id;
    } else if (what == 't') {
        give("thaw", "job " + id + " goes on where its bid wins a place", {id, "-", "once"});
    } else if (what == 'o') {
        if (sure("hold job " + id + "?")) give("hold", "job " + id + " is held", {id});
    } else if (what == 'r') {
        give("release", "job " + id + " is released", {id});
    } else if (what == 'k') {
        if (sure("cancel job " + id + "?")) give("cancel", "job " + id + " is cancelled", {id});
    } else if (what == 'f') {
        if (sure("freeze job " + id + "?"))
            give("freeze", "job " + id + " is being frozen", {id, "once"});
    } else {
        const std::string node = typed("move job " + id + " to node: ");
        if (!valid_node_name(node))
            view_.said = node.empty() ? "" : "'" + node + "' is not a node name";
        else if (sure("move job " + id + " to " + node + "?"))
            give("move", "job " + id + " goes to " + node, {id, node, "once"});
    }
}

// Returns false if mmon must end.
bool Monitor::key(int code) {
    static const std::map<int, std::string> names = {
        {KEY_UP, "up"},     {KEY_DOWN, "down"},       {KEY_PPAGE, "page_up"},
        {KEY_LEFT, "left"}, {KEY_NPAGE, "page_down"}, {KEY_RIGHT, "right"},
        {KEY_HOME, "home"}, {KEY_END, "end"},         {'\t', "tab"},
        {'\n', "enter"},    {KEY_ENTER, "enter"},     {KEY_F(5), "enter"},
        {27, "escape"},     {KEY_F(1), "h"},          {KEY_F(6), ">"}};
    if (code == 'q' || code == KEY_F(10)) return false;
    view_.said.clear();
    if (code == KEY_F(4) || code == KEY_F(3) || code == '\\' || code == '/')
        view_.filter = typed("show rows that hold: ");
    else if (code == KEY_F(7) || code == 'm')
        order('m');
    else if (code == KEY_F(8) || code == 'f')
        order('f');
    else if (code == KEY_F(9) || code == 'k')
        order('k');
    else if (code == 't' || code == 'o' || code == 'r')
        order(static_cast<char>(code));
    else if (const auto name = names.find(code); name != names.end())
        press(name->second, seen_, view_);
    else if (code > 0 && code < 128)
        press(std::string(1, static_cast<char>(code)), seen_, view_);
    return true;
}

// A terminal of 256 colours has lighter ones, which can be read on black and on white. NO_COLOR
// asks for none.
void Monitor::begin_colours() {
    const char* const none = std::getenv("NO_COLOR");
    if ((none && *none) || !has_colors() || start_color() == ERR) return;
    const short back = use_default_colors() == OK ? -1 : COLOR_BLACK;
    const bool many = COLORS >= 256;
    const std::pair<Colour, short> pairs[] = {
        {Colour::run, COLOR_GREEN},
        {Colour::wait, COLOR_YELLOW},
        {Colour::frozen, many ? short{75} : short{COLOR_BLUE}},
        {Colour::moves, many ? short{141} : short{COLOR_MAGENTA}},
        {Colour::bad, COLOR_RED},
        {Colour::dim, many ? short{245} : short{COLOR_WHITE}}};
    for (const auto& [colour, front] : pairs) init_pair(static_cast<short>(colour), front, back);
    coloured_ = true;
}

void Monitor::run() {
    initscr();
    begin_colours();
    cbreak();
    noecho();
    keypad(stdscr, true);
    set_escdelay(50);
    curs_set(0);
    look();
    for (bool stay = true; stay;) {
        const Nanos left = std::max(Nanos{}, due_ - monotonic_now());
        timeout(static_cast<int>(std::min<int64_t>(left.ns / 1'000'000 + 1, 600'000)));
        const int code = getch();
        if (code == ERR && monotonic_now() >= due_) {
            pollfd terminal{STDIN_FILENO, POLLIN, 0};
            if (poll(&terminal, 1, 0) > 0 && (terminal.revents & (POLLHUP | POLLERR))) break;
            look();
            continue;
        }
        if (code != ERR) stay = key(code);
        draw();
    }
    endwin();
}

int run(int argc, char** argv) {
    keep_standard_fds();
    setlocale(LC_ALL, "");
    Options o;
    const CommandLine line{
        mmon,
        "[options]",
        "Shows the market on a terminal: nodes, jobs, moves, prices; F1 or h lists its keys.",
        {{0, "node", "NAME", "ask through this node's agentd (default: the market on this machine)",
          set_text(o.node)},
         {0, "socket", "PATH", "ask through this daemon's socket", set_text(o.socket)},
         {'d', "delay", "TIME", "ask so often at most (default 2s; a number alone: seconds)",
          set_span(o.every, Nanos::from_s(1), Nanos::from_s(3'600))},
         {0, "once", nullptr, "print all there is as text, and leave", set_flag(o.once)}}};
    if (const auto ended = parse_options(line, argc, argv)) return *ended;
    if (!o.once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
        complain(mmon, "it needs a terminal; mmon --once prints text");
        return 2;
    }
    Monitor monitor(o);
    if (const Status fresh = monitor.refresh(); !fresh) {
        complain(mmon, fresh.error());
        return 1;
    }
    if (!o.once) {
        monitor.run();
        return 0;
    }
    if (const Status printed = print(monitor.text()); !printed) {
        complain(mmon, printed.error());
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk::tools::mmon

int main(int argc, char** argv) { return souk::tools::mmon::run(argc, argv); }
